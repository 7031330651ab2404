"""What a check reports: findings, and how much was checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """One thing that is not as it should be: how bad, where, what, and the offsets it concerns."""

    #: "damage": stored messages or positions are lost. "note": it will be made good by itself.
    severity: Literal["damage", "note"]
    path: str
    #: Where in the file; None when it concerns the file as a whole.
    byte: int | None
    what: str
    #: Offsets from `first` up to `stop`, when they are known.
    first: int | None = None
    stop: int | None = None
    topic: str | None = None
    partition: int | None = None


@dataclass
class Checked:
    """How much was looked at."""

    topics: int = 0
    partitions: int = 0
    segments: int = 0
    frames: int = 0
    messages: int = 0
    #: Messages that wait for another attempt, or for their time.
    waiting: int = 0
    bytes: int = 0


def damage(
    path: str, byte: int | None, what: str, first: int | None = None, stop: int | None = None
) -> Finding:
    """Return a finding that means data are lost or wrong."""
    return Finding("damage", path, byte, what, first, stop)


def note(
    path: str, byte: int | None, what: str, first: int | None = None, stop: int | None = None
) -> Finding:
    """Return a finding that is worth knowing and harms nothing."""
    return Finding("note", path, byte, what, first, stop)
