"""What the driver finds out before a query runs: the topics, their bounds, and what is to be read.

Only the driver opens a store, and a batch read closes it again at once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import (
    HistoryChanged,
    InvalidOption,
    NotAStore,
    OffsetAhead,
    OffsetTrimmed,
    OutOfRange,
    UnknownTopic,
)
from penstock.lake.cut import NOTHING, Held, Stretch, first_offset, shared
from penstock.log.fingerprint import Verdict, changed, compare, not_there
from penstock.log.folder import file_bytes
from penstock.log.log import Log
from penstock.log.segment import read_head
from penstock.log.segments import Bounds
from penstock.place import Spot
from penstock.spark.source.admission import Loss, Part, Positions
from penstock.spark.source.body_places import places_of
from penstock.spark.source.filters import FilterBounds, NumberSpan
from penstock.spark.source.options import Places, ReadOptions
from penstock.spark.source.plan import SegmentRange, Slice, bundled, divided
from penstock.store import Store, open_store
from penstock.topic.open_topic import OpenTopic

if TYPE_CHECKING:
    from penstock.lake.history import History
    from penstock.lake.layout import LakeFile


#: What to say where a store is an argument, and none is there.
STORE_HINT = "name the folder of a store; penstock.open(…) makes one"
#: What to do about a table, or a query, that is of another history than the store.
_ANOTHER_TABLE = "read without history, or archive into another table"
_NEW_CHECKPOINT = (
    'a new checkpointLocation reads everything again; failOnDataLoss="false" goes on with what comes now'
)


class TopicPast:
    """What the table has that was named by the option `history`; nothing, when none was."""

    def __init__(self, options: ReadOptions, store_id: str, topics: Mapping[str, OpenTopic]) -> None:
        """Looks at the table at once: raises when it is not the topic's archive, or of another history."""
        self.table = options.history
        self._history: History | None = None
        if self.table is not None:
            from penstock.lake.history import History

            (partitions,) = topics.values()
            self._history = History(self.table, store_id, partitions.record.id)
            self._history.look()
            for error in other_history(self._history.all_known, partitions, self.table.uri):
                _refuse_or_warn(error, options, _ANOTHER_TABLE)

    def held(self, partition: int, log_start: int) -> Held:
        """What the table has of a partition whose log begins there by now; looks again if that helps."""
        return NOTHING if self._history is None else self._history.held(partition, log_start)

    def known(self, partition: int) -> Held:
        """Return what the table had of a partition at the last look."""
        return NOTHING if self._history is None else self._history.known(partition)

    def written_since(self, held: Held, moment: int, stop: int) -> int | None:
        """The first offset before `stop` that the table says was written at that time or later."""
        return None if self._history is None else self._history.written_since(held, moment, stop)


logger = logging.getLogger("penstock.spark")


def check_topics(options: ReadOptions) -> None:
    """Raise `NotAStore`, `UnknownTopic` or what is wrong with the table now, not when the query runs."""
    with opened(options) as store:
        TopicPast(options, store.id, chosen_topics(store, options))


def planned_tasks(options: ReadOptions, store: Store | None = None) -> list[tuple[Slice, ...]]:
    """What each task of a batch read reads; raises as `survey` does."""
    least = options.min_partitions
    return bundled(divided(survey(options, store), least, options.cores), least)


def survey(options: ReadOptions, store: Store | None = None) -> list[Slice]:
    """Every partition with what is to be read of it; "latest" is fixed at this moment.

    A partition whose past lies in an archive is two of them: the archive's part, then the log's. `store` is
    the store, if it is open already; it stays so. Raises `OutOfRange` for an offset that retention took or
    that is not written yet.
    """
    with opened(options) if store is None else nullcontext(store) as there:
        topics = chosen_topics(there, options)
        if not topics:
            raise UnknownTopic(str(options.topics), tuple(topic.name for topic in there.topics()))
        for partitions in topics.values():  # as they are now, not as they were when the caller opened them
            partitions.refresh()
        for places in (options.starting, options.ending):
            check_places(places, topics)
        past = TopicPast(options, there.id, topics)
        return [
            whole if options.bounds.is_everything else _narrowed(whole, log, options.bounds)
            for partitions in topics.values()
            for log in _all_parts(partitions, past)
            for whole in _asked_for(log, partitions, options, past)
        ]


def _all_parts(topic: OpenTopic, past: TopicPast) -> list[Log | RemovedPartition]:
    """The partitions to be read, parents first; with an archive also those that are gone."""
    gone = removed_partitions(topic) if past.table is not None else []
    return sorted([*topic.logs(), *gone], key=lambda each: each.partition)


def opened(options: ReadOptions, *, read_only: bool = True) -> Store:
    """The store; only those who keep a consumer's position need to write to it."""
    return opened_store(options.store, "load(…) takes the folder of a store", read_only=read_only)


def opened_store(path: str, hint: str, *, read_only: bool = True) -> Store:
    """The store in a folder; raises `NotAStore` with this hint when there is none."""
    try:
        return open_store(path, read_only=read_only, create=False)
    except NotAStore as error:
        error.hint = hint
        raise


