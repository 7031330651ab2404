"""Everything small, in SQLite: names, options, topic ids, consumers and their positions."""

from __future__ import annotations
