"""Files of messages: frames in segments, one log a partition. See docs/FORMAT.md and docs/RECOVERY.md."""

from __future__ import annotations
