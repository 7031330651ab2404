"""Which blocks of a sealed segment are sound: looked at when they are read, or before that in a thread.

One checksum over many blocks lets go of the interpreter once, so what a thread checks ahead costs the reader
nothing. What it must come to is told by the checksums of the blocks.
"""

from __future__ import annotations

import threading

from penstock.checksum import crc32, crc32_combine
from penstock.log.segment_index import BLOCK_BYTES, Index

#: Fewer blocks than this are checked sooner than a thread for them has started.
_WORTH_A_THREAD = 8


class BlockChecks:
    """Checks each block of a sealed segment's data once; shared by threads."""

    def __init__(self, data: memoryview, index: Index, *, are_sound: bool) -> None:
        self._data = data[: index.data_bytes]
        self._index = index
        #: 1 for each block that was found sound.
        self._sound = bytearray((are_sound,)) * len(index.blocks)
        #: The thread that checks all blocks from one on, once there was one.
        self._thread: threading.Thread | None = None
        self._thread_begins = len(index.blocks)

    def are_sound(self, begin: int, end: int) -> bool:
        """Whether the blocks are that hold bytes `begin` to `end`."""
        sound = True
        for block in range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES)):
            if not self._sound[block]:
                sound &= self._is_sound(block)
        return sound

    def check_ahead(self, byte: int) -> bool:
        """Have all blocks from that of `byte` on checked in a thread, once; return whether it is at it."""
        if self._thread is not None:
            return self._thread.is_alive()
        first = byte // BLOCK_BYTES
        if self._sound.count(0, first) < _WORTH_A_THREAD or (first and crc32_combine is None):
            return False
        thread = threading.Thread(target=self._check_from, args=(first,), name="penstock-check", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending, or there are too many: readers check
            return False
        self._thread_begins, self._thread = first, thread
        return True

    def _is_sound(self, block: int) -> bool:
        if block >= self._thread_begins and self._thread is not None:
            self._thread.join()
        if not self._sound[block]:
            begin = block * BLOCK_BYTES
            self._sound[block] = crc32(self._data[begin : begin + BLOCK_BYTES]) == self._index.blocks[block]
        return self._sound[block] == 1

    def _check_from(self, first: int) -> None:
        """Check all blocks from the `first` on in one step; damage is left to who reads it."""
        data = self._data[first * BLOCK_BYTES :]
        if crc32(data) == self._expected(first, len(data)):
            self._sound[first:] = b"\1" * (len(self._sound) - first)

    def _expected(self, first: int, size: int) -> int:
        """What the checksum over all blocks from the `first` on must be; they have `size` bytes."""
        if first == 0 or crc32_combine is None:
            return self._index.whole
        checksum = 0
        for block, each in enumerate(self._index.blocks[first:]):
            checksum = crc32_combine(checksum, each, min(BLOCK_BYTES, size - block * BLOCK_BYTES))
        return checksum
