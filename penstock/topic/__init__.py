"""What makes logs a topic: partitions, routing, writers, scans, retention."""

from __future__ import annotations
