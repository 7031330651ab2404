"""A topic copied into another store: the same frames at the same offsets, its consumers if asked.

Bodies and checksums of frames are taken as they are; what belongs to the place they had (written times, the
names of who wrote them) is new, as for a replay. Up to which seqno each producer was stored comes along, so
that it can go on with the copy; and so do the gates of partitions that were added, so that readers keep the
order of keys. Offsets stay, so where a partition of the copy ends says how far it came: started again after a
crash it goes on there. Values that lie outside the source's log are stored anew, as the copy keeps its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.codecs import REFERENCE
from penstock.errors import AlreadyExists, InvalidOption, OffsetTrimmed
from penstock.exchange.arrival import PartitionArrival
from penstock.exchange.origin import Origin, mark_whole, read_origin, sole_importer, topic_to_fill
from penstock.log.copy import FrameRun
from penstock.log.frame_encode import EncodedFrame
from penstock.log.producer_table import learn
from penstock.log.producers import Producers
from penstock.log.rows import FrameRows
from penstock.message import Rows
from penstock.options import TopicOptions
from penstock.parse import MIB, topic_name
from penstock.state.topics import ForgottenRow
from penstock.store.replay import run_of
from penstock.store.store import Store
from penstock.store.topic import Topic
from penstock.topic.copy_bodies import BodyCopy
from penstock.topic.identity import identity_of, keep_identity
from penstock.topic.open_topic import OpenTopic

KIND = "topic"
_SECONDS = "_s"
_STEP_MESSAGES, _STEP_BYTES = 1 << 16, 8 * MIB
#: Called with how many messages have been copied, and about how many there are.
Progress = Callable[[int, int], None]


class TopicCopied(NamedTuple):
    """What a copy brought over."""

    topic: Topic
    messages: int
    #: Messages that an earlier run, cut short, had brought over.
    before: int
    partitions: int
    consumers: tuple[str, ...]


def copy_topic(
    source: Topic[Any], store: Store, name: str, *, consumers: bool = False,
    progress: Progress = lambda done, total: None,
) -> TopicCopied:  # fmt: skip
    """Copy a topic into a new one of another store, or of its own under another name.

    With `consumers`, they stand in the copy where they stand in the source. Raises `AlreadyExists` for a
    topic that is there, unless it is a copy of this source that was cut short: that goes on.
    """
    topic_name(name)
    raw: Topic = Topic(source.open_topic)
    raw.open_topic.refresh()
    address = os.path.join(os.path.dirname(os.path.dirname(raw.open_topic.folder)), raw.name)
    origin = Origin(KIND, address, facts={"id": raw.id})
    _refuse_itself(store, name, raw)
    made = topic_to_fill(store, name, origin, _spoken(raw.options))
    _refuse_other_source(made, origin)
    with sole_importer(made.open_topic):
        if raw.options.used_as is not None:
            made.open_topic.growth.keep_one(raw.options.used_as)
        _copy_layout(raw.open_topic, made.open_topic)
        run = _Run(raw, made, progress)
        run.bring_over()
        copied = _copy_consumers(raw, made) if consumers else ()
        mark_whole(made.open_topic, origin)
    return TopicCopied(made, run.done, run.before, len(made.open_topic.numbers()), copied)


class _Run:
    """One run of a copy."""

    def __init__(self, source: Topic, sink: Topic, progress: Progress) -> None:
        self._source, self._sink, self._progress = source, sink, progress
        self._carrier = BodyCopy(sink.open_topic)
        # Before the ends: what a producer stored meanwhile must not be known where it does not come along.
        self._facts = {log.partition: Producers(log.folder).load() for log in source.open_topic.logs()}
        self._ends = {log.partition: log.bounds().end for log in source.open_topic.logs()}
        self._total = sum(log.bounds().end - log.bounds().start for log in source.open_topic.logs())
        self.done = self.before = 0

    def bring_over(self) -> None:
        for number, end in self._ends.items():
            start = self._source.open_topic.log(number).bounds().start
            arrival = PartitionArrival(self._sink.open_topic, number)
            self.before += max(arrival.next - start, 0)
            arrival.begin_at(start)
            self._bring_over_partition(arrival, number, end)
            arrival.know_producers(self._facts[number])
            arrival.finish()

    def _bring_over_partition(self, arrival: PartitionArrival, number: int, end: int) -> None:
        cursor = self._source.open_topic.log(number).cursor(arrival.next, far=True)
        while arrival.next < end:
            try:
                found = cursor.read(_STEP_MESSAGES, _STEP_BYTES, end)
            except OffsetTrimmed as trimmed:  # the source's retention was faster: a gap there, and here
                arrival.skip_to(min(trimmed.first, end))
                cursor = self._source.open_topic.log(number).cursor(arrival.next, far=True)
                continue
            if not found:
                arrival.skip_to(end)
            for rows in found:
                arrival.skip_to(rows.stop - len(rows))
                arrival.append(self._frames(rows))
                if isinstance(rows, FrameRows):
                    learn(self._facts[number], rows.frame)
                self.done += len(rows)
            self._progress(self.before + self.done, self._total)

    def _frames(self, rows: Rows) -> list[EncodedFrame]:
        run = run_of(rows)
        if isinstance(run, FrameRun) and REFERENCE in run.codecs():
            return list(self._carrier.drafts(run, None))
        return run.drafts()


def _refuse_itself(store: Store, name: str, source: Topic) -> None:
    if (store.id, name) == (source.open_topic.topics.store_id, source.name):
        raise InvalidOption(
            f"{name!r} would be copied into itself", hint="name another topic, or another store"
        )


def _refuse_other_source(made: Topic, origin: Origin) -> None:
    """Refuse to go on with a copy of a topic that lay in the same place, and was dropped since."""
    begun = read_origin(made.open_topic)
    if begun is not None and begun.facts != origin.facts:
        raise AlreadyExists(
            f"topic {made.name!r} is there already: a copy of a topic that was dropped since",
            hint="drop it, and copy again",
        )


def _copy_layout(source: OpenTopic, sink: OpenTopic) -> None:
    """Tell the copy which of its partitions were added later, and what must be read before them."""
    if sink.tree != source.tree:
        there, own = identity_of(source.record, source.topics), sink.record
        options, number = own.options.as_dict(), own.tree + 1
        sink.topics.take_back(
            ForgottenRow(own.id, own.name, options, number, own.created, there.gates, there.rows)
        )
        sink.refresh()
    keep_identity(sink.files, sink.folder, sink.record, sink.topics)
    for log in sink.logs():  # also after a crash in between
        sink.catch_up(log)


def _spoken(options: TopicOptions) -> dict[str, Any]:
    """Options as `create_topic` takes them: what is kept in seconds has a name without its unit there."""
    spoken: dict[str, Any] = {}
    for name in TopicOptions.__dataclass_fields__:
        value = getattr(options, name)
        if name.endswith(_SECONDS):
            spoken[name.removesuffix(_SECONDS)] = None if value is None else timedelta(seconds=value)
        else:
            spoken[name] = value
    del spoken["used_as"]  # nobody may choose it: who uses a topic says so
    return {**spoken, "key_retention": dict(options.key_retention)}


def _copy_consumers(source: Topic, sink: Topic) -> tuple[str, ...]:
    """Consumers with what they promise, where they stand; who reads for them stays behind."""
    known = {each.consumer for each in sink.consumers()}
    ends = {log.partition: log.bounds().end for log in sink.open_topic.logs()}
    names = []
    for each in source.consumers():
        names.append(each.consumer)
        if each.consumer not in known:
            places = {
                number: min(at, ends[number]) for number, at in each.positions.items() if number in ends
            }
            sink.add_consumer(
                each.consumer, important=each.important, availability_period=each.availability_period_s,
                start=places,
            )  # fmt: skip
            sink.open_topic.consumers.alter(
                each.consumer, sink.id, source.open_topic.consumers.options(each.consumer, source.id)
            )
            _copy_gaps(source.open_topic, sink.open_topic, each.consumer)
    return tuple(names)


def _copy_gaps(source: OpenTopic, sink: OpenTopic, consumer: str) -> None:
    """What a consumer had not read of partitions that are gone is a gap to it in the copy, too."""
    gone = sink.tree.removed()
    for stored in source.consumers.positions(source.record.id, consumer):
        if stored.partition in gone:
            place = stored.partition, stored.position
            sink.consumers.begin(consumer, sink.record.id, *place, sink.clock.now_ns())
