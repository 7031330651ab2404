"""Reading as a named consumer: readers, commits, positions, lag."""

from __future__ import annotations
