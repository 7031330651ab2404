"""What is new for some keys since a cursor, asked until there is an answer; who waits for which key."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Generic, Literal, NamedTuple, TypeVar

from penstock.errors import Closed, Corrupt, InvalidOption, OffsetTrimmed
from penstock.events.cursor import cursor_text, first_unheard, newest_before, parse_cursor
from penstock.events.event import Answer, EventGap, heard
from penstock.keys import Match
from penstock.log.log import Log
from penstock.message import Message
from penstock.parse import whole
from penstock.place import spot
from penstock.topic.open_topic import OpenTopic

T = TypeVar("T")
#: Most keys have few who wait, and a set for each would be most of what a connection takes.
_TUPLE_MOST = 16


class Interest(Generic[T]):
    """Those who wait, by key and by the beginning of a key."""

    def __init__(self) -> None:
        self._keys: dict[bytes, tuple[T, ...] | set[T]] = {}
        self._prefixes: dict[bytes, set[T]] = {}
        self._lengths: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._keys or self._prefixes)

    def add(self, one: T, asked: Match) -> None:
        """Register one that wants these keys and prefixes."""
        for key in asked.keys:
            self._keys[key] = _with(self._keys.get(key, ()), one)
        for prefix in asked.prefixes:
            self._prefixes.setdefault(prefix, set()).add(one)
            self._lengths = tuple({*self._lengths, len(prefix)})

    def remove(self, one: T, asked: Match) -> None:
        """Remove one that wanted these keys and prefixes."""
        for key in asked.keys:
            left = _without(self._keys.get(key, ()), one)
            if left:
                self._keys[key] = left
            else:
                self._keys.pop(key, None)
        for prefix in asked.prefixes:
            those = self._prefixes.get(prefix, set())
            those.discard(one)
            if not those:
                self._prefixes.pop(prefix, None)
                self._lengths = tuple({len(each) for each in self._prefixes})

    def of(self, key: bytes) -> Collection[T]:
        """Who waits for that key; nobody twice."""
        named = self._keys.get(key, ())
        if not self._lengths:
            return named
        heard = list(named)
        for length in self._lengths:
            those = self._prefixes.get(key[:length])
            if those is not None and len(key) >= length:
                heard.extend(those)
        return heard

    def all(self) -> list[T]:
        """Everybody, once."""
        return list({id(each): each for each in self._each()}.values())

    def clear(self) -> None:
        """Remove all."""
        self._keys.clear()
        self._prefixes.clear()
        self._lengths = ()

    def _each(self) -> Iterator[T]:
        for found in self._keys.values():
            yield from found
        for those in self._prefixes.values():
            yield from those


def _with(those: tuple[T, ...] | set[T], one: T) -> tuple[T, ...] | set[T]:
    if isinstance(those, set):
        those.add(one)
        return those
    if one in those:
        return those
    return (*those, one) if len(those) < _TUPLE_MOST else {*those, one}


def _without(those: tuple[T, ...] | set[T], one: T) -> tuple[T, ...] | set[T]:
    if isinstance(those, set):
        those.discard(one)
        return those
    return tuple(each for each in those if each is not one)


class EventQueryStep(NamedTuple):
    """What a look found: messages up to the offset `behind`, or a gap that ends there."""

    messages: list[Message]
    behind: int
    gap: EventGap | None = None


class EventQuery:
    """What is new for some keys. It remembers how far it has looked, so each look costs only what is new."""

    def __init__(self, open_topic: OpenTopic, epoch: str, asked: Match, limit: int) -> None:
        self._open_topic = open_topic
        self._epoch = epoch
        self._asked = asked
        self._limit = limit
        #: The first offset that was not looked at.
        self._next = 0
        #: Known before anything was read: the cursor does not fit.
        self._gap: EventGap | None = None
        self._waits = True

    def begin(self, cursor: str | None, rewind: int | None, since: str | datetime | None) -> EventQuery:
        """Say where to look from; without a cursor the first look is the last."""
        with self._open_topic.named_if_closed():
            return self._begin(self._open_topic.log(0), cursor, rewind, since)

    def _begin(
        self, log: Log, cursor: str | None, rewind: int | None, since: str | datetime | None
    ) -> EventQuery:
        bounds = log.readable_from(log.bounds().start)
        self._next = bounds.end
        self._waits = cursor is not None
        if cursor is not None:
            self._resume(log, cursor, bounds.start, bounds.end)
        elif rewind is not None:
            self._rewind(log, whole("rewind", rewind, 1, 1_000_000), bounds.start, bounds.end)
        elif since is not None:
            place = spot(since, 0, self._open_topic.clock.now_ns())
            if place.kind != "time":
                raise InvalidOption(f"since={since!r} is not a time", hint='an age ("10m") or a moment')
            self._next = max(log.resolve(place), bounds.start)
        return self

    @property
    def next(self) -> int:
        """The first offset that was not looked at."""
        return self._next

    @property
    def asked(self) -> Match:
        """The keys and prefixes that are asked for."""
        return self._asked

    @property
    def has_gap(self) -> bool:
        """Whether it is known without reading that the cursor does not fit."""
        return self._gap is not None

    def at(self, offset: int) -> EventQuery:
        """Look from an offset that was reached before."""
        self._next = offset
        return self

    def look(self) -> Answer | None:
        """Look for an answer; None when there is nothing new yet."""
        found = self.search()
        return None if found is None else self._answer(*found)

    def search(self, stop: int | None = None) -> EventQueryStep | None:
        """Look at offsets before `stop`; None when there is nothing new yet."""
        while self._gap is None:
            log = self._open_topic.log(0)
            try:
                end = log.readable_from(self._next).end
                end = end if stop is None else min(end, max(stop, self._next))
                messages, damage = self._up_to_damage(log, end)
            except OffsetTrimmed as trimmed:
                self._miss("retention", self._next, trimmed.first)
                continue
            except (Closed, OSError):  # its files may be closed while one looks
                self._open_topic.require_open()  # knows why: store closed, or topic dropped
                raise
            if messages:
                is_all = damage is None and len(messages) < self._limit
                self._next = end if is_all else messages[-1].offset + 1
                return EventQueryStep(messages, self._next)
            if damage is None:
                self._next = max(self._next, end)
                return None if self._waits else EventQueryStep([], self._next)
            self._miss_damaged(damage)
        return EventQueryStep([], self._next, self._gap)

    def give_up(self) -> Answer:
        """The empty answer; its cursor stands behind all that was looked at (B002-05)."""
        return self._answer([], self._next)

    def _resume(self, log: Log, cursor: str, start: int, end: int) -> None:
        place = parse_cursor(cursor, self._epoch)
        if place is None:
            self._next, self._gap = start, EventGap("epoch")
            return
        self._next = first_unheard(log, place, end)
        if self._next < place.offset:
            self._gap = EventGap("ahead", self._next + 1, place.offset + 1)

    def _rewind(self, log: Log, count: int, start: int, end: int) -> None:
        try:
            offsets = log.keys.newest(self._asked, start, end, count)
        except Corrupt as damage:
            self._next = start
            self._miss_damaged(damage)
        else:
            self._next = offsets[0] if offsets else end

    def _up_to_damage(self, log: Log, stop: int) -> tuple[list[Message], Corrupt | None]:
        """What is wanted before `stop`, or before the first damage, which is said with the next answer."""
        first, damage = self._next, None
        while first < stop:
            try:
                offsets = log.keys.oldest(self._asked, first, stop, self._limit)
                return [each for rows in log.keys.rows(offsets) for each in rows.messages()], damage
            except Corrupt as error:
                damage, stop = error, min(error.first or 0, stop - 1)
        return [], damage

    def _miss_damaged(self, damage: Corrupt) -> None:
        if damage.stop is None:
            raise damage
        self._miss("damage", max(self._next, damage.first or 0), damage.stop)

    def _miss(self, reason: Literal["retention", "damage"], first: int, stop: int) -> None:
        """Note that offsets from `first` up to `stop` cannot be had; that is where to go on."""
        self._gap = EventGap(reason, first + 1, stop + 1)
        self._next = stop

    def _answer(self, messages: list[Message], behind: int, gap: EventGap | None = None) -> Answer:
        with self._open_topic.named_if_closed():
            log = self._open_topic.log(0)
            bounds = log.bounds()
            newest = newest_before(log, max(bounds.end, behind))
        cursor = cursor_text(self._epoch, behind + 1, newest)
        return Answer(list(map(heard, messages)), cursor, bounds.start + 1, gap)
