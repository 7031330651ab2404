"""The partitions assigned to one reader: which it holds, takes and hands over.

Without a consumer a reader has all partitions. With one it has a share of them, which changes when other
members come, go or die. Nobody else keeps a list of what a reader holds. Everything here happens under the
reader's mutex, but for `hear` and `close`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from typing import NamedTuple

from penstock.consume.gates import Gates
from penstock.consume.membership import Member, refuse_held
from penstock.consume.options import ReaderOptions
from penstock.consume.partition import Fetched, Gap, HeldPartition, Key
from penstock.consume.removed_parents import left_behind
from penstock.consume.retries import PartitionRetries
from penstock.errors import AlreadyExists, Closed, InvalidOption, PartitionLost, UnknownConsumer
from penstock.place import Place
from penstock.state.consumers import ConsumerOptions, Position
from penstock.state.deaths import Doubt
from penstock.topic.open_topic import OpenTopic

logger = logging.getLogger("penstock.reader")

LOOK_AGAIN_S = 1.0
#: How often a member that is busy asks whether it was kicked.
_KICKED_S = 0.1
#: The kernel tells of a close a moment before it frees the locks, so one looks a few times, within 0.3 s.
_HURRY_S = 0.005
_HURRY_TIMES = 10


class Tenure(NamedTuple):
    """How far a partition was when this reader released it."""

    position: int
    delivered: int


class Assignment:
    """The one owner of the partitions that a reader holds."""

    def __init__(self, topics: Sequence[OpenTopic], options: ReaderOptions, ring: Callable[[], None]) -> None:
        self.topics = topics
        self.consumer = options.consumer
        self._options = options
        self._ring = ring
        self._clock = topics[0].clock
        #: The partitions that this reader holds; changed only here.
        self.held: dict[Key, HeldPartition] = {}
        #: All that is held, in the order in which partitions get their turns.
        self.order: list[HeldPartition] = []
        self.fetched = Fetched()
        #: What keeps partitions shut until those before them are done.
        self.gates = Gates(self.held, options.consumer, named=options.partitions is not None)
        #: What the consumer had not read of partitions that are gone.
        self.left_behind: dict[OpenTopic, list[Gap]] = {}
        #: When to ask again whether the reader was kicked, by the monotonic clock.
        self.due = float("inf") if options.consumer is None else 0.0
        self._members: list[Member] = []
        self._before: dict[Key, Tenure] = {}
        self._heard = self._closed = False
        self._hurry = 0
        self._look_at = 0.0
        self._short_since: float | None = None
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def tenure(self, topic: str, partition: int) -> Tenure | None:
        """How far a partition was when this reader released it; None when it never had it."""
        return self._before.get((topic, partition))

    @property
    def is_alone(self) -> bool:
        """Whether the consumer has no other member."""
        return all(member.is_alone for member in self._members)

    @property
    def was_expelled(self) -> bool:
        """Whether another process took this reader's partitions, or dropped its consumer."""
        return any(member.was_kicked() or member.was_removed() for member in self._members)

    @property
    def is_waiting(self) -> bool:
        """Whether others still hold partitions that this reader should have, and not for too long."""
        since = self._short_since
        return since is not None and time.monotonic() - since < self._options.handover_s

    @property
    def pause_s(self) -> float:
        """How long a reader may wait before it looks again."""
        pause = min((source.watch.pause_s for source in self.order), default=LOOK_AGAIN_S)
        if self._hurry:
            pause = min(pause, _HURRY_S * 2.0 ** ((_HURRY_TIMES - self._hurry) // 2))
        for source in self.order:
            if source.unfinished:
                pause = min(pause, _HURRY_S)
            if source.retries is not None and source.leaving_since is None:
                pause = min(pause, source.retries.due_in_s())
        return pause

    def may_read(self, source: HeldPartition) -> bool:
        """Whether a partition's turn may come: one with parents waits for them."""
        if source.leaving_since is not None or not source.is_settled():
            return False
        if not source.is_open and not self.gates.is_open(source):
            return False
        return source.had_more or not source.is_drained

    def require_open(self) -> None:
        """Raise when the reader is closed."""
        if self._closed:
            raise Closed("the reader is closed: what it delivered is not committed", hint="open a new one")

    # Taking and giving.

    def hear(self) -> None:
        """Look with the next call: another member came, went or released something. From any thread."""
        self._heard = True
        self.due = 0.0
        self._ring()

    def look_soon(self) -> None:
        """Look with the next call: something may have been taken over."""
        if self._members:
            self._look_at = self.due = 0.0

    def rebalance(self, *, without_delay: bool = False) -> None:
        """Take and give what the consumer's members agreed on, if it is time."""
        if not self._members:
            return
        try:
            now = time.monotonic()
            for member in self._members:
                self._drop_if_expelled(member)
            is_time = self._is_time(now, without_delay)
            self.due = now + min(self._pause_members_s, _KICKED_S)
            if is_time:
                self._learn_positions()
                taken = [(member.topic, self._settle(member)) for member in self._members]
                self._note_short(now)
                for topic, positions in taken:
                    self._open_taken(topic, positions)
        finally:
            self._list()
        self.fetched.forget_if_gone()

    def hand_over(self) -> None:
        """Hand over partitions without taking any: for a reader whose user is busy."""
        if self._closed:
            return
        for member in self._members:
            self._settle(member, may_take=False)
        self._list()

    def look(self) -> bool:
        """Take up partitions that were added, or that others gave; whether there are more now."""
        before = set(self.held)
        for source in self.order:
            if source.partition in source.topic.numbers():
                source.topic.help(source.partition)
        for topic in self.topics:
            topic.refresh()
            topic.delayed.look()
            if self.consumer is None:
                self._forget_removed(topic)
                self._open_all(topic, "earliest")
        self.rebalance(without_delay=True)
        return not self.held.keys() <= before

    def take_drained(self) -> None:
        """Take what nobody has because all of it was read: a seek goes back into it, too."""
        for member in self._members:
            self._open_taken(member.topic, member.take(member.left_alone()))
        self._list()

    def tell(self) -> None:
        """Have the other members look: the consumer was moved."""
        for member in self._members:
            member.tell()

    def release(self, source: HeldPartition) -> None:
        """Let others have a partition."""
        self._drop(self._member(source.topic), [source])
        self.look_soon()
        self._list()

    def release_if_leaving(self, source: HeldPartition) -> None:
        """Release a partition that was only kept until all of it is committed."""
        if source.leaving_since is not None and source.is_idle:
            self.release(source)

    def close(self) -> None:
        """Release everything, without waiting; from any thread."""
        self._closed = True
        for member in self._members:
            member.close()
        for source in list(self.held.values()):
            source.close()

    # Inside.

    def _begin(self) -> None:
        if self.consumer is None:
            for topic in self.topics:
                self._open_all(topic, self._options.start)
            return
        chosen = self._options.partitions
        for topic in self.topics:
            create_consumer(topic, self.consumer, self._options)
        for topic in self.topics:
            self._members.append(Member(topic, self.consumer, chosen, self.hear))
        self.rebalance(without_delay=True)
        for member in self._members:
            for number in sorted(set(chosen or ()) - member.held):
                raise refuse_held(member, number)

    @property
    def _pause_members_s(self) -> float:
        return LOOK_AGAIN_S if not self._hurry else _HURRY_S * 2.0 ** ((_HURRY_TIMES - self._hurry) // 2)

    def _is_time(self, now: float, without_delay: bool) -> bool:
        if self._heard:
            self._heard = False
            self._hurry = _HURRY_TIMES
        elif self._hurry:
            self._hurry -= 1
        elif now < self._look_at and not without_delay:
            return False
        self._look_at = now + LOOK_AGAIN_S
        return True

    def _drop_if_expelled(self, member: Member) -> None:
        """After a kick, or when the consumer was dropped: all it had is lost, and it begins anew."""
        if not member.was_kicked() and not member.was_removed():
            return
        logger.warning("this member of consumer %s lost its partitions to others", self.consumer)
        self._forget([source for source in self.held.values() if source.topic is member.topic])
        member.topic.refresh()  # or it is the topic that was dropped
        member.join_again()
        if self._closed:  # by another thread, meanwhile
            member.close()
        self._look_at = 0.0

    def _learn_positions(self) -> None:
        """Read where the consumer stands; drop partitions that someone else moved or took over."""
        assert self.consumer is not None
        for member in self._members:
            topic = member.topic
            topic.refresh()  # a reader that is never idle hears of new partitions, too
            found = {p.partition: p for p in topic.consumers.positions(topic.record.id, self.consumer)}
            if self.gates.learn(topic, {number: p.position for number, p in found.items()}):
                self.fetched.forget_if_shut()
            if self._options.partitions is None and (gaps := left_behind(topic, self.consumer)):
                self.left_behind[topic] = gaps
            lost = [
                source
                for source in self.held.values()
                if source.topic is topic
                and (source.partition not in found or found[source.partition].epoch != source.epoch)
            ]
            self._drop(member, lost)

    def _settle(self, member: Member, *, may_take: bool = True) -> list[Position]:
        """One step towards the quota in one topic; what was taken."""
        mine = {s.partition: s for s in self.held.values() if s.topic is member.topic}
        member.give(member.held - mine.keys())  # taken, and then an error kept it from being opened
        table, readable = member.look(), self.gates.readable(member.topic)
        allowed = member.allowed(table, readable)
        if member.counted(mine, readable) > allowed and member.is_wanted(table):
            self.fetched.take_back()
        idle = {number: source.is_idle for number, source in mine.items()}
        leaving = [number for number, source in mine.items() if source.leaving_since is not None]
        take, give = member.moves(table, readable, allowed, idle, leaving)
        now = time.monotonic()
        for number, source in mine.items():
            if number not in give:
                source.leaving_since = None
            elif source.leaving_since is None:
                source.leaving_since = now
        self._drop(member, [mine[number] for number in give if self._may_go(mine[number], now)])
        if not may_take:
            return []
        taken = member.take(take)
        member.is_short = member.counted(member.held, readable) < allowed
        if member.is_short:
            member.want()
        return taken

    def _may_go(self, source: HeldPartition, now: float) -> bool:
        if source.is_idle:
            return True
        assert source.leaving_since is not None
        if now - source.leaving_since < self._options.handover_s:
            return False
        logger.warning(
            "%s partition %d goes to another member of %s with messages delivered and not committed: "
            "they are delivered again there", *source.key, self.consumer,
        )  # fmt: skip
        return True

    def _drop(self, member: Member, gone: Sequence[HeldPartition]) -> None:
        self._forget(gone)
        member.give([source.partition for source in gone])

    def _forget(self, gone: Sequence[HeldPartition]) -> None:
        for source in gone:
            self._before[source.key] = Tenure(source.commits.position, source.commits.delivered)
            del self.held[source.key]
            source.is_gone = True
            source.close()

    def _member(self, topic: OpenTopic) -> Member:
        return next(member for member in self._members if member.topic is topic)

    def _note_short(self, now: float) -> None:
        if not any(member.is_short for member in self._members):
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now

    def _open_taken(self, topic: OpenTopic, positions: Sequence[Position]) -> None:
        if not positions:
            return
        assert self.consumer is not None
        try:
            asked = topic.consumers.options(self.consumer, topic.record.id)
            unfinished = {tx for tx, *_ in topic.transactions.unfinished()}
            for each in positions:
                self._add(
                    topic, each.partition, each.position, epoch=each.epoch, doubt=each.doubt,
                    read_from_ns=asked.read_from_ns, unfinished=unfinished,
                )  # fmt: skip
        except BaseException:
            taken = [each.partition for each in positions]
            self._member(topic).give([n for n in taken if (topic.name, n) not in self.held])
            raise

    def _open_all(self, topic: OpenTopic, start: Place) -> None:
        """Open the partitions that are not open yet, for a reader without a consumer."""
        chosen = self._options.partitions
        new = [number for number in topic.numbers() if (topic.name, number) not in self.held]
        for number in new:
            if chosen is None or number in chosen:
                begin = topic.begin(number, start, self._clock.now_ns())
                self._add(topic, number, begin)
        self._list()

    def _forget_removed(self, topic: OpenTopic) -> None:
        """Close what is gone and was read to its end, for a reader without a consumer."""
        gone = [source for number in topic.tree.removed() if (source := self.held.get((topic.name, number)))]
        self._forget([source for source in gone if source.is_drained])

    def _add(
        self, topic: OpenTopic, number: int, position: int, *, epoch: int = 0,
        read_from_ns: int | None = None, doubt: Doubt | None = None, unfinished: Set[int] = frozenset(),
    ) -> None:  # fmt: skip
        source = HeldPartition(
            topic, number, position, epoch=epoch, floor=self._options.floor(read_from_ns),
            hear=self._ring, retries=self._retries(topic, number), doubt=doubt, unfinished=unfinished,
        )  # fmt: skip
        self.held[source.key] = source
        if self._closed:  # by another thread, meanwhile
            source.close()

    def _retries(self, topic: OpenTopic, number: int) -> PartitionRetries | None:
        if self.consumer is None:
            return None
        return PartitionRetries(topic, number, self.consumer, self._ring)

    def _list(self) -> None:
        self.order = list(self.held.values())


def create_consumer(topic: OpenTopic, consumer: str, options: ReaderOptions) -> None:
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
    """The error for a message whose partition this reader has no longer."""
    return PartitionLost(
        f"{topic!r} partition {partition} went to another member, or was moved",
        hint="what was not committed comes again, here or to another member: go on receiving",
    )
