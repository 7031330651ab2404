"""Key retention: how long messages of certain keys live, and which messages of a partition have expired.

For each duration there is a floor: the first offset that was written within it. A message below the floor of
its key has expired, at once and for every reader; it leaves the disk when all before it does. An offset that
has expired is like one that was left out: it holds no message, and nothing is lost by skipping it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from penstock.clock import NANOSECONDS
from penstock.errors import Corrupt
from penstock.keys import checked_key, match, spoken_prefix
from penstock.log.age_retention import AgeRetention
from penstock.log.rows import FrameRows, MessageRows
from penstock.log.segments import Segments
from penstock.message import Message, Rows
from penstock.options import Rule, TopicOptions

_ANY = "*"


class KeyDurations:
    """A topic's rules of key retention, ready to be asked."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._keys: dict[bytes, int] = {}
        self._prefixes: dict[bytes, int] = {}
        for text, lasting in rules:
            pattern: Any = spoken_prefix(text)
            lasting_ns = round(lasting * NANOSECONDS)
            if pattern[-1:] == _ANY or pattern[-1:] == [_ANY]:
                for beginning in match(prefixes=[pattern[:-1]]).prefixes:
                    self._prefixes[beginning] = lasting_ns
            else:
                self._keys[checked_key(pattern) or b""] = lasting_ns
        #: Longest first.
        self._lengths = sorted({len(beginning) for beginning in self._prefixes}, reverse=True)
        #: What is younger than this has not expired, whatever its key; None without rules.
        self.shortest_ns = min((*self._keys.values(), *self._prefixes.values()), default=None)

    def of(self, key: bytes | None) -> int | None:
        """How many nanoseconds messages of a key live; None: as long as the topic keeps them."""
        if key is None:
            return None
        found = self._keys.get(key)
        if found is None:
            for length in self._lengths:
                if len(key) >= length and (found := self._prefixes.get(key[:length])) is not None:
                    break
        return found


#: So often one looks whether another process changed the rules, and what has expired by its age.
LOOK_AGAIN_S = 0.9


class _Reached(NamedTuple):
    """A floor, and when the message there was written; None when there is none yet."""

    offset: int
    written_at: int | None


class KeyFloors:
    """Below which offset the messages of a key have expired, at one moment."""

    def __init__(self, durations: KeyDurations, floor: Callable[[int], int]) -> None:
        self._durations = durations
        self._floor = cache(floor)
        shortest = durations.shortest_ns
        #: From here on nothing has expired, whatever its key.
        self.highest = 0 if shortest is None else self._floor(shortest)

    def of(self, key: bytes | None) -> int:
        """The first offset that a message of this key may have and not be expired."""
        lasting = self._durations.of(key) if self.highest else None
        return 0 if lasting is None else self._floor(lasting)

    def has_expired(self, message: Message) -> bool:
        """Whether the message has expired."""
        return message.offset < self.highest and message.offset < self.of(message.key)


_NONE_EXPIRED = KeyFloors(KeyDurations(()), lambda lasting: 0)


class KeyRetention:
    """One process's knowledge of what has expired in a partition; shared by threads."""

    def __init__(
        self, segments: Segments, options: Callable[[], TopicOptions],
        offset_at: Callable[[int, int], int], age: AgeRetention,
    ) -> None:  # fmt: skip
        self.age = age
        self._segments = segments
        self._options = options
        self._offset_at = offset_at
        self._rules: tuple[tuple[str, float], ...] = ()
        self._durations = KeyDurations(())
        self._looked = -LOOK_AGAIN_S
        #: Time does not pass with the machine's.
        self._is_by_hand = not segments.folder.clock.drives_threads
        #: By duration; floors only rise.
        self._reached: dict[int, _Reached] = {}

    def use(self, options: TopicOptions) -> None:
        """Go by these options from now on."""
        self.age.use(options)
        if options.key_retention != self._rules:
            self._durations, self._rules = KeyDurations(options.key_retention), options.key_retention
            self._reached = {}

    def floors(self, now_ns: int | None = None) -> KeyFloors:
        """What has expired by now, or had at another moment."""
        moment = time.monotonic()
        if moment - self._looked >= LOOK_AGAIN_S:
            self._looked = moment
            self.use(self._options())
            self.age.start()
        elif self._is_by_hand:
            self.age.start()
        if not self._rules:
            return _NONE_EXPIRED
        if now_ns is not None:
            return KeyFloors(self._durations, lambda lasting: self._offset_at(now_ns - lasting, 0))
        now = self._segments.folder.clock.now_ns()
        return KeyFloors(self._durations, lambda lasting: self._risen(now - lasting, lasting))

    def message(self, offset: int) -> Message | None:
        """Return the message at `offset`; None if there is none or it has expired."""
        floors = self.floors()
        if offset < self.age.known_start:
            return None
        found = self._segments.message(offset)
        return None if found is None or floors.has_expired(found) else found

    def _risen(self, since_ns: int, lasting: int) -> int:
        """The floor of a duration; looked for only when the message there has expired."""
        known = self._reached.get(lasting)
        if known is None or known.written_at is None or known.written_at < since_ns:
            known = self._reached[lasting] = self._find(since_ns, 0 if known is None else known.offset)
        return known.offset

    def _find(self, since_ns: int, above: int) -> _Reached:
        try:
            offset = self._offset_at(since_ns, above)
            there = self._segments.message(offset)
        except Corrupt:  # whoever reads there learns of it; others need not
            return _Reached(above, None)
        return _Reached(offset, None if there is None else there.written_at)


def unexpired_runs(rows: Rows, floors: KeyFloors) -> Iterator[Rows]:
    """What of neighbours has not expired: runs of those that still lie side by side."""
    if rows.first >= floors.highest:
        yield rows
        return
    if isinstance(rows, FrameRows):
        keys = rows.frame.keys(rows.begin, rows.end)
    else:
        keys = [message.key for message in rows.messages()]
    known: dict[bytes | None, int] = {}
    begin = None
    for place, key in enumerate(keys):
        floor = known.get(key)
        if floor is None:
            floor = known[key] = floors.of(key)
        if rows.first + place < floor:
            if begin is not None:
                yield _part(rows, begin, place)
            begin = None
        elif begin is None:
            begin = place
    if begin is not None:
        yield _part(rows, begin, len(keys))


def _part(rows: Rows, begin: int, end: int) -> Rows:
    if isinstance(rows, FrameRows):
        return FrameRows(rows.topic, rows.partition, rows.frame, rows.begin + begin, rows.begin + end)
    return MessageRows(rows.messages()[begin:end])