def chosen_topics(store: Store, options: ReadOptions) -> dict[str, OpenTopic]:
    """The topics to read, by name; raises `UnknownTopic` when one that was named is not there."""
    names = options.topics.names
    if options.topics.pattern is not None:
        names = options.topics.among(topic.name for topic in store.topics())
    return {name: store.topic(name).open_topic for name in names}


def check_places(places: Places, topics: Mapping[str, OpenTopic]) -> None:
    """Raise `InvalidOption` for a place in a topic or partition that does not exist."""
    for topic in (*places.topics, *(topic for topic, _ in places.each)):
        if topic not in topics:
            raise UnknownTopic(topic, tuple(topics))
    for topic, number in places.each:
        if number not in topics[topic].numbers():
            raise topics[topic].tree.unknown(topic, number)


class Seen(NamedTuple):
    """A partition's bounds, and all segments within them."""

    bounds: Bounds
    pieces: tuple[SegmentRange, ...]


def segments(log: Log) -> Seen:
    """The partition as it is now."""
    while True:
        bounds = log.bounds()
        bases = [base for base in log.segments.bases() if base <= bounds.segment]
        sizes = [bounds.byte if base == bounds.segment else file_bytes(log.folder, base) for base in bases]
        # A vacuum moves the start before it removes a segment: an unmoved start means none is missing.
        if log.bounds().start == bounds.start:
            stops = [*bases[1:], bounds.end]
            return Seen(bounds, tuple(map(SegmentRange, bases, stops, sizes)))


def count_messages(log: Log, start: int = 0) -> int:
    """The messages from `start` on, as they are now.

    Offsets follow each other but where a transaction left some out: the segment behind such a gap says so,
    and the index of the one before it knows where its messages end.
    """
    bounds, pieces = segments(log)
    first = max(start, bounds.start)
    count = 0
    for at, piece in enumerate(pieces):
        if piece.stop <= first:
            continue
        stop = piece.stop
        if at + 1 < len(pieces):
            behind = read_head(log.folder, pieces[at + 1].base)
            if behind is not None and behind.behind_gap:
                stop = log.segments.sealed(piece.base).index.stop
        count += max(0, min(stop, bounds.end) - max(piece.base, first))
    return count


def planned(
    log: Log | RemovedPartition,
    seen: Seen,
    topic: OpenTopic,
    options: ReadOptions,
    past: TopicPast,
    start: int,
    stop: int,
) -> list[Slice]:
    """A range of a partition as executors are told: what the archive has of it, then what the log has."""
    bounds, pieces = seen
    held = past.held(log.partition, bounds.start) if start < bounds.start else past.known(log.partition)
    shares = shared(start, stop, held, bounds.start)
    lost = [Loss(topic.name, log.partition, *each) for each in shares.lost]
    refuse_losses(lost, options)
    folder = log.path if isinstance(log, RemovedPartition) else log.folder.path
    live = Slice(
        options.store, folder, topic.name, topic.record.id, log.partition,
        *shares.live, pieces, not options.fail_on_data_loss, past.table, held.stretches(*shares.live),
        places_of(topic),
    )  # fmt: skip
    start, stop = shares.archived
    archived = live._replace(start=start, stop=stop, pieces=held.stretches(start, stop), spare=())
    return [each for each in (archived, live) if each.start < each.stop]


class RemovedPartition(NamedTuple):
    """A partition that was split and is gone: only an archive may have its messages."""

    partition: int
    end: int
    #: Where its folder was.
    path: str

    @property
    def seen(self) -> Seen:
        """The partition as it is now: empty."""
        return Seen(Bounds(self.end, self.end, 0, 0, False), ())

    def offset_at(self, moment: int) -> int:
        """Where messages that were written at a time or later begin."""
        return self.end


def removed_partitions(topic: OpenTopic) -> list[RemovedPartition]:
    """The partitions of a topic that are gone, by number."""
    folder = os.path.join(topic.folder, "parts")
    gone = sorted(topic.tree.removed().items())
    return [RemovedPartition(number, end, os.path.join(folder, f"{number:06d}")) for number, end in gone]


def place(
    log: Log | RemovedPartition, bounds: Bounds, spot: Spot, topic: str, options: ReadOptions, past: TopicPast
) -> int:
    """The offset that a place means; raises `OutOfRange` for one that is gone or not there yet."""
    held = past.held(log.partition, bounds.start)
    first = first_offset(held, bounds.start)
    if spot.kind == "earliest":
        return first
    if spot.kind == "latest":
        return bounds.end
    if spot.kind == "time":
        found = past.written_since(held, spot.value, bounds.start)
        return min(max(log.offset_at(spot.value), bounds.start), bounds.end) if found is None else found
    if spot.value < first:
        refuse_losses([Loss(topic, log.partition, spot.value, first)], options)
        return first
    if spot.value > bounds.end:
        error: OutOfRange = OffsetAhead(
            f"offset {spot.value} of {topic!r} partition {log.partition} is beyond the end ({bounds.end})",
            partition=log.partition, offset=spot.value, end=bounds.end,
        )  # fmt: skip
        error.hint = '"latest" is what is there'
        raise error
    return spot.value


