"""The partitions a reader has now: opened, taken from and given to other members, stored, lost.

Everything here happens under the reader's mutex, but for `close`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from penstock.consume import membership as members
from penstock.consume.membership import Member
from penstock.consume.options import ReaderOptions
from penstock.consume.partition import HeldPartition, Key
from penstock.consume.retries import PartitionRetries
from penstock.errors import AlreadyExists, Closed, InvalidOption, PartitionLost, UnknownConsumer
from penstock.message import Message
from penstock.place import Place
from penstock.state.consumers import ConsumerOptions, Position
from penstock.topic.open_topic import OpenTopic

logger = logging.getLogger("penstock.reader")

LOOK_AGAIN_S = 1.0
#: How often a member that is busy asks whether it was kicked.
_KICKED_S = 0.1
#: The kernel tells of a close a moment before it frees the locks, so one looks a few times, within 0.3 s.
_HURRY_S = 0.005
_HURRY_TIMES = 10


class Tenure(NamedTuple):
    """How far a partition was when this reader let go of it."""

    position: int
    delivered: int


class Sharing:
    """The memberships of one reader. Not for several threads; `hear` and `close` are."""

    def __init__(
        self, topics: Sequence[OpenTopic], consumer: str, chosen: Collection[int] | None, *,
        handover_s: float, ring: Callable[[], None],
    ) -> None:  # fmt: skip
        self.consumer = consumer
        self._handover_s = handover_s
        self._ring = ring
        self._heard = False
        self._closed = False
        self._hurry = 0
        self._look_at = 0.0
        #: When to ask again whether it was kicked.
        self.due = 0.0
        #: Stored positions by topic and partition, as of the last look.
        self.stored: dict[str, dict[int, int]] = {}
        #: What became of partitions that this reader had before.
        self.before: dict[Key, Tenure] = {}
        self._members: list[Member] = []
        self._short_since: float | None = None
        try:
            for topic in topics:
                self._members.append(Member(topic, consumer, chosen, self.hear))
        except BaseException:
            self.close()
            raise

    def hear(self) -> None:
        """Another member came, went or let go of something. Called from any thread."""
        self._heard = True
        self.due = 0.0
        self._ring()

    @property
    def is_alone(self) -> bool:
        return all(member.is_alone for member in self._members)

    @property
    def is_waiting(self) -> bool:
        """Whether partitions that it should have are still held by others, and not for too long."""
        since = self._short_since
        return since is not None and time.monotonic() - since < self._handover_s

    @property
    def pause_s(self) -> float:
        """How long a reader may wait before it looks again."""
        if not self._hurry:
            return LOOK_AGAIN_S
        return _HURRY_S * 2.0 ** ((_HURRY_TIMES - self._hurry) // 2)

    def refuse_held(self, chosen: Collection[int]) -> PartitionLost | None:
        """Why partitions that were asked for are not here; None when all are."""
        for member in self._members:
            for number in sorted(set(chosen) - member.held):
                return members.refuse_held(member, number)
        return None

    # Tending: under the reader's mutex.

    def tend(
        self, sources: dict[Key, HeldPartition], unread: Callable[[], None], *, at_once: bool = False
    ) -> list[tuple[OpenTopic, list[Position]]]:
        """Let go of what is lost or to be handed over; returns what was taken.

        `unread` takes back what was fetched and not yet handed out.
        """
        now = time.monotonic()
        for member in self._members:
            self._drop_if_expelled(member, sources)
        is_time = self._is_time(now, at_once)
        self.due = now + min(self.pause_s, _KICKED_S)
        if not is_time:
            return []
        self._learn_positions(sources)
        taken = [(member.topic, self._settle(member, sources, unread)) for member in self._members]
        self._note_short(now)
        return [(topic, positions) for topic, positions in taken if positions]

    def hand_over(self, sources: dict[Key, HeldPartition], unread: Callable[[], None]) -> bool:
        """Only let go of what is too much; whether something went. For a reader whose user is busy."""
        count = len(sources)
        for member in self._members:
            self._settle(member, sources, unread, may_take=False)
        return len(sources) < count

    def release(self, source: HeldPartition, sources: dict[Key, HeldPartition]) -> None:
        """Let go of one partition."""
        self._drop(self._member(source.topic), [source], sources)
        self.look_soon()

    def look_soon(self) -> None:
        """Someone may have taken something over: look with the next call."""
        self._look_at = self.due = 0.0

    def give_back(self, topic: OpenTopic, partitions: Sequence[int]) -> None:
        """Let go of partitions that were taken and could not be opened."""
        self._member(topic).give(partitions)

    def committed(self, source: HeldPartition, sources: dict[Key, HeldPartition]) -> None:
        """Let a partition go that was only kept until all is committed."""
        if source.leaving_since is not None and source.is_idle:
            self.release(source, sources)

    def close(self) -> None:
        """Let go of everything at once."""
        self._closed = True
        for member in self._members:
            member.close()

    def _is_time(self, now: float, at_once: bool) -> bool:
        if self._heard:
            self._heard = False
            self._hurry = _HURRY_TIMES
        elif self._hurry:
            self._hurry -= 1
        elif now < self._look_at and not at_once:
            return False
        self._look_at = now + LOOK_AGAIN_S
        return True

    def _drop_if_expelled(self, member: Member, sources: dict[Key, HeldPartition]) -> None:
        """After a kick, or when the consumer was dropped: all it had is lost, and it begins anew."""
        if not member.was_kicked() and not member.was_removed():
            return
        logger.warning("this member of consumer %s lost its partitions to others", self.consumer)
        lost = [source for source in sources.values() if source.topic is member.topic]
        self._forget(lost, sources)
        member.topic.refresh()  # or it is the topic that was dropped
        member.join_again()
        if self._closed:  # by another thread, meanwhile
            member.close()
        self._look_at = 0.0

    def _learn_positions(self, sources: dict[Key, HeldPartition]) -> None:
        """Where the consumer stands; what someone else moved or took over is lost."""
        for member in self._members:
            topic = member.topic
            found = {p.partition: p for p in topic.consumers.positions(topic.record.id, self.consumer)}
            self.stored[topic.name] = {number: p.position for number, p in found.items()}
            lost = [
                source
                for source in sources.values()
                if source.topic is topic
                and (source.partition not in found or found[source.partition].epoch != source.epoch)
            ]
            self._drop(member, lost, sources)

    def _settle(
        self,
        member: Member,
        sources: dict[Key, HeldPartition],
        unread: Callable[[], None],
        may_take: bool = True,
    ) -> list[Position]:
        """One step towards the quota in one topic."""
        mine = {s.partition: s for s in sources.values() if s.topic is member.topic}
        member.give(member.held - mine.keys())  # taken, and then an error kept it from being opened
        table = member.look()
        allowed = member.allowed(table)
        if len(mine) > allowed and member.is_wanted(table):
            unread()
        idle = {number: source.is_idle for number, source in mine.items()}
        leaving = [number for number, source in mine.items() if source.leaving_since is not None]
        take, give = member.moves(table, allowed, idle, leaving)
        now = time.monotonic()
        for number, source in mine.items():
            if number not in give:
                source.leaving_since = None
            elif source.leaving_since is None:
                source.leaving_since = now
        self._drop(member, [mine[n] for n in give if self._may_go(mine[n], now)], sources)
        if not may_take:
            return []
        taken = member.take(take)
        member.is_short = len(member.held) < allowed
        if member.is_short:
            member.want()
        return taken

    def _may_go(self, source: HeldPartition, now: float) -> bool:
        if source.is_idle:
            return True
        assert source.leaving_since is not None
        if now - source.leaving_since < self._handover_s:
            return False
        logger.warning(
            "%s partition %d goes to another member of %s with messages delivered and not committed: "
            "they come again there", *source.key, self.consumer,
        )  # fmt: skip
        return True

    def _drop(self, member: Member, gone: Sequence[HeldPartition], sources: dict[Key, HeldPartition]) -> None:
        self._forget(gone, sources)
        member.give([source.partition for source in gone])

    def _forget(self, gone: Sequence[HeldPartition], sources: dict[Key, HeldPartition]) -> None:
        for source in gone:
            self.before[source.key] = Tenure(source.commits.position, source.commits.delivered)
            del sources[source.key]
            source.is_gone = True
            source.close()

    def _member(self, topic: OpenTopic) -> Member:
        return next(member for member in self._members if member.topic is topic)

    def _note_short(self, now: float) -> None:
        if not any(member.is_short for member in self._members):
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now


class Holdings:
    """What a reader reads: all partitions without a consumer, its share of them with one."""

    def __init__(self, topics: Sequence[OpenTopic], options: ReaderOptions, ring: Callable[[], None]) -> None:
        self.topics = topics
        self._options = options
        self._ring = ring
        self._clock = topics[0].clock
        self.sources: dict[Key, HeldPartition] = {}
        #: The same, in the order in which they get their turns.
        self.order: list[HeldPartition] = []
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

    def may_read(self, source: HeldPartition) -> bool:
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

    def owner(self, message: Message[Any]) -> HeldPartition:
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

    def delivered(self, topic: str, partition: int, stop: int) -> HeldPartition | None:
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
        begins: dict[HeldPartition, int] = {}
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

    def let_go_if_leaving(self, source: HeldPartition) -> None:
        """A partition on its way to another member goes when all of it is done."""
        if self.sharing is not None and source.leaving_since is not None:
            self.sharing.committed(source, self.sources)
            self.order = list(self.sources.values())

    def store(self, source: HeldPartition) -> None:
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

    def store_passed_over(self, source: HeldPartition) -> bool:
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

    def _store_places(self, topic: OpenTopic, consumer: str, places: dict[HeldPartition, int]) -> None:
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

    def _open_taken(self, topic: OpenTopic, positions: Sequence[Position]) -> None:
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

    def _open_unshared(self, topic: OpenTopic, start: Place) -> None:
        """Open partitions not open yet."""
        chosen = self._options.partitions
        for number in range(len(topic)):
            if (topic.name, number) not in self.sources and (chosen is None or number in chosen):
                self._add(topic, number, topic.begin(number, start, self._clock.now_ns()))
        self.order = list(self.sources.values())

    def _add(
        self, topic: OpenTopic, number: int, position: int, *, epoch: int = 0,
        gates: dict[int, int] | None = None, read_from_ns: int | None = None,
    ) -> None:  # fmt: skip
        floor = self._options.floor(read_from_ns)
        consumer = self._options.consumer
        source = HeldPartition(
            topic, number, position, epoch=epoch, gates=gates, floor=floor, hear=self._ring,
            retries=None if consumer is None else PartitionRetries(topic, number, consumer, self._ring),
        )  # fmt: skip
        self.sources[source.key] = source
        if self._closed:  # by another thread, meanwhile
            source.close()


def declare(topic: OpenTopic, consumer: str, options: ReaderOptions) -> None:
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
