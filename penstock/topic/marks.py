"""A set of offsets of one partition, a bit each: what a choice among many messages is handed on as.

Bits lie as Arrow and Spark's bitmaps have them, the least significant first; so whole runs of them can be
put in as they come from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress

from penstock.log.columns import unpack_bits


class Marks:
    """Offsets from `first` up to `stop`, of which some are marked."""

    def __init__(self, first: int, stop: int) -> None:
        #: A multiple of 8, so that neighbours share no byte.
        self._base = first & ~7
        self._bits = bytearray((max(stop - self._base, 0) + 7) // 8)

    def __len__(self) -> int:
        """How many are marked."""
        return int.from_bytes(self._bits, "little").bit_count()

    def add(self, offsets: Iterable[int]) -> None:
        base, bits = self._base, self._bits
        for offset in offsets:
            place = offset - base
            bits[place >> 3] |= 1 << (place & 7)

    def add_bits(self, first: int, bits: bytes) -> None:
        """Mark what is set in `bits`, of which the first stands for offset `first`, a multiple of 8."""
        skipped = (self._base - first) // 8
        at = max(-skipped, 0)
        taken = bits[max(skipped, 0) :][: len(self._bits) - at]
        whole = int.from_bytes(self._bits[at : at + len(taken)], "little") | int.from_bytes(taken, "little")
        self._bits[at : at + len(taken)] = whole.to_bytes(len(taken), "little")

    def between(self, first: int, stop: int) -> Marks:
        """The same marks for a part of the range."""
        part = Marks(first, stop)
        at = (part._base - self._base) // 8
        part._bits[:] = self._bits[at : at + len(part._bits)]
        return part

    def places(self, first: int, stop: int) -> Sequence[int]:
        """Which of the offsets `first` to `stop` are marked, counted from `first`."""
        at = first - self._base
        flags = unpack_bits(self._bits, at >> 3, at & 7, (at & 7) + stop - first)
        return range(stop - first) if all(flags) else list(compress(range(stop - first), flags))
