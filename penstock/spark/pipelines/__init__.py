"""Ready pipelines over topics, one file each."""

from __future__ import annotations
