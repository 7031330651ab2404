"""The ready pipelines as commands, one file each; what they do is in `penstock/spark/pipelines`."""

from __future__ import annotations
