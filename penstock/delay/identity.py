"""Ids of waiting messages: UUIDs of version 7 (RFC 9562), so that they sort by the time they were made.

    48 bits ms since 1970 | 4 bits version (7) | 12 bits | 2 bits variant (2) | 62 bits

The 74 free bits are random for one id; those of a batch count up from a random number, so that the ids of a
batch are different and in order.
"""

from __future__ import annotations

import os
import random

ID_BYTES = 16
_FREE_BITS = 74
_LOW_BITS = 62
_LOW = (1 << _LOW_BITS) - 1
_MARKS = (7 << 76) | (2 << _LOW_BITS)
#: Seeded by the system, once: asking it for each id lets other threads run, which costs milliseconds.
_random = random.Random()
os.register_at_fork(after_in_child=_random.seed)
#: Above this a count could leave the free bits; nobody makes so many at a time.
_FIRST_MAX = (1 << _FREE_BITS) - (1 << 40)


def uuid7(ms: int, free: int | None = None) -> bytes:
    """An id of a moment; `free` gives its 74 free bits, which are random otherwise."""
    if free is None:
        free = _random.getrandbits(_FREE_BITS)
    high, low = (free >> _LOW_BITS) & 0xFFF, free & _LOW
    return (((ms & 0xFFFF_FFFF_FFFF) << 80) | _MARKS | (high << 64) | low).to_bytes(ID_BYTES, "big")


def uuid7s(ms: int, count: int) -> list[bytes]:
    """Different ids of one moment, in ascending order."""
    first = _random.getrandbits(_FREE_BITS) % _FIRST_MAX
    if (first & _LOW) + count > _LOW:
        return [uuid7(ms, free) for free in range(first, first + count)]
    begin = int.from_bytes(uuid7(ms, first), "big")  # the low bits only count up: nothing is carried
    return [number.to_bytes(ID_BYTES, "big") for number in range(begin, begin + count)]
