"""A reader's part in its consumer: over all its topics, which partitions it has, takes and hands over.

What it has is looked at again each second, and at once when another member came, went or let go. A
partition that is to go is not fetched from any more; it goes when all that was delivered is committed, or
when that takes too long. Nothing here waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from penstock.consume import members
from penstock.consume.members import Member
from penstock.consume.source import Key, Source
from penstock.errors import PartitionLost
from penstock.state.consumers import Position
from penstock.topic.partitions import Partitions

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
        self, topics: Sequence[Partitions], consumer: str, chosen: Collection[int] | None, *,
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
        self, sources: dict[Key, Source], unread: Callable[[], None], *, at_once: bool = False
    ) -> list[tuple[Partitions, list[Position]]]:
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

    def hand_over(self, sources: dict[Key, Source], unread: Callable[[], None]) -> bool:
        """Only let go of what is too much; whether something went. For a reader whose user is busy."""
        count = len(sources)
        for member in self._members:
            self._settle(member, sources, unread, may_take=False)
        return len(sources) < count

    def release(self, source: Source, sources: dict[Key, Source]) -> None:
        """Let go of one partition."""
        self._drop(self._member(source.topic), [source], sources)
        self.look_soon()

    def look_soon(self) -> None:
        """Someone may have taken something over: look with the next call."""
        self._look_at = self.due = 0.0

    def give_back(self, topic: Partitions, partitions: Sequence[int]) -> None:
        """Let go of partitions that were taken and could not be opened."""
        self._member(topic).give(partitions)

    def committed(self, source: Source, sources: dict[Key, Source]) -> None:
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

    def _drop_if_expelled(self, member: Member, sources: dict[Key, Source]) -> None:
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

    def _learn_positions(self, sources: dict[Key, Source]) -> None:
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
        self, member: Member, sources: dict[Key, Source], unread: Callable[[], None], may_take: bool = True
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

    def _may_go(self, source: Source, now: float) -> bool:
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

    def _drop(self, member: Member, gone: Sequence[Source], sources: dict[Key, Source]) -> None:
        self._forget(gone, sources)
        member.give([source.partition for source in gone])

    def _forget(self, gone: Sequence[Source], sources: dict[Key, Source]) -> None:
        for source in gone:
            self.before[source.key] = Tenure(source.commits.position, source.commits.delivered)
            del sources[source.key]
            source.is_gone = True
            source.close()

    def _member(self, topic: Partitions) -> Member:
        return next(member for member in self._members if member.topic is topic)

    def _note_short(self, now: float) -> None:
        if not any(member.is_short for member in self._members):
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
