"""Keys of messages, gathered in memory: those of the active segment, or of a sealed one without an index.

A fold goes on where it stopped, never beyond what readers may see. It remembers where messages are missing,
so that a search by key says so as any other read would. Taking in the same messages twice changes nothing:
Ctrl-C may come at any moment.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice

from penstock.errors import Corrupt, OffsetTrimmed
from penstock.keys import Match
from penstock.log.cursor import Cursor
from penstock.log.keyindex import Hole, Places
from penstock.log.rows import FrameRows
from penstock.log.view import View
from penstock.message import Rows
from penstock.options import MIB

_AT_ONCE_MESSAGES, _AT_ONCE_BYTES = 16_384, 4 * MIB


class FoldedKeys:
    """The keys of one segment's messages up to `stop`."""

    def __init__(self, view: View, base: int) -> None:
        self.base = base
        #: Everything below was taken in.
        self.stop = base
        #: Where messages are missing that should be there.
        self.holes: list[Hole] = []
        self._cursor = Cursor(view, base)
        self._places: dict[bytes, array[int]] = {}
        self._sorted: list[bytes] = []
        self._mutex = threading.Lock()

    @property
    def places(self) -> dict[bytes, array[int]]:
        """All keys, each with its places."""
        return self._places

    @property
    def messages(self) -> int:
        """How many messages have a key."""
        return sum(map(len, list(self._places.values())))

    def is_sound(self) -> bool:
        return True

    def fold(self, stop: int) -> FoldedKeys:
        """Take in what there is before `stop`; what retention took is passed over."""
        if self.stop < stop:
            with self._mutex:
                while self.stop < stop and self._step(stop):
                    pass
        return self

    def found(self, match: Match) -> Iterator[tuple[bytes, Places]]:
        """Each key that is wanted, with its places."""
        for key in match.keys:
            if key in self._places:
                yield key, self._places[key]
        for prefix in match.prefixes:
            keys = self._in_order()
            for number in range(bisect_left(keys, prefix), len(keys)):
                if not keys[number].startswith(prefix):
                    break
                yield keys[number], self._places[keys[number]]

    def _in_order(self) -> Sequence[bytes]:
        """All keys by their bytes; replaced when there are more, never changed."""
        with self._mutex:  # or they might grow under our eyes
            known = len(self._sorted)
            if known != len(self._places):
                self._sorted = sorted([*self._sorted, *islice(self._places, known, None)])
            return self._sorted

    def _step(self, stop: int) -> bool:
        """Take in some more; False when there is nothing."""
        cursor = self._cursor
        cursor.offset = self.stop
        try:
            rows = cursor.read(_AT_ONCE_MESSAGES, _AT_ONCE_BYTES, stop)
        except OffsetTrimmed as trimmed:
            self.stop = min(trimmed.first, stop)
            return True
        except Corrupt as error:
            beyond = stop if error.stop is None else min(error.stop, stop)
            self.holes.append(Hole(self.stop, beyond, error))
            self.stop = beyond
            return True
        for each in rows:
            self._take(each)
        self.stop = cursor.offset
        return bool(rows)

    def _take(self, rows: Rows) -> None:
        if isinstance(rows, FrameRows):
            keys = rows.frame.keys(rows.begin, rows.end)
        else:
            keys = [message.key for message in rows.messages()]
        places = self._places
        for place, key in enumerate(keys, rows.first - self.base):
            if key is None:
                continue
            known = places.get(key)
            if known is None:
                places[key] = array("I", (place,))
            elif known[-1] < place:
                known.append(place)
