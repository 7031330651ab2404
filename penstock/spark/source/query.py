"""The driver's side of a stream, without Spark: what is new, what to read, what is done.

    initial ─► latest ─► planned ─► (tasks run) ─► latest ─► …

Spark asks for `latest` from a position only when everything before that position has been processed, and
so the consumer's position is kept there, too: that is how it is right also after the last batch of
`availableNow`, for which Spark never calls `commit`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from penstock.errors import AlreadyExists, PartitionLost, TopicReplaced
from penstock.lake.cut import Held, Stretch
from penstock.locks import Claimed, claim
from penstock.log.log import Log
from penstock.log.segments import Bounds
from penstock.spark.source import admission
from penstock.spark.source.admission import Extent, Part, Positions, Reading
from penstock.spark.source.checkpoint import Fingerprints, decode, encode, kept_fingerprints
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.plan import SegmentRange, Slice, clipped, divided, range_bytes, reach
from penstock.spark.source.survey import (
    RemovedPartition,
    Seen,
    TopicPast,
    check_places,
    chosen_topics,
    opened,
    place,
    planned,
    refuse_losses,
    refuse_other_history,
    refuse_unknown_partitions,
    removed_partitions,
    segments,
)
from penstock.state.consumers import ConsumerOptions
from penstock.store import Store
from penstock.topic.open_topic import OpenTopic

#: A query that was stopped a moment ago needs a moment to let go.
_WAIT_S = 5.0


class ConsumerProgress:
    """The consumer of one running query."""

    def __init__(self, consumer: str, *, important: bool | None, wait_s: float = _WAIT_S) -> None:
        self._consumer = consumer
        self._important = important
        self._wait_s = wait_s
        #: Lock files by the topic's id; held as long as this process has them open.
        self._held: dict[int, int] = {}
        self._epochs: dict[tuple[int, int], int] = {}
        self._stored: dict[tuple[int, int], int] = {}

    def claim(self, topics: Mapping[str, OpenTopic]) -> None:
        """Have the consumer for this query alone; raises `PartitionLost` when another one has it."""
        for partitions in topics.values():
            if partitions.record.id not in self._held:
                self._held[partitions.record.id] = self._lock(partitions)

    def keep(self, positions: Positions, topics: Mapping[str, OpenTopic]) -> None:
        """Note that all before these positions is done; raises `PartitionLost` when someone moved them."""
        self.claim(topics)
        for topic, partitions in topics.items():
            numbers = {number: at for (name, number), at in positions.items() if name == topic}
            topic_id = partitions.record.id
            known = {number for other, number in self._epochs if other == topic_id}
            if not known and numbers:
                self._declare(partitions, numbers)
            else:
                self._store(partitions, numbers)

    def close(self) -> None:
        """Let another query have the consumer; its positions stay."""
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()

    def _declare(self, topic: OpenTopic, numbers: dict[int, int]) -> None:
        """Make the consumer, or bring the one there is to where the query begins."""
        consumers, topic_id = topic.consumers, topic.record.id
        now = topic.clock.now_ns()
        try:
            options = ConsumerOptions(important=bool(self._important))
            consumers.add(self._consumer, topic_id, options, numbers, now)
        except AlreadyExists:
            there = next(r for r in consumers.of_topic(topic_id) if r.name == self._consumer)
            if self._important not in (None, there.options.important):
                consumers.alter(
                    self._consumer, topic_id, replace(there.options, important=bool(self._important))
                )
            for number, at in numbers.items():
                consumers.begin(self._consumer, topic_id, number, at, now)
            consumers.seek(self._consumer, topic_id, numbers, now)
        self._learn(topic, numbers)

    def _store(self, topic: OpenTopic, numbers: dict[int, int]) -> None:
        topic_id, now = topic.record.id, topic.clock.now_ns()
        fresh = {number: at for number, at in numbers.items() if (topic_id, number) not in self._epochs}
        for number, at in fresh.items():
            topic.consumers.begin(self._consumer, topic_id, number, at, now)
        if fresh:
            self._learn(topic, fresh)
        for number, at in numbers.items():
            if at > self._stored.get((topic_id, number), -1):
                epoch = self._epochs[topic_id, number]
                topic.consumers.commit(self._consumer, topic_id, number, at, epoch, now)
                self._stored[topic_id, number] = at

    def _learn(self, topic: OpenTopic, numbers: dict[int, int]) -> None:
        """Take over the epochs of these partitions: whoever counts them up later has taken them from us."""
        topic_id = topic.record.id
        for stored in topic.consumers.positions(topic_id, self._consumer):
            if stored.partition in numbers:
                self._epochs[topic_id, stored.partition] = stored.epoch
                self._stored[topic_id, stored.partition] = stored.position

    def _lock(self, topic: OpenTopic) -> int:
        try:
            return claim(os.path.join(topic.folder, "queries", self._consumer), self._wait_s)
        except Claimed as taken:
            raise self._taken(topic.name, taken) from None

    def _taken(self, topic: str, taken: Claimed) -> PartitionLost:
        return PartitionLost(
            f"consumer {self._consumer!r} of {topic!r} is used by another running query{taken}",
            hint="stop it, or give this one a consumer of its own",
        )


_HELP_S = 1.0


class StreamQuery:
    """One running stream; its store stays open, since it is asked many times a second."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._store: Store | None = None
        self._store_id = ""
        self._topics: dict[str, OpenTopic] = {}
        self._past: TopicPast | None = None
        self._gates: dict[str, tuple[int, dict[int, dict[int, int]]]] = {}
        self._target: dict[Part, int] | None = None
        self._fingerprints = Fingerprints()
        self._helped_at = time.monotonic()
        self._progress = (
            ConsumerProgress(options.consumer, important=options.important)
            if options.consumer is not None
            else None
        )

    def initial(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins; "latest" is fixed here, once."""
        with self._looking():
            check_places(self._options.starting, self._topics)
            begin = {
                (topic, log.partition): place(
                    log, bounds, self._options.starting.of(topic, log.partition), topic,
                    self._options, self._looked_back(),
                )
                for topic, partitions in self._topics.items()
                for log, bounds in _bounds(partitions)
            }  # fmt: skip
            return self._encode(begin)

    def latest(self, start: Any, max_rows: int | None, max_bytes: int | None) -> dict[str, Any]:
        """How far the batch that begins at `start` may go; `start` itself when there is nothing new."""
        with self._looking():
            kept = self._decode(start)
            begin = self._of_this_history(start, kept)
            self._keep(begin)
            extents = self._extents()
            archived = self._archived(begin, extents)
            refuse_losses(admission.losses(begin, extents, archived), self._options)
            extents = admission.joined(extents, archived)
            if self._target is not None:
                extents = admission.capped(extents, self._target)
            readings = admission.available(begin, extents, self._all_gates())
            turn = sum(begin.values())
            readings = admission.limited_rows(readings, max_rows, turn)
            if max_bytes is not None:
                readings = self._within_bytes(readings, max_bytes, turn)
            end = admission.moved(begin, readings)
            return self._encode(end) if end != kept else dict(start)

    def newest(self) -> dict[str, Any]:
        """The end of everything, for Spark's progress report."""
        with self._looking():
            ends = {part: extent.end for part, extent in self._extents().items()}
            return encode(ends, self._store_id, self._topic_ids())

    def freeze(self) -> None:
        """Behave as if nothing came any more from now on (`availableNow`)."""
        with self._looking():
            self._target = {part: extent.end for part, extent in self._extents().items()}

    def planned(self, start: Any, end: Any) -> list[Slice]:
        """The tasks of a batch. Also for one that is run again: then retention may have been at it."""
        with self._looking():
            begin, stop = (self._of_this_history(each, self._decode(each)) for each in (start, end))
            readings = admission.between(begin, stop)
            wholes = [whole for reading in readings for whole in self._wholes(reading)]
        return divided(wholes, self._options.min_partitions)

    def done(self, end: Any) -> None:
        """Note that everything before `end` was processed."""
        if self._progress is not None:
            with self._looking():
                self._keep(self._decode(end))

    def close(self) -> None:
        """Release the consumer and close the store."""
        if self._progress is not None:
            self._progress.close()
        if self._store is not None:
            self._store.close()
            self._store = None

    # Inside.

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """See what is there, and do something with it; a topic that is dropped meanwhile is told as such."""
        self._look()
        try:
            yield
        except (OSError, TopicReplaced):
            self._refresh()
            raise

    def _look(self) -> None:
        """Open the store at first; see which topics and partitions there are now."""
        if self._store is None:
            self._store = opened(self._options, read_only=self._progress is None)
            self._store_id = self._store.id
        if not self._topics or self._options.topics.pattern is not None:
            self._topics |= chosen_topics(self._store, self._options)
        self._refresh()
        if self._progress is not None:
            self._progress.claim(self._topics)
            self._help()

    def _refresh(self) -> None:
        for name, partitions in self._topics.items():
            try:
                partitions.refresh()
            except TopicReplaced:
                raise TopicReplaced(
                    f"topic {name!r} was dropped while the query was reading it",
                    hint="give the query a new checkpointLocation to read the one created since",
                ) from None

    def _help(self) -> None:
        """Once a second: let be seen what a writer that died had appended, as any reader does."""
        now = time.monotonic()
        if now - self._helped_at > _HELP_S:
            self._helped_at = now
            for partitions in self._topics.values():
                for log in partitions.logs():
                    log.help()

    def _extents(self) -> dict[Part, Extent]:
        return {
            (topic, log.partition): Extent(*bounds[:2])
            for topic, partitions in self._topics.items()
            for log, bounds in _bounds(partitions)
        }

    def _all_gates(self) -> dict[Part, Mapping[int, int]]:
        """Gates of all partitions; read again only when a topic's partitions changed."""
        found: dict[Part, Mapping[int, int]] = {}
        for topic, partitions in self._topics.items():
            tree = partitions.record.tree
            if topic not in self._gates or self._gates[topic][0] != tree:
                self._gates[topic] = tree, partitions.topics.gates(partitions.record.id)
            found.update({(topic, number): each for number, each in self._gates[topic][1].items()})
        return found

    def _within_bytes(self, readings: list[Reading], limit: int, turn: int) -> list[Reading]:
        pieces = {each.part: self._pieces(each) for each in readings}
        return admission.limited_bytes(
            readings, limit, turn,
            lambda each: range_bytes(pieces[each.part], each.start, each.stop),
            lambda each, budget: reach(pieces[each.part], each.start, each.stop, budget),
        )  # fmt: skip

    def _pieces(self, reading: Reading) -> tuple[SegmentRange | Stretch, ...]:
        """What a range lies in, to be weighed."""
        topic, number = reading.part
        _, (bounds, pieces) = self._seen(topic, number)
        archived = self._looked_back().known(number).stretches(reading.start, bounds.start)
        return (*archived, *clipped(pieces, bounds.start))

    def _wholes(self, reading: Reading) -> list[Slice]:
        topic, number = reading.part
        partitions = self._topics[topic]
        return planned(
            *self._seen(topic, number), partitions, self._options, self._looked_back(),
            reading.start, reading.stop,
        )  # fmt: skip

    def _seen(self, topic: str, number: int) -> tuple[Log | RemovedPartition, Seen]:
        """A partition as it is now, also one that is gone."""
        partitions = self._topics[topic]
        for gone in removed_partitions(partitions):
            if gone.partition == number:
                return gone, gone.seen
        log = partitions.log(number)
        return log, segments(log)

    def _looked_back(self) -> TopicPast:
        """What the archive has, if there is one; it is checked when it is first asked for."""
        if self._past is None:
            self._past = TopicPast(self._options, self._store_id, self._topics)
        return self._past

    def _archived(self, begin: Positions, extents: Mapping[Part, Extent]) -> dict[Part, Held]:
        """What the archive has of the partitions whose logs do not reach back to where the query stands."""
        past = self._looked_back()
        return {
            part: past.held(part[1], extent.start)
            for part, extent in extents.items()
            if begin.get(part, 0) < extent.start
        }

    def _keep(self, positions: Positions) -> None:
        if self._progress is None:
            return
        try:
            self._progress.keep(positions, self._topics)
        except PartitionLost as error:
            error.hint = "the consumer is this query's alone: read by another name elsewhere, then restart"
            raise

    def _of_this_history(self, kept: Any, positions: dict[Part, int]) -> dict[Part, int]:
        """The positions, if the store is still the one that they were taken from; else it is a loss."""
        refuse_unknown_partitions(positions, self._topics, self._options)
        found = self._fingerprints.unlike(positions, kept_fingerprints(kept), self._logs())
        refuse_other_history(found, positions, self._options)
        for part, (log, _) in found.items():
            self._fingerprints.accept(part, min(positions[part], log.bounds().end), log)
        ends = {part: log.bounds().end for part, (log, verdict) in found.items() if verdict == "ahead"}
        return positions | ends

    def _logs(self) -> dict[Part, Log]:
        return {
            (topic, log.partition): log
            for topic, partitions in self._topics.items()
            for log in partitions.logs()
        }

    def _topic_ids(self) -> dict[str, int]:
        return {name: partitions.record.id for name, partitions in self._topics.items()}

    def _encode(self, positions: Positions) -> dict[str, Any]:
        known = self._fingerprints.of(positions, self._logs())
        return encode(positions, self._store_id, self._topic_ids(), known)

    def _decode(self, kept: Any) -> dict[Part, int]:
        return decode(kept, self._store_id, self._topic_ids())


def _bounds(topic: OpenTopic) -> list[tuple[Log | RemovedPartition, Bounds]]:
    """The partitions of a topic with what can be read of them; of those that are gone nothing."""
    logs: list[tuple[Log | RemovedPartition, Bounds]] = [(log, log.bounds()) for log in topic.logs()]
    return logs + [(gone, gone.seen.bounds) for gone in removed_partitions(topic)]
