"""A folder of waiting messages, written by hand from the tables in docs/FORMAT.md, without Penstock's code.

Two messages with a delay of 30 seconds and one that is due at a moment 31.5 s away, which waits on the
ladder; one call each, with sync="os". The first was finished after a snapshot had been made.
"""

import struct
import zlib

NOW = 1_700_000_000_000
DUE = NOW + 30_000
FIXED = b"30s@2023111422-000000000001.data"
LADDER = b"ladder-30s@2023111422-000000000004.data"
IDS = [bytes.fromhex(f"018bcfe5680070008000{n:012x}") for n in (1, 2, 3)]

_FIRST = struct.pack("<Q", DUE) + IDS[0] + b"\x06orders" + b"\x03" + b"\x05hello"
_SECOND = struct.pack("<Q", DUE) + IDS[1] + b"\x06orders" + b"\x80\x01" + b"\x05world"
#: The rest, 1500 ms, is ours and stands before the message's own data.
_MOMENT = struct.pack("<Q", DUE) + IDS[2] + b"\x06orders" + b"\x00" + b"\x07" + b"\xdc\x0blater"


def _sum(end: int, block: bytes, records: int, counter: int) -> bytes:
    body = struct.pack("<IIIIQIQQ", end, len(block), records, 0, DUE, zlib.crc32(block), NOW, counter)
    return body + struct.pack("<I", zlib.crc32(body))


def _state(name: bytes, counter: int, length: int) -> bytes:
    """ID (ms, counter), RWState writing, Offset, Len, Replay."""
    head = bytes([len(name)]) + name + struct.pack("<QQ", NOW, counter)
    return head + b"\x01" + b"\x00" + _uvarint(length) + struct.pack("<Q", DUE)


def _uvarint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])


def _entry(body: bytes) -> bytes:
    return struct.pack("<II", len(body), zlib.crc32(body)) + body


#: Files are made under counters 1 and 4, appended to under 2, 3 and 5.
_SNAPSHOT = _state(FIXED, 3, len(_FIRST + _SECOND)) + _state(LADDER, 5, len(_MOMENT))


def _header() -> bytes:
    behind = struct.pack("<HHQQQQI12x", 2, 64, 2, NOW, 5, len(_SNAPSHOT), zlib.crc32(_SNAPSHOT))
    return b"PENSTOKW" + struct.pack("<I", zlib.crc32(behind)) + behind


_LATER = NOW + 30_000


def _opened(name: bytes, counter: int) -> bytes:
    return _entry(b"\x04" + struct.pack("<QQ", _LATER, counter) + bytes([len(name)]) + name)


_SHIFT = _entry(b"\x05" + struct.pack("<QQ", _LATER, 8) + bytes([len(FIXED)]) + FIXED + bytes([len(_FIRST)]))

FILES = {
    "30s/" + FIXED.decode(): _FIRST + _SECOND,
    "30s/" + FIXED.decode().replace(".data", ".sums"): _sum(len(_FIRST), _FIRST, 1, 2)
    + _sum(len(_FIRST + _SECOND), _SECOND, 2, 3),
    "ladder-30s/" + LADDER.decode(): _MOMENT,
    "ladder-30s/" + LADDER.decode().replace(".data", ".sums"): _sum(len(_MOMENT), _MOMENT, 1, 5),
    "states.snapshot": _SNAPSHOT,
    "states.log": _header() + _opened(FIXED, 6) + _opened(LADDER, 7) + _SHIFT,
}


def lock_record(boot: int) -> bytes:
    """What `states.lock` holds: generation, boot, the last id, CRC."""
    body = struct.pack("<QQQQ", 2, boot, _LATER, 8)
    return body + struct.pack("<I", zlib.crc32(body))


#: The other operations, as entries of a log.
CREATE = _entry(b"\x01" + struct.pack("<QQ", 5, 7) + b"\x01a" + struct.pack("<QQ", 30_000, NOW))
STOP_WRITING = _entry(b"\x02" + struct.pack("<QQ", 5, 8) + b"\x01a" + b"\xac\x02")
DELETE = _entry(b"\x03" + struct.pack("<QQ", 6, 9) + b"\x01a")
