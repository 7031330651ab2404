"""A folder of waiting messages of version 1, before each delay had files of its own; written by hand.

Two messages of 30 seconds, one of which waits 1.5 s longer, stored in one call each with sync="os"; the first
was finished after a snapshot had been made.
"""

import struct
import zlib

NOW = 1_700_000_000_000
DUE = NOW + 30_000
NAME = b"30@2023111422-000000000001.data"
FIRST_ID, SECOND_ID = bytes(range(16)), bytes(range(16, 32))

_FIRST = struct.pack("<Q", DUE) + FIRST_ID + b"\x06orders" + b"\x03" + b"\x06" + b"\x00hello"
_SECOND = struct.pack("<Q", DUE) + SECOND_ID + b"\x06orders" + b"\x80\x01" + b"\x07" + b"\xdc\x0bworld"

#: ID (ms, counter), RWState writing, Offset, Len, Replay.
_SNAPSHOT = b"\x1f" + NAME + struct.pack("<QQ", NOW, 1) + b"\x01" + b"\x00" + b"\x00" + struct.pack("<Q", DUE)


def _sum(end: int, block: bytes, records: int) -> bytes:
    body = struct.pack("<IIIIQI", end, len(block), records, 0, DUE, zlib.crc32(block))
    return body + struct.pack("<I", zlib.crc32(body))


def _entry(body: bytes) -> bytes:
    return struct.pack("<II", len(body), zlib.crc32(body)) + body


def _header() -> bytes:
    behind = struct.pack("<HHQQQQI12x", 1, 64, 2, NOW, 1, len(_SNAPSHOT), zlib.crc32(_SNAPSHOT))
    return b"PENSTOKW" + struct.pack("<I", zlib.crc32(behind)) + behind


_LATER = NOW + 30_000
_OPEN = _entry(b"\x04" + struct.pack("<QQ", _LATER, 2) + b"\x1f" + NAME)
_SHIFT = _entry(b"\x05" + struct.pack("<QQ", _LATER, 3) + b"\x1f" + NAME + bytes([len(_FIRST)]))

FILES = {
    "30/" + NAME.decode(): _FIRST + _SECOND,
    "30/" + NAME.decode().replace(".data", ".sums"): _sum(len(_FIRST), _FIRST, 1)
    + _sum(len(_FIRST + _SECOND), _SECOND, 2),
    "states.snapshot": _SNAPSHOT,
    "states.log": _header() + _OPEN + _SHIFT,
}
