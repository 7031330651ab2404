"""Where bodies lie: what a folder of files and a bucket have in common.

A name is free text with slashes in it ("images/2026/11/cat.png"). A body is there whole or not at all; once
`put` returned, it survives a power cut. Nobody changes a body: another `put` under its name replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

#: A body in memory, in a file, or read piece by piece from something open.
Body = bytes | bytearray | memoryview | Path | BinaryIO


@dataclass(frozen=True, slots=True)
class Stored:
    """What `put` stored."""

    name: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Found:
    """What `list` found; `modified_ns` is when it was stored, by the store's own clock."""

    name: str
    size: int
    modified_ns: int


class BodyStore(Protocol):
    """A place for bodies."""

    def put(
        self, name: str, body: Body, *, content_type: str | None = None, most: int | None = None
    ) -> Stored:
        """Store a body, whole and synced when this returns; memory does not grow with its size.

        One of more than `most` bytes raises `MessageTooLarge`, and nothing of it stays.
        """

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """A body or a part of it; `BodyMissing` when there is none."""

    def open(self, name: str, start: int = 0, length: int | None = None) -> BinaryIO:
        """A body to be read piece by piece."""

    def delete(self, names: Iterable[str]) -> int:
        """Remove bodies; how many were there, as far as the place says so. A missing one is no mistake."""

    def list(self, prefix: str = "") -> Iterator[Found]:
        """All bodies whose names begin so, in no order to rely on."""

    def shares(self) -> Sequence[str]:
        """The place divided into shares, for several to list it together; a body is in one of them."""

    def list_share(self, share: str) -> Iterator[Found]:
        """All bodies of a share."""

    def unfinished(self) -> Iterator[Found]:
        """What was begun and is not stored yet, as far as the place tells; `name` is for `forget`.

        Under way, or left by a process that died; `modified_ns` is when something was last added to it.
        """

    def forget(self, unfinished: Iterable[str]) -> int:
        """Remove what `unfinished` found; how many were still there."""
