"""Finding messages by their key, in one partition: which offsets hold it.

Sealed segments are asked through their key index, the active one through a fold in memory, which every reader
of the process shares. Both stop where readers may see no further. A segment whose index is missing or damaged
is folded too, until a vacuum has stored one.

Indexes stay mapped. A look at its filter tells that a segment does not hold a key, so that a thousand of them
are skipped in a fraction of a millisecond, and in one step the next time; and no more are looked at than
the answer needs.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from typing import NamedTuple, Protocol, TypeVar

from penstock.errors import Corrupt
from penstock.files import replace
from penstock.keys import Match
from penstock.log import key_index
from penstock.log.folder import KEY_INDEX
from penstock.log.key_index import GatheredKeys, Hole, KeyFilter, Places, StoredKeys
from penstock.log.key_retention import KeyFloors, KeyRetention
from penstock.log.message_facts import Facts, FactsReader
from penstock.log.rows import MessageRows
from penstock.log.segment import read_head
from penstock.log.segments import Bounds, Segments
from penstock.message import Message

#: So many questions are remembered, and only small ones.
_QUESTIONS_MOST = 1024
_KEYS_MOST = 16
#: Shorter runs are not worth it.
_RUN_LEAST = 8

T = TypeVar("T", bound="Based")
#: By the first segment of a run, in the direction of the search: the last one.
_Runs = dict[int, int]


class Based(Protocol):
    """What is known of a segment, which has its first offset."""

    @property
    def base(self) -> int:
        """The offset of the segment's first message."""


