"""The zstd codec, for values and for whole frames.

The library is `zstandard` on every Python: the standard library's (from 3.14 on) makes a new context for each
value, which costs ten times as much as unpacking a small one.
"""

from __future__ import annotations

import importlib
import threading
from functools import cache
from typing import Any

from penstock.codecs import limits
from penstock.codecs.limits import Damaged
from penstock.errors import MissingExtra

#: Values are packed once and kept long; frames are packed while somebody waits. Measured on JSON, level 1
#: is quicker than 3 by a third and no worse for frames of 1 MiB.
_VALUE_LEVEL, _FRAME_LEVEL = 3, 1
#: What does not say how large it is gets unpacked from pieces of this size, each of which stays small.
_PIECE_BYTES = 256


@cache
def library() -> Any:
    """The zstandard module, or an error that says how to install it."""
    try:
        return importlib.import_module("zstandard")
    except ImportError:
        raise MissingExtra("zstandard", "codecs") from None


class _Contexts(threading.local):
    """A thread's own, since they are not to be shared: making one costs more than packing a small value."""

    def __init__(self) -> None:
        zstandard = library()
        self.pack_value = zstandard.ZstdCompressor(level=_VALUE_LEVEL).compress
        self.pack_frame = zstandard.ZstdCompressor(level=_FRAME_LEVEL).compress
        self.unpacker = zstandard.ZstdDecompressor()


@cache
def _contexts() -> _Contexts:
    return _Contexts()


def encode(value: bytes) -> bytes:
    """Pack a value as one zstd frame."""
    packed: bytes = _contexts().pack_value(value)
    return packed


def encode_frame(body: bytes | memoryview) -> bytes:
    """Compress the body of a whole frame."""
    packed: bytes = _contexts().pack_frame(body)
    return packed


def decode(stored: bytes | bytearray | memoryview, most: int | None = None) -> bytes:
    """All frames of the value; `most` is how large it may become."""
    zstandard, most = library(), limits.DECODED_BYTES_MAX if most is None else most
    size = zstandard.frame_content_size(stored)
    if size > most:
        raise Damaged(f"it would be more than {most} bytes")
    if size >= 0:
        try:
            value: bytes = _contexts().unpacker.decompress(stored, allow_extra_data=False)
            return value
        except zstandard.ZstdError:
            pass  # it is damaged, or there are several frames: the slow way tells
    return _from_pieces(bytes(stored), most)


def _from_pieces(stored: bytes, most: int) -> bytes:
    """Several frames, or such as do not say how large they are; never much more than `most` in memory."""
    parts, size, unpacker = [], 0, _contexts().unpacker.decompressobj()
    at = 0
    while at < len(stored):
        if unpacker.eof:
            unpacker = _contexts().unpacker.decompressobj()
        piece = stored[at : at + _PIECE_BYTES]
        parts.append(unpacker.decompress(piece))
        at += len(piece) - len(unpacker.unused_data if unpacker.eof else b"")
        size += len(parts[-1])
        if size > most:
            raise Damaged(f"it would be more than {most} bytes")
    if not unpacker.eof:
        raise Damaged("it ends in the middle")
    return b"".join(parts)
