"""The live reader: all partitions of its topics, in turn, waiting for what is to come."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Literal

from penstock.consume.commits import Commits
from penstock.consume.source import Gap, Source
from penstock.errors import Closed, InvalidOption, UnknownConsumer, UsageError, WrongType
from penstock.locks import FORKED, forget_in_child
from penstock.log.rows import MessageRows
from penstock.message import Batch, Message
from penstock.options import MIB, Place, Size, size, whole
from penstock.state.consumers import ConsumerOptions
from penstock.topic.partitions import Partitions
from penstock.wake import Bell, Watch, watch

logger = logging.getLogger("penstock.reader")

_LOOK_FOR_PARTITIONS_S = 1.0


class Reader:
    """Reads topics as a consumer, or without one; not to be shared between threads.

    Within a partition messages come in order; between partitions in turn. Without a consumer
    nothing is saved. Use it with `with`.
    """

    def __init__(
        self, topics: Sequence[Partitions], *, consumer: str | None, start: Place,
        partitions: Sequence[int] | None, follow: bool, on_gap: Literal["raise", "skip"], create: bool,
    ) -> None:  # fmt: skip
        self._topics = topics
        self._clock = topics[0].clock
        self.consumer = consumer
        self._start = start
        self._chosen = None if partitions is None else set(partitions)
        self._follow = follow
        self._skip_gaps = on_gap == "skip"
        self._closed = ""
        self._bell = Bell()
        self._watches: list[Watch] = []
        self._sources: dict[tuple[str, int], Source] = {}
        self._order: list[Source] = []
        self._turn = 0
        self._ready: Iterator[Message] = iter(())
        self._looked_at = time.monotonic()
        #: Offsets that were passed over with on_gap="skip", oldest first.
        self.gaps: list[Gap] = []
        for topic in topics:
            if consumer is not None:
                self._declare(topic, consumer, create)
            self._open_sources(topic, at_begin=True)
        forget_in_child(self)

    # Receiving.

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when none came within `timeout` seconds (for ever by default).

        With `follow=False` also None at the end.
        """
        message = next(self._ready, None)
        if message is None:
            batch = self.receive_batch(timeout=timeout)
            self._ready = iter(batch)
            message = next(self._ready, None)
        return message

    def receive_batch(
        self, max_messages: int = 1000, max_bytes: Size = 8 * MIB, timeout: float | None = None
    ) -> Batch:
        """What comes next from one partition, one message at least; empty after `timeout` seconds.

        With `follow=False` also empty at the end.
        """
        whole("max_messages", max_messages, 1, 2**31)
        limit = size("max_bytes", max_bytes)
        self._require_open()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            batch = self.poll(max_messages, limit)
            if batch is not None:
                return batch
            pause = self._pause(deadline)
            if pause is None:
                return Batch(self._topics[0].name, ())
            self._bell.wait(pause)

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        message = next(self._ready, None)
        while message is None:
            self._ready = iter(self.receive_batch())
            message = next(self._ready, None)
            if message is None and not self._follow:
                raise StopIteration
        return message

    # Committing and moving.

    def commit(self, done: Message | Batch) -> None:
        """Messages are done: the consumer will not get them again.

        In any order; the stored position is the first one that is not done.
        """
        self._require_open()
        if self.consumer is None:
            raise UsageError(
                "a reader without a consumer has nothing to commit to", hint="open it with consumer=…"
            )
        if isinstance(done, Message):
            self._commit_range(done.topic, done.partition, done.offset, done.offset + 1)
        elif isinstance(done, Batch):
            for rows in done.rows:
                self._commit_range(done.topic, rows.partition, rows.first, rows.stop)
        else:
            raise WrongType(f"commit takes a Message or a Batch, not {type(done).__name__}")

    def seek(self, place: Place) -> None:
        """Go on from `place` in every partition; with a consumer the place is stored at once."""
        self._require_open()
        now = self._clock.now_ns()
        begins = [source.topic.begin(source.partition, place, now) for source in self._order]
        self._ready = iter(())
        for source, begin in zip(self._order, begins, strict=True):
            source.move(begin)
        if self.consumer is not None:
            for topic in self._topics:
                places = {s.partition: s.commits.position for s in self._order if s.topic is topic}
                topic.consumers.seek(self.consumer, topic.record.id, places, now)
                self._read_epochs(topic)

    @property
    def assigned(self) -> list[tuple[str, int]]:
        """(topic, partition) of everything this reader reads now."""
        return sorted(self._sources)

    def lag(self) -> int:
        """How many messages are stored that this reader has not delivered."""
        self._require_open()
        return sum(max(0, source.log.bounds().end - source.cursor.offset) for source in self._order)

    def close(self) -> None:
        self._closed = self._closed or "the reader is closed"
        self._ready = iter(())
        for each in self._watches:
            each.close()
        self._watches.clear()
        self._bell.ring()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def after_fork_in_child(self) -> None:
        self._closed = FORKED
        self._ready = iter(())  # fetched for the parent

    @property
    def bell(self) -> Bell:
        """Rung when something was written; the async twin hears it too."""
        return self._bell

    def poll(self, max_messages: int, max_bytes: int) -> Batch | None:
        """What is there now, or None; never waits."""
        self._require_open()
        left = list(self._ready)
        if not left:
            return self._poll(max_messages, max_bytes)
        batch, self._ready = cut(left, max_messages, max_bytes)
        return batch

    # Inside.

    def _poll(self, max_messages: int, max_bytes: int) -> Batch | None:
        gaps = len(self.gaps)
        for _ in range(len(self._order)):
            source = self._order[self._turn % len(self._order)]
            self._turn += 1
            if not source.is_open(self._sources):
                continue
            rows = source.read(max_messages, max_bytes, self._skip_gaps, self.gaps)
            if rows:
                return Batch(source.topic.name, rows)
        if len(self.gaps) > gaps or self._look_for_partitions():  # a gap passed over may open a partition
            return self._poll(max_messages, max_bytes)
        return None

    def _pause(self, deadline: float | None) -> float | None:
        """How long to wait for a hint; None when there is nothing to wait for."""
        self._require_open()
        if not self._follow:
            return None
        pause = min((each.pause_s for each in self._watches), default=_LOOK_FOR_PARTITIONS_S)
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            pause = min(pause, left)
        return pause

    def _commit_range(self, topic: str, partition: int, first: int, stop: int) -> None:
        source = self._sources.get((topic, partition))
        if source is None:
            raise InvalidOption(f"{topic!r} partition {partition} is not read by this reader")
        try:
            source.commits.commit(first, stop)
        except ValueError as error:
            raise InvalidOption(f"{topic!r} partition {partition}: {error}") from None
        position = source.commits.position
        if position > source.stored:  # also when storing it failed the last time
            assert self.consumer is not None
            source.topic.consumers.commit(
                self.consumer, source.topic.record.id, partition, position, source.epoch, self._clock.now_ns()
            )
            source.stored = position

    def _declare(self, topic: Partitions, consumer: str, create: bool) -> None:
        """Make the consumer at first use, with positions for the partitions there are now."""
        topic_id = topic.record.id
        if topic.consumers.exists(consumer, topic_id):
            return
        if not create:
            raise UnknownConsumer(f"no consumer {consumer!r} of {topic.name!r}", hint="create=True makes it")
        now = self._clock.now_ns()
        places = topic.begin_all(self._start, now)
        try:
            topic.consumers.add(consumer, topic_id, ConsumerOptions(), places, now)
        except UsageError:
            logger.debug("consumer %s was made by another process at the same moment", consumer)

    def _open_sources(self, topic: Partitions, *, at_begin: bool) -> bool:
        """Open partitions not open yet; those that appeared later begin at their beginning."""
        fresh = [
            number
            for number in range(len(topic))
            if (topic.name, number) not in self._sources and (self._chosen is None or number in self._chosen)
        ]
        if at_begin and self._chosen is not None and len(fresh) < len(self._chosen):
            raise InvalidOption(f"topic {topic.name!r} has only partitions 0 to {len(topic) - 1}")
        gates = topic.topics.gates(topic.record.id) if fresh and self.consumer is not None else {}
        for number in fresh:
            source = Source(topic, number, Commits(0), gates.get(number, {}))
            source.move(self._first_place(topic, number, at_begin))
            self._sources[topic.name, number] = source
            self._order.append(source)
            self._watches.append(watch(source.log.folder.name("tail"), self._bell.ring))
        if fresh and self.consumer is not None:
            self._read_epochs(topic)
        return bool(fresh)

    def _first_place(self, topic: Partitions, number: int, at_begin: bool) -> int:
        now = self._clock.now_ns()
        if self.consumer is None:
            return topic.begin(number, self._start if at_begin else "earliest", now)
        for stored in topic.consumers.positions(topic.record.id, self.consumer):
            if stored.partition == number:
                return stored.position
        first = topic.log(number).bounds().start
        topic.consumers.begin(self.consumer, topic.record.id, number, first, now)
        return first

    def _read_epochs(self, topic: Partitions) -> None:
        assert self.consumer is not None
        for stored in topic.consumers.positions(topic.record.id, self.consumer):
            source = self._sources.get((topic.name, stored.partition))
            if source is not None:
                source.epoch = stored.epoch

    def _look_for_partitions(self) -> bool:
        """Once a second: did someone add partitions, or drop the topic?"""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_FOR_PARTITIONS_S and self._follow:
            return False
        self._looked_at = now
        found = False
        for source in self._order:
            source.log.help_sync()
        for topic in self._topics:
            topic.refresh()
            found |= self._open_sources(topic, at_begin=False)
        return found

    def _require_open(self) -> None:
        if self._closed:
            raise Closed(f"reader of {self._topics[0].name!r}: {self._closed}", hint="open a new one")
        for topic in self._topics:
            topic.require_open()


def cut(left: list[Message], max_messages: int, max_bytes: int) -> tuple[Batch, Iterator[Message]]:
    """Of what `receive` has not handed out yet: as much as the limits allow, and what is left then."""
    count = weight = 0
    for message in left[:max_messages]:
        weight += len(message.key or b"") + len(message.value or b"")
        if count and weight > max_bytes:
            break
        count += 1
    return Batch(left[0].topic, (MessageRows(left[:count]),)), iter(left[count:])
