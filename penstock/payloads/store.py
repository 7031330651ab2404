"""`BodyStore`: what a place for bodies does; and bodies and messages that have lost each other.

A body is stored before its message, so one that is young may be of a message that is on its way: it is left
alone for a day. List bodies first and references after them to find orphans; to find losses list references
first, and ask of each loss whether its message is still there: retention may have taken both meanwhile.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from penstock.clock import NANOSECONDS
from penstock.references import Reference

#: A body in memory, in a file, or read piece by piece from something open.
Body = bytes | bytearray | memoryview | Path | BinaryIO


@dataclass(frozen=True, slots=True)
class StoredBody:
    """What `put` stored."""

    name: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class FoundBody:
    """What `list` found; `modified_ns` is when it was stored, by the store's own clock."""

    name: str
    size: int
    modified_ns: int


class BodyStore(Protocol):
    """A place for bodies."""

    def put(
        self, name: str, body: Body, *, content_type: str | None = None, most: int | None = None
    ) -> StoredBody:
        """Store a body, whole and synced when this returns; memory does not grow with its size.

        One of more than `most` bytes raises `MessageTooLarge`, and nothing of it stays.
        """

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """A body or a part of it; `BodyMissing` when there is none."""

    def open(self, name: str, start: int = 0, length: int | None = None) -> BinaryIO:
        """A body to be read piece by piece."""

    def delete(self, names: Iterable[str]) -> int:
        """Remove bodies; how many were there, as far as the place says so. A missing one is no mistake."""

    def list(self, prefix: str = "") -> Iterator[FoundBody]:
        """All bodies whose names begin so, in no order to rely on."""

    def shares(self) -> Sequence[str]:
        """The place divided into shares, for several to list it together; a body is in one of them."""

    def list_share(self, share: str) -> Iterator[FoundBody]:
        """All bodies of a share."""

    def unfinished(self) -> Iterator[FoundBody]:
        """What was begun and is not stored yet, as far as the place tells; `name` is for `forget`.

        Under way, or left by a process that died; `modified_ns` is when something was last added to it.
        """

    def forget(self, unfinished: Iterable[str]) -> int:
        """Remove what `unfinished` found; how many were still there."""


#: A transaction may be open for so long, and its bodies wait for it.
GRACE_NS = 24 * 3600 * NANOSECONDS

M = TypeVar("M")


def orphans(
    bodies: Iterable[FoundBody], referenced: Container[str], now_ns: int, grace_ns: int = GRACE_NS
) -> Iterator[FoundBody]:
    """Bodies of one place that no message refers to by name, and that are older than the grace."""
    limit = now_ns - grace_ns
    return (body for body in bodies if body.modified_ns < limit and body.name not in referenced)


def losses(
    referring: Iterable[tuple[M, Reference]], sizes: Mapping[int, Mapping[str, int]]
) -> Iterator[tuple[M, Reference]]:
    """Messages whose body is not there, or is too short to hold it; `sizes` are the bodies of each place."""
    for message, reference in referring:
        size = sizes.get(reference.place, {}).get(reference.name, -1)
        if size < reference.start + reference.size:
            yield message, reference