class SkippedSegments:
    """What one process has skipped in one partition."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Match, bool], _Runs] = OrderedDict()

    def may_hold(self, sealed: Sequence[T], match: Match, between: range, *, newest: bool) -> Iterator[T]:
        """Those of `sealed` that may hold a wanted key, in order or the newest first.

        What is no index is always among them.
        """
        runs, passes = self._runs(match, newest), KeyFilter(match).passes
        step, at = (-1, between.stop - 1) if newest else (1, between.start)
        began = -1  # where the run that is being skipped began
        while at in between:
            table = sealed[at]
            if isinstance(table, StoredKeys) and not (passes(table) and _holds(table, match)):
                if began < 0:
                    began = at
                if runs and (last := runs.get(table.base)) is not None:
                    at = bisect_left(sealed, last, key=_base) if newest else _last_up_to(sealed, last)
            else:
                _note(runs, sealed, began, at - step)
                began = -1
                yield table
            at += step
        _note(runs, sealed, began, at - step)

    def _runs(self, match: Match, newest: bool) -> _Runs:
        if len(match.keys) + len(match.prefixes) > _KEYS_MOST:
            return {}
        question = match, newest
        runs = self._known.pop(question, None)
        self._known[question] = runs = {} if runs is None else runs
        while len(self._known) > _QUESTIONS_MOST:
            self._known.popitem(last=False)
        return runs


def _holds(table: StoredKeys, match: Match) -> bool:
    """Whether an index that the filter let pass may hold what is wanted: prefixes are looked up for that."""
    return not match.prefixes or not table.is_sound() or next(table.found(match), None) is not None


def _note(runs: _Runs, sealed: Sequence[Based], began: int, end: int) -> None:
    """A run was skipped, if it began and is long enough; `end` may lie outside what there is by now."""
    end = min(max(end, 0), len(sealed) - 1)
    if began >= 0 and abs(end - began) >= _RUN_LEAST:
        runs[sealed[began].base] = sealed[end].base


def _last_up_to(sealed: Sequence[Based], base: int) -> int:
    return bisect_right(sealed, base, key=_base) - 1


def _base(table: Based) -> int:
    return table.base


logger = logging.getLogger("penstock.log")


class _MissingKeys(NamedTuple):
    """A segment that should be there and is not."""

    base: int
    stop: int
    holes: tuple[Hole]
    messages: int = 0

    def is_sound(self) -> bool:
        return True

    def found(self, match: Match) -> tuple[tuple[bytes, Places], ...]:
        return ()


class _Span(NamedTuple):
    """Offsets from `first` up to `stop`, so many of them at most, without those that have expired."""

    first: int
    stop: int
    limit: int
    floors: KeyFloors


class KeySpan(NamedTuple):
    """A key: how many messages hold it, the first and the last of them."""

    messages: int
    first: int
    last: int


_Table = StoredKeys | GatheredKeys | _MissingKeys


class KeySearch:
    """The keys of one partition, as one process sees them; shared by threads."""

    def __init__(self, segments: Segments, retention: KeyRetention) -> None:
        self._segments = segments
        self._retention = retention
        self._mutex = threading.Lock()
        self._active = GatheredKeys(segments, 0)
        #: What is known of sealed segments, in their order; replaced, never changed.
        self._sealed: list[_Table] = []
        self._seen = (-1, -1)
        self._passed = SkippedSegments()
        self._facts = FactsReader(segments)

    # Searching.

    def oldest(self, match: Match, first: int, stop: int, limit: int) -> list[int]:
        """The first `limit` offsets from `first` up to `stop` that hold a key that is wanted, ascending.

        Raises `OffsetTrimmed` when retention took `first`, and `Corrupt` where messages are missing among
        those that had to be looked at.
        """
        return list(chain.from_iterable(self.ascending(match, first, stop, limit)))

    def ascending(self, match: Match, first: int, stop: int, limit: int) -> Iterator[list[int]]:
        """The offsets of `oldest`, segment by segment, each looked at when it is asked for."""
        floors = self._retention.floors()
        for table in self._tables(match, first, stop, newest=False):
            hole = next((hole for hole in table.holes if hole.first < stop and first < hole.stop), None)
            reach = stop if hole is None else hole.first
            found = _chosen(table, match, _Span(first, reach, limit, floors), newest=False)
            limit -= len(found)
            yield found
            if limit <= 0:
                return
            if hole is not None:
                raise hole.error.with_traceback(None)

    def newest(self, match: Match, first: int, stop: int, limit: int) -> list[int]:
        """The last `limit` offsets from `first` up to `stop` that hold a key that is wanted, ascending.

        Raises as `oldest` does.
        """
        found: list[int] = []
        floors = self._retention.floors()
        for table in self._tables(match, first, stop, newest=True):
            holes = [hole for hole in table.holes if hole.first < stop and first < hole.stop]
            since = first if not holes else holes[-1].stop
            span = _Span(since, stop, limit - len(found), floors)
            found = _chosen(table, match, span, newest=True) + found
            if len(found) >= limit:
                break
            if holes:
                raise holes[-1].error.with_traceback(None)
        return found

    def count(self, match: Match, first: int, stop: int) -> int:
        """How many offsets from `first` up to `stop` hold a key that is wanted; no message is read.

        Raises as `oldest` does.
        """
        floors = self._retention.floors()
        total = 0
        for table in self._whole(match, first, stop):
            since = max(first, floors.highest)
            if b"" in match.prefixes and since <= table.base and table.stop <= stop:
                total += table.messages
                continue
            total += sum(end - begin for _, _, begin, end in _cuts(table, match, first, stop, floors))
        return total

    def spans(self, match: Match, first: int, stop: int) -> dict[bytes, KeySpan]:
        """For each key that is wanted and is there: how many offsets hold it, its first and its last one.

        Raises as `oldest` does.
        """
        floors = self._retention.floors()
        found: dict[bytes, KeySpan] = {}
        for table in self._whole(match, first, stop):
            for key, places, begin, end in _cuts(table, match, first, stop, floors):
                if begin < end:
                    oldest, newest = table.base + places[begin], table.base + places[end - 1]
                    known = found.get(key)
                    found[key] = (
                        KeySpan(end - begin, oldest, newest)
                        if known is None
                        else KeySpan(known.messages + end - begin, known.first, newest)
                    )
        return found

    def facts(self, offsets: Sequence[int]) -> list[Facts]:
        """Key, headers and time of the messages at those offsets, without their values; raises as `rows`."""
        return self._facts.read(offsets)

    def rows(self, offsets: list[int]) -> list[MessageRows]:
        """The messages at those offsets, neighbours together; `OffsetTrimmed` when retention took one."""
        runs: list[list[Message]] = []
        for offset in offsets:
            message = self._segments.message(offset)
            if message is None:
                self._segments.readable_from(offset)  # says why
                continue
            if runs and runs[-1][-1].offset + 1 == offset:
                runs[-1].append(message)
            else:
                runs.append([message])
        return list(map(MessageRows, runs))

    # What there is to search.

    def _whole(self, match: Match, first: int, stop: int) -> Iterator[_Table]:
        """All that may know of a wanted key; raises where messages are missing."""
        for table in self._tables(match, first, stop, newest=False):
            for hole in table.holes:
                if hole.first < stop and first < hole.stop:
                    raise hole.error.with_traceback(None)
            yield table

    def _tables(self, match: Match, first: int, stop: int, *, newest: bool) -> Iterator[_Table]:
        """What may know of a wanted key, in order or the newest first, up to what readers may see now."""
        with self._mutex:
            end = self._refreshed(first).end
            sealed, active = self._sealed, self._active
        begin = bisect_right(sealed, first, key=lambda table: table.stop)
        between = range(begin, bisect_left(sealed, stop, key=lambda table: table.base))
        is_active_wanted = active.base < stop
        if newest and is_active_wanted:
            yield active.fold(end)
        for table in self._passed.may_hold(sealed, match, between, newest=newest):
            yield self._sound(table)
        if not newest and is_active_wanted:
            yield active.fold(end)

    def _sound(self, table: _Table) -> _Table:
        """The table itself, or keys gathered from the data if it is an index that turns out to be damaged."""
        if table.is_sound():
            return table
        path = self._segments.folder.segment_path(table.base, KEY_INDEX)
        logger.warning("a damaged key index is made anew", extra={"path": path})
        if not self._segments.folder.read_only:
            with suppress(FileNotFoundError):
                self._segments.folder.files.unlink(path)  # so that the next vacuum sees that it is lacking
        folded = GatheredKeys(self._segments, table.base).fold(table.stop)
        with self._mutex:
            self._sealed = [folded if each is table else each for each in self._sealed]
        return folded

    def _refreshed(self, first: int) -> Bounds:
        """Take up segments that were sealed or removed since the last time."""
        while True:
            self._retention.age.refuse(first)
            bounds = self._segments.readable_from(first)
            if self._seen == (bounds.segment, bounds.start):
                return bounds
            try:
                sealed = self._survey(bounds)
            except FileNotFoundError:  # vacuumed or repacked meanwhile
                self._segments.refuse_missing_active(bounds)
                continue
            if self._segments.bounds().start != bounds.start:
                continue  # what seemed to be missing may have been vacuumed away
            self._sealed = sealed
            if self._active.base != bounds.segment:
                self._active = GatheredKeys(self._segments, bounds.segment)
            self._seen = bounds.segment, bounds.start
            return bounds

    def _survey(self, bounds: Bounds) -> list[_Table]:
        """What is known of each sealed segment, and of those that are missing."""
        known = {table.base: table for table in (*self._sealed, self._active)}
        bases = [base for base in self._segments.bases() if base <= bounds.segment]
        tables: list[_Table] = []
        if bases:
            tables += self._missing(bounds.start, bases[0])
        for base, following in pairwise(bases):
            if following <= bounds.start:
                continue
            table = known.get(base)
            if not isinstance(table, StoredKeys):
                folded = table if isinstance(table, GatheredKeys) else GatheredKeys(self._segments, base)
                table = stored_keys(self._segments, base) or folded.fold(following)
            tables.append(table)
            tables += self._missing(table.stop, following)
        return tables

    def _missing(self, first: int, following: int) -> list[_Table]:
        if first < following:
            try:
                self._segments.refuse_unexplained_gap(first, following)
            except Corrupt as error:
                return [_MissingKeys(first, following, (Hole(first, following, error),))]
        return []


def stored_keys(segments: Segments, base: int) -> StoredKeys | None:
    """The key index of a sealed segment, unless it is missing, damaged in front, or of other data."""
    head = read_head(segments.folder, base)
    return None if head is None else StoredKeys.open(segments.folder, head)


def store_keys(segments: Segments, base: int, following: int) -> bool:
    """Store the key index of a sealed segment that lacks it; False when there is nothing to do.

    A segment with holes gets none: a search must learn of them.
    """
    head = read_head(segments.folder, base)
    if head is None or StoredKeys.open(segments.folder, head) is not None:
        return False
    folded = GatheredKeys(segments, base).fold(following)
    if folded.holes:
        return False
    path = segments.folder.segment_path(base, KEY_INDEX)
    replace(segments.folder.files, path, key_index.pack(head, folded.stop, folded.places))
    return True


def _chosen(table: _Table, match: Match, span: _Span, *, newest: bool) -> list[int]:
    """The first or last of what a table finds within a span, ascending."""
    base, limit = table.base, span.limit
    parts = []
    for _, places, begin, end in _cuts(table, match, span.first, span.stop, span.floors):
        parts.append(
            places[max(begin, end - limit) : end] if newest else places[begin : min(end, begin + limit)]
        )
    merged = list(parts[0]) if len(parts) == 1 else sorted(chain.from_iterable(parts))
    cut = merged[-limit:] if newest else merged[:limit]
    return [base + place for place in cut]


def _cuts(
    table: _Table, match: Match, first: int, stop: int, floors: KeyFloors
) -> Iterator[tuple[bytes, Places, int, int]]:
    """Each key that a table finds: which of its places, from and to, lie between and are not over."""
    base = table.base
    for key, places in table.found(match):
        begin = bisect_left(places, max(first, floors.of(key)) - base)
        yield key, places, begin, bisect_left(places, stop - base, begin)
