"""Bodies read piece by piece from whatever they are, counted and digested on the way."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from penstock.errors import MessageTooLarge, WrongType
from penstock.parse import MIB
from penstock.payloads.store import Body

#: So much of a body is in memory at a time, a few times over: S3 wants parts of 5 MiB at least.
PIECE_BYTES = 8 * MIB


class Pieces:
    """The pieces of a body, once; `size` and `sha256` count along."""

    def __init__(self, body: Body, most: int | None = None) -> None:
        self._body = body
        self._most = most
        self._digest = sha256()
        self.size = 0
        #: What was wrong with the body itself, wherever it was read.
        self.error: Exception | None = None

    @property
    def sha256(self) -> bytes:
        """The digest of all that was read."""
        return self._digest.digest()

    def __iter__(self) -> Iterator[bytes | memoryview]:
        try:
            for piece in _pieces(self._body):
                self.size += len(piece)
                if self._most is not None and self.size > self._most:
                    raise MessageTooLarge(
                        f"a body of more than {self._most} bytes is over the topic's limit",
                        hint="raise max_body of its payloads",
                    )
                self._digest.update(piece)
                yield piece
        except Exception as error:
            self.error = error
            raise


def _pieces(body: Body) -> Iterator[bytes | memoryview]:
    if isinstance(body, Path):
        with body.open("rb") as file:
            yield from _read(file)
    elif isinstance(body, (bytes, bytearray, memoryview)):
        whole = memoryview(body).cast("B")
        yield from (whole[at : at + PIECE_BYTES] for at in range(0, len(whole), PIECE_BYTES))
    elif hasattr(body, "read"):
        yield from _read(body)
    else:
        raise WrongType(f"a body is bytes, a Path or an open file, not {type(body).__name__}")


def _read(file: BinaryIO) -> Iterator[bytes]:
    """Whole pieces, also from something that gives little at a time, such as a pipe."""
    while True:
        parts, missing = [], PIECE_BYTES
        while missing and (part := file.read(missing)):
            if not isinstance(part, bytes):
                raise WrongType(f"the file gives {type(part).__name__}, not bytes", hint='open it with "rb"')
            parts.append(part)
            missing -= len(part)
        if not parts:
            return
        yield parts[0] if len(parts) == 1 else b"".join(parts)
        if missing:
            return


class Ranged(io.RawIOBase):
    """A part of a body as a file: `fetch(start, length)` gets the bytes that are asked for."""

    def __init__(self, fetch: Callable[[int, int], bytes], start: int, length: int) -> None:
        self._fetch = fetch
        self._start = start
        self._length = length
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def readall(self) -> bytes:
        """In large pieces: Python's own way would ask for 8 KiB at a time."""
        return b"".join(iter(lambda: self.read(PIECE_BYTES), b""))

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        wanted = min(len(buffer), self._length - self._at)
        if wanted <= 0:
            return 0
        found = self._fetch(self._start + self._at, wanted)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)
