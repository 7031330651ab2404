"""The gzip codec: the format of `gzip`, without name and time, so that equal values are packed equally."""

from __future__ import annotations

import zlib

from penstock.codecs import limits
from penstock.codecs.limits import Damaged

_GZIP = 31  # zlib's way to say: a window of 32 KiB, and a gzip header


def encode(value: bytes) -> bytes:
    """Pack a value as gzip does."""
    packer = zlib.compressobj(wbits=_GZIP)
    return packer.compress(value) + packer.flush()


def decode(stored: bytes) -> bytes:
    """All members, as `gzip -d` reads them."""
    parts, size, rest = [], 0, stored
    while True:
        unpacker = zlib.decompressobj(wbits=_GZIP)
        part = unpacker.decompress(rest, limits.DECODED_BYTES_MAX - size + 1)
        size += len(part)
        limits.refuse_beyond(size)
        if not unpacker.eof:
            raise Damaged("it ends in the middle")
        parts.append(part)
        rest = unpacker.unused_data.lstrip(b"\0")
        if not rest:
            return b"".join(parts)
