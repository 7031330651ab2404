"""The partitions a reader has now: opened, taken from and given to other members, stored, lost.

Everything here happens under the reader's mutex, but for `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from penstock.consume.options import ReaderOptions
from penstock.consume.retries import Retries
from penstock.consume.sharing import Sharing
from penstock.consume.source import Key, Source
from penstock.errors import AlreadyExists, Closed, InvalidOption, PartitionLost, UnknownConsumer
from penstock.message import Message
from penstock.options import Place
from penstock.state.consumers import ConsumerOptions, Position
from penstock.topic.partitions import Partitions


class Holdings:
    """What a reader reads: all partitions without a consumer, its share of them with one."""

    def __init__(
        self, topics: Sequence[Partitions], options: ReaderOptions, ring: Callable[[], None]
    ) -> None:
        self.topics = topics
        self._options = options
        self._ring = ring
        self._clock = topics[0].clock
        self.sources: dict[Key, Source] = {}
        #: The same, in the order in which they get their turns.
        self.order: list[Source] = []
        #: The reader's part in its consumer; None without one.
        self.sharing: Sharing | None = None
        self._closed = False
        if options.consumer is None:
            for topic in topics:
                self._open_unshared(topic, options.start)
        else:
            self._begin_sharing(options.consumer)

    def close(self) -> None:
        """Let go of everything, at once; from any thread."""
        self._closed = True
        if self.sharing is not None:
            self.sharing.close()
        for source in list(self.sources.values()):
            source.close()

    def require_open(self) -> None:
        if self._closed:
            raise Closed("the reader is closed: what it delivered is not committed", hint="open a new one")

    # Which partitions.

    def tend(self, unread: Callable[[], None], *, at_once: bool = False) -> None:
        """Take and give what the consumer's members agreed on; `unread` takes back what was only fetched."""
        if self.sharing is None:
            return
        try:
            for topic, positions in self.sharing.tend(self.sources, unread, at_once=at_once):
                self._open_taken(topic, positions)
        finally:
            self.order = list(self.sources.values())

    def hand_over(self, unread: Callable[[], None]) -> None:
        """Only give."""
        if self.sharing is not None and not self._closed and self.sharing.hand_over(self.sources, unread):
            self.order = list(self.sources.values())

    def look(self, unread: Callable[[], None]) -> bool:
        """Take up partitions that were added, or that others gave; whether there are more now."""
        before = len(self.order)
        for source in self.order:
            source.topic.help(source.partition)
        for topic in self.topics:
            topic.refresh()
            topic.delayed.look()
            if self.sharing is None:
                self._open_unshared(topic, "earliest")
        self.tend(unread, at_once=True)
        return len(self.order) > before

    def may_read(self, source: Source) -> bool:
        if source.leaving_since is not None:
            return False
        stored = None
        if self.sharing is not None and self._options.partitions is None:
            stored = self.sharing.stored.get(source.topic.name, {})
        return source.is_open(self.sources, stored)

    # How far they are.

    def commit(self, topic: str, partition: int, first: int, stop: int) -> None:
        """Messages `first` to `stop` are done, whether the log delivered them or they had waited."""
        if self._finish(topic, partition, first, stop):
            return
        source = self.delivered(topic, partition, stop)
        if source is None:
            return
        source.commits.commit(first, stop)
        if source.commits.position > source.stored:  # also when storing it failed the last time
            self.store(source)
        self.let_go_if_leaving(source)

    def owner(self, message: Message[Any]) -> Source:
        """The partition a message was delivered from, and is still this reader's to settle."""
        source = self.sources.get((message.topic, message.partition))
        if source is not None and source.retries is not None and source.retries.out(message.offset):
            return source
        if source is None or message.attempt > 1:
            raise lost(message.topic, message.partition)
        if self.delivered(message.topic, message.partition, message.offset + 1) is None:
            raise lost(message.topic, message.partition)
        return source

    def require_held(self, topic: str, partition: int) -> None:
        """Raise when the partition went to another member, with what had waited of it."""
        if (topic, partition) not in self.sources:
            raise lost(topic, partition)

    def delivered(self, topic: str, partition: int, stop: int) -> Source | None:
        """The partition from which messages up to `stop` were delivered; None when they are long done."""
        source = self.sources.get((topic, partition))
        if source is not None and stop <= source.commits.delivered:
            return source
        why = "is not read by this reader"
        if source is not None:
            why = f"offset {stop - 1} was not delivered by this reader"
        self._refuse(topic, partition, stop, why)
        return None

    def deliver_again(self, messages: Iterable[Message[Any]]) -> None:
        """These were delivered, and nobody handled them: they come again, where they are still ours."""
        begins: dict[Source, int] = {}
        for message in messages:
            source = self.sources.get((message.topic, message.partition))
            if source is None or source.retries is None:
                continue
            if source.retries.out(message.offset):
                source.retries.put_back([message.offset])
            elif not source.commits.is_done(message.offset):
                begins[source] = min(begins.get(source, message.offset), message.offset)
        for source, begin in begins.items():
            source.deliver_again(begin)

    def let_go_if_leaving(self, source: Source) -> None:
        """A partition on its way to another member goes when all of it is done."""
        if self.sharing is not None and source.leaving_since is not None:
            self.sharing.committed(source, self.sources)
            self.order = list(self.sources.values())

    def store(self, source: Source) -> None:
        """Store how far a partition is; one that is lost is dropped."""
        assert self.sharing is not None
        position = source.commits.position
        try:
            source.topic.consumers.commit(
                self.sharing.consumer, source.topic.record.id, source.partition, position, source.epoch,
                self._clock.now_ns(),
            )  # fmt: skip
        except (PartitionLost, UnknownConsumer):
            source.commits.position = source.stored
            self.sharing.release(source, self.sources)
            self.order = list(self.sources.values())
            raise
        source.stored = position

    def store_passed_over(self, source: Source) -> bool:
        """Store that something was passed over, if all before it is done; False if the partition is lost."""
        is_new, source.passed_over = source.passed_over, False
        if self.sharing is None or not is_new or source.commits.position <= source.stored:
            return True
        try:
            self.store(source)
        except PartitionLost:
            return False  # nobody has got anything of it: the one who has it now passes it over too
        return True

    def seek(self, place: Place) -> None:
        """Go on from `place` everywhere; with a consumer it is stored first."""
        now = self._clock.now_ns()
        begins = {source: source.topic.begin(source.partition, place, now) for source in self.order}
        if self.sharing is not None:
            for topic in self.topics:
                self._store_places(
                    topic, self.sharing.consumer, {s: at for s, at in begins.items() if s.topic is topic}
                )
        for source, begin in begins.items():
            source.move(begin)

    # Inside.

    def _finish(self, topic: str, partition: int, first: int, stop: int) -> bool:
        """Finish what had waited; whether that is all there is to do."""
        source = self.sources.get((topic, partition))
        if source is None or source.retries is None or not source.retries.finish(first, stop):
            return False
        if source.commits.position < stop <= source.commits.delivered:
            return False  # the log delivered them too: after a crash, or when the consumer was moved
        self.let_go_if_leaving(source)
        return True

    def _refuse(self, topic: str, partition: int, stop: int, why: str) -> None:
        """Raise for a commit of what is not delivered now, unless it was done before the partition went."""
        before = None if self.sharing is None else self.sharing.before.get((topic, partition))
        if before is None or stop > before.delivered:
            raise InvalidOption(f"{topic!r} partition {partition}: {why}")
        if stop > before.position:
            raise lost(topic, partition)

    def _store_places(self, topic: Partitions, consumer: str, places: dict[Source, int]) -> None:
        epochs = topic.consumers.seek(
            consumer,
            topic.record.id,
            {source.partition: at for source, at in places.items()},
            self._clock.now_ns(),
            {source.partition: source.epoch for source in places},
        )
        for source in places:
            source.epoch = epochs[source.partition]

    def _begin_sharing(self, consumer: str) -> None:
        chosen = self._options.partitions
        for topic in self.topics:
            declare(topic, consumer, self._options)
        self.sharing = Sharing(
            self.topics, consumer, chosen, handover_s=self._options.handover_s, ring=self._ring
        )
        try:
            self.tend(lambda: None, at_once=True)
            refusal = None if chosen is None else self.sharing.refuse_held(chosen)
            if refusal is not None:
                raise refusal
        except BaseException:
            self.close()
            raise

    def _open_taken(self, topic: Partitions, positions: Sequence[Position]) -> None:
        assert self.sharing is not None
        try:
            asked = topic.consumers.options(self.sharing.consumer, topic.record.id)
            gates = topic.topics.gates(topic.record.id)
            for each in positions:
                self._add(
                    topic, each.partition, each.position, epoch=each.epoch, gates=gates.get(each.partition),
                    read_from_ns=asked.read_from_ns,
                )  # fmt: skip
        except BaseException:
            taken = [each.partition for each in positions]
            self.sharing.give_back(topic, [n for n in taken if (topic.name, n) not in self.sources])
            raise

    def _open_unshared(self, topic: Partitions, start: Place) -> None:
        """Open partitions not open yet."""
        chosen = self._options.partitions
        for number in range(len(topic)):
            if (topic.name, number) not in self.sources and (chosen is None or number in chosen):
                self._add(topic, number, topic.begin(number, start, self._clock.now_ns()))
        self.order = list(self.sources.values())

    def _add(
        self, topic: Partitions, number: int, position: int, *, epoch: int = 0,
        gates: dict[int, int] | None = None, read_from_ns: int | None = None,
    ) -> None:  # fmt: skip
        floor = self._options.floor(read_from_ns)
        consumer = self._options.consumer
        source = Source(
            topic, number, position, epoch=epoch, gates=gates, floor=floor, hear=self._ring,
            retries=None if consumer is None else Retries(topic, number, consumer, self._ring),
        )  # fmt: skip
        self.sources[source.key] = source
        if self._closed:  # by another thread, meanwhile
            source.close()


def declare(topic: Partitions, consumer: str, options: ReaderOptions) -> None:
    """Make the consumer at first use, with positions for the partitions there are now."""
    topic_id = topic.record.id
    if topic.consumers.queues.is_queue(consumer, topic_id) and not options.is_queue:
        raise InvalidOption(
            f"consumer {consumer!r} of {topic.name!r} is a queue", hint='kind="queue" reads it'
        )
    if topic.consumers.exists(consumer, topic_id):
        return
    if not options.create:
        raise UnknownConsumer(f"no consumer {consumer!r} of {topic.name!r}", hint="create=True makes it")
    now = topic.clock.now_ns()
    places = topic.begin_all(options.start, now)
    with suppress(AlreadyExists):  # made by another process at the same moment
        topic.consumers.add(consumer, topic_id, ConsumerOptions(), places, now)


def lost(topic: str, partition: int) -> PartitionLost:
    return PartitionLost(
        f"{topic!r} partition {partition} went to another member, or was moved",
        hint="what was not committed comes again, here or to another member: go on receiving",
    )
