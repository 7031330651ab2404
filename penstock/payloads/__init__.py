"""Bodies that are too large for the log: kept beside it, in files or in an object store."""

from __future__ import annotations