def refuse_losses(losses: Sequence[Loss], options: ReadOptions) -> None:
    """Raise `OffsetTrimmed` for what retention took before it was read, or say that it is skipped."""
    archive = "" if options.history is None else f", and the table {options.history.uri} does not have it"
    for loss in losses:
        if not options.fail_on_data_loss:
            logger.warning("passed over what retention removed%s: %s", archive, loss)
            continue
        error = OffsetTrimmed(
            f"retention removed what was still to be read{archive}: {loss}; "
            f"the first one left is {loss.stop}",
            partition=loss.partition, offset=loss.first, first=loss.stop,
        )  # fmt: skip
        error.hint = 'failOnDataLoss="false" goes on with what is left; an important consumer is waited for'
        raise error


def other_history(held: Mapping[int, Held], topic: OpenTopic, table: str) -> Iterator[HistoryChanged]:
    """What a table holds of a topic, by partition, that the topic does not have, or has otherwise."""
    whose = f"the table {table}"
    for number, each in sorted(held.items()):
        if not topic.tree.has(number):
            yield not_there(topic.name, number, each.next, whose)
    for log in topic.logs():
        known = held.get(log.partition, NOTHING)
        verdict = compare(log.segments, known.next, known.fingerprint)
        if verdict != "same":
            yield changed(log.segments, known.next, verdict, whose)


def refuse_other_history(
    found: Mapping[Part, tuple[Log, Verdict]], positions: Positions, options: ReadOptions
) -> None:
    """Raise `HistoryChanged` for a position that is not of the store's history, or warn that it is used."""
    for part, (log, verdict) in sorted(found.items(), key=lambda each: each[0]):
        error = changed(log.segments, positions[part], verdict, "the query")
        _refuse_or_warn(error, options, _NEW_CHECKPOINT)


def refuse_unknown_partitions(
    positions: Positions, topics: Mapping[str, OpenTopic], options: ReadOptions
) -> None:
    """Raise `HistoryChanged` for a position in a partition that its topic never had, or warn of it."""
    for (topic, number), at in sorted(positions.items()):
        if at and topic in topics and not topics[topic].tree.has(number):
            _refuse_or_warn(not_there(topic, number, at, "the query"), options, _NEW_CHECKPOINT)


def _refuse_or_warn(error: HistoryChanged, options: ReadOptions, hint: str) -> None:
    """Raise the error with this hint, or say that it is gone on with, if the options allow losses."""
    if options.fail_on_data_loss:
        error.hint = hint
        raise error
    logger.warning("going on all the same: %s", error.args[0])


def _asked_for(
    log: Log | RemovedPartition, topic: OpenTopic, options: ReadOptions, past: TopicPast
) -> list[Slice]:
    """What the options ask for of a partition."""
    seen = log.seen if isinstance(log, RemovedPartition) else segments(log)
    start, stop = (
        place(log, seen.bounds, places.of(topic.name, log.partition), topic.name, options, past)
        for places in (options.starting, options.ending)
    )
    if start > stop:
        raise InvalidOption(
            f"partition {log.partition} of {topic.name!r} would begin at {start} and end at {stop}",
            hint="the start must not lie behind the end",
        )
    return planned(log, seen, topic, options, past, start, stop)


def _narrowed(whole: Slice, log: Log | RemovedPartition, wanted: FilterBounds) -> Slice:
    """The part of a partition in which rows may pass the filters; they are checked again by Spark."""
    if not wanted.has(whole.topic, whole.partition):
        return whole._replace(stop=whole.start)
    start, stop = max(whole.start, wanted.offsets.first), min(whole.stop, wanted.offsets.stop)
    written = wanted.written
    archived = [piece for piece in whole.pieces if isinstance(piece, Stretch)]
    if archived:
        inside = tuple(piece for piece in archived if may_hold(piece.file, written))
        return whole._replace(start=start, stop=max(start, stop), pieces=inside)
    if written.is_bounded_below and start < stop:
        start = max(start, log.offset_at(written.first))
    if written.is_bounded_above and start < stop:
        stop = min(stop, _written_before(log, whole.pieces, written.stop))
    return whole._replace(start=min(start, whole.stop), stop=max(stop, min(start, whole.stop)))


def may_hold(file: LakeFile, written: NumberSpan) -> bool:
    """Whether messages of a file may have been written within that time."""
    first, last = file.written  # in microseconds, floored
    return first * 1000 < written.stop and (last + 1) * 1000 > written.first


def _written_before(
    log: Log | RemovedPartition, pieces: Sequence[SegmentRange | Stretch], moment: int
) -> int:
    """An offset from which on everything was written at `moment` or later.

    Within a segment times never decrease; between two they may, when the clock was set back. So this
    goes from the end over whole segments, as long as they began late enough.
    """
    stop = pieces[-1].stop if pieces else 0
    if isinstance(log, RemovedPartition):
        return stop
    for piece in reversed(pieces):
        try:
            head = read_head(log.folder, piece.base)
        except FileNotFoundError:  # retention was quicker
            break
        if head is None or head.created < moment:
            break
        stop = piece.base
    return stop
