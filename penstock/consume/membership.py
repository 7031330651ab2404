"""The members of a consumer: its live readers, and which partitions each of them holds.

Each member holds byte locks in the consumer's lease file (`leases`), which the kernel frees when its process
dies. From the members that are there, `moves` decides which partitions one gives away and which it may take,
so that all have about as many.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from penstock.byte_lock import ByteLock
from penstock.clock import NANOSECONDS
from penstock.consume.leases import LeaseFile, LeaseTable, MemberRecord
from penstock.consume.readable import Readable
from penstock.errors import PartitionLost, UnknownConsumer
from penstock.files import Files
from penstock.locks import process
from penstock.state.consumers import Position
from penstock.topic.open_topic import OpenTopic
from penstock.wake import Hearer, watch

#: A lease that nobody took for so long may be taken over quota: whoever it belongs to does not come.
FREE_TOO_LONG_S = 5.0


class Moves(NamedTuple):
    """What a member does next."""

    take: list[int]
    give: list[int]


def quota(partitions: int, members: int, rank: int) -> int:
    """How many partitions the member of that rank may hold; the first few have one more."""
    return partitions // members + (1 if rank < partitions % members else 0)


def moves(
    allowed: int, held: Mapping[int, bool], free: Mapping[int, float], leaving: Collection[int] = ()
) -> Moves:
    """What to take and what to give up, given a quota.

    `held` says of each partition held whether it is idle (all that was delivered is committed), `free`
    for how many seconds each of the others has been free, `leaving` which are already on their way out.
    """
    surplus = len(held) - allowed
    if surplus > 0:
        return Moves([], _to_give(held, leaving, surplus))
    wanted = sorted(free)[:-surplus] if surplus else []
    late = [number for number, since in sorted(free.items()) if since >= FREE_TOO_LONG_S]
    return Moves(sorted({*wanted, *late}), [])


def _to_give(held: Mapping[int, bool], leaving: Collection[int], surplus: int) -> list[int]:
    """Those already leaving, then idle ones, which move at once; the highest numbers first."""
    order: Sequence[int] = sorted(held, key=lambda number: (number not in leaving, not held[number], -number))
    return sorted(order[:surplus])


#: Who looks for its share looks each second; who did not for so long is busy, and nothing is given to it.
_WANTED_S = 3.0


class MemberStats(NamedTuple):
    """A member of a consumer, as others see it."""

    #: None when the process that joined is not there under that number any more (it forked, or the
    #: member lives in a container of its own).
    pid: int | None
    host: str
    #: The partitions it holds.
    partitions: tuple[int, ...]
    #: When it joined, in nanoseconds.
    joined: int
    #: Its process is stopped (SIGSTOP, a debugger): it keeps what it holds until it goes on or is kicked.
    stopped: bool
    kicked: bool
    #: It chose its partitions itself.
    fixed: bool


class Member:
    """A reader's membership in one topic."""

    def __init__(self, topic: OpenTopic, consumer: str, chosen: Collection[int] | None, hear: Hearer) -> None:
        self.topic = topic
        self.consumer = consumer
        self._chosen = chosen
        self._hear = hear
        #: Partitions whose leases it has.
        self.held: set[int] = set()
        #: It holds fewer than it should, so others are about to release some.
        self.is_short = False
        self._free_since: dict[int, float] = {}
        self._wanted = -_WANTED_S
        self._join()

    @property
    def is_alone(self) -> bool:
        """Whether no other member reads the topic for the consumer."""
        return self._others == 0

    def _join(self) -> None:
        path = lease_path(self.topic, self.consumer)
        while True:
            self._file = LeaseFile(path, self.topic.files)
            try:
                self._file.join(self.topic.clock.now_ns(), fixed=self._chosen is not None)
                if not self._file.is_removed():
                    break
            except BaseException:
                self._file.close()
                raise
            self._file.close()
        self._watch = watch(path, self._hear, closes=True)
        self._others = len(self._file.look(()).members) - 1
        if self._others:
            self._file.announce()

    def was_kicked(self) -> bool:
        """Whether someone made this member leave."""
        return self._file.is_kicked()

    def was_removed(self) -> bool:
        """Whether the consumer was deleted."""
        return self._file.is_removed()

    def join_again(self) -> None:
        """Join anew after a kick or a drop, with no partitions."""
        self.close()
        self.held.clear()
        self._join()

    def look(self) -> LeaseTable:
        """Read the table of members and leases."""
        return self._file.look(self.topic.numbers())

    def counted(self, numbers: Collection[int], readable: Readable) -> int:
        """How many of these partitions count towards this member's share: those that can be read now."""
        return len(numbers if self._chosen is not None else readable.shared.intersection(numbers))

    def allowed(self, table: LeaseTable, readable: Readable) -> int:
        """How many partitions this member may hold now."""
        self._others = len(table.members) - 1
        if self._chosen is not None:
            return len(self._chosen)
        ranks = table.sharing()
        if self._file.number not in ranks:
            return len(self.held)  # kicked at this moment: the next look says so
        fixed = {number for number, member in table.members.items() if member.fixed}
        taken = [number for number, holder in table.held.items() if holder in fixed]
        return quota(len(readable.shared.difference(taken)), len(ranks), ranks.index(self._file.number))

    def want(self) -> None:
        """Tell the others, who have too much, that this member is there to take it."""
        now, before = time.monotonic(), self._wanted
        self._wanted = now
        self._file.want(time.monotonic_ns())
        if now - before >= _WANTED_S:  # they do not know yet
            self._file.announce()

    def is_wanted(self, table: LeaseTable) -> bool:
        """Whether another member waits for its share now."""
        since = time.monotonic_ns() - round(_WANTED_S * NANOSECONDS)
        return any(m.wanted > since for n, m in table.members.items() if n != self._file.number)

    def moves(
        self, table: LeaseTable, readable: Readable, allowed: int, idle: Mapping[int, bool],
        leaving: Collection[int],
    ) -> Moves:  # fmt: skip
        """What to take and to give up; `idle` is all that the member has."""
        now = time.monotonic()
        shared = readable.shared if self._chosen is None else self._chosen
        free = [n for n in shared if n not in table.held and n not in self.held]
        self._free_since = {number: self._free_since.get(number, now) for number in free}
        self.is_short = self.counted(self.held, readable) < allowed
        since = {number: now - at for number, at in self._free_since.items()}
        mine = {number: is_idle for number, is_idle in idle.items() if number in shared}
        if len(mine) > allowed and not self.is_wanted(table):
            allowed = len(mine)  # whoever could have it is busy: it would only lie idle
        found = moves(allowed, mine, since, leaving)
        if self._chosen is not None:
            return found
        extra = readable.extra({*mine, *found.take})
        return Moves(
            sorted({*found.take, *(extra - table.held.keys() - self.held)}),
            sorted({*found.give, *(idle.keys() - mine.keys() - extra)}),
        )

    def take(self, numbers: Collection[int]) -> list[Position]:
        """Take leases as far as they are free, and with them the partitions: where they stand, and epochs."""
        got = [number for number in numbers if self._file.try_take(number)]
        self.held.update(got)
        if not got:
            return []
        try:
            positions = self._take_over(got)
        except BaseException:
            self.give(got)
            raise
        return [positions[number] for number in got]

    def give(self, numbers: Collection[int]) -> None:
        """Release leases, and tell the others."""
        for number in numbers:
            self._file.release(number)
        self.held.difference_update(numbers)
        if numbers:
            self.tell()

    def tell(self) -> None:
        """Have the others look."""
        if self._others:
            self._file.announce()

    def left_alone(self) -> list[int]:
        """Partitions that were split and that nobody has."""
        if self._chosen is not None:
            return []
        taken = self.look().held.keys() | self.held
        tree = self.topic.tree
        return [number for number in tree.numbers if number not in taken and not tree.is_active(number)]

    def holder(self, number: int) -> int | None:
        """The pid of who holds a partition, as far as it is known."""
        table = self.look()
        member = table.members.get(table.held.get(number, -1))
        return None if member is None else _seen(member)[0]

    def close(self) -> None:
        """Leave: others may take the partitions."""
        self._watch.close()
        self._file.close()

    def _take_over(self, numbers: list[int]) -> dict[int, Position]:
        topic, consumers = self.topic, self.topic.consumers
        found = consumers.take(self.consumer, topic.record.id, numbers, self._file.orphans)
        missing = [number for number in numbers if number not in found]
        for number in missing:  # they appeared after the consumer began
            first = topic.log(number).bounds().start
            consumers.begin(self.consumer, topic.record.id, number, first, topic.clock.now_ns())
        if missing:
            found |= consumers.take(self.consumer, topic.record.id, missing)
        if len(found) < len(numbers):
            raise UnknownConsumer(
                f"consumer {self.consumer!r} of {topic.name!r} was dropped",
                hint="open a new reader to make it anew",
            )
        return found


def lease_path(topic: OpenTopic, consumer: str) -> str:
    """Return the path of the file in which a consumer's members agree."""
    return os.path.join(topic.folder, "consumers", consumer)


def members(topic: OpenTopic, consumer: str) -> list[MemberStats]:
    """Who reads for a consumer now; takes nothing and changes nothing."""
    try:
        file = LeaseFile(lease_path(topic, consumer), topic.files, create=False, write=False)
    except FileNotFoundError:
        return []
    with closing(file):
        table = file.look(topic.numbers())
    found = []
    for number, member in table.members.items():
        partitions = tuple(sorted(p for p, holder in table.held.items() if holder == number))
        pid, stopped = _seen(member)
        found.append(
            MemberStats(pid, member.host, partitions, member.joined, stopped, member.kicked, member.fixed)
        )
    return found


def kick(topic: OpenTopic, consumer: str, pid: int | None) -> list[int]:
    """Take their partitions from members, all of them or those of one process; returns the pids.

    First none of them can commit any more, then others may take the partitions.
    """
    try:
        file = LeaseFile(lease_path(topic, consumer), topic.files, create=False)
    except FileNotFoundError:
        return []
    with closing(file):
        table = file.look(topic.numbers())
        chosen = [n for n, member in table.members.items() if pid is None or member.pid == pid]
        held: dict[int, list[int]] = {number: [] for number in chosen}
        for partition, holder in table.held.items():
            # Whoever died between taking it and saying so is not among the members: it may be one of these.
            owner = holder if holder in table.members else next(iter(chosen), None)
            if owner in held:
                held[owner].append(partition)
        topic.consumers.kick(consumer, topic.record.id, [p for each in held.values() for p in each])
        for number, partitions in held.items():
            file.kick(number, partitions)
    return [table.members[number].pid for number in chosen]


def tell(topic: OpenTopic, consumer: str) -> None:
    """Have the members of a consumer look: something was changed in `state.db`."""
    try:
        topic.files.close(topic.files.open(lease_path(topic, consumer)))
    except FileNotFoundError:
        pass


def remove(topic: OpenTopic, consumer: str) -> None:
    """Remove the file of a consumer that was dropped; its members notice."""
    tell(topic, consumer)
    try:
        topic.files.unlink(lease_path(topic, consumer))
    except FileNotFoundError:
        pass


def refuse_held(member: Member, number: int) -> PartitionLost:
    """Raise for a partition that was asked for by number and that another reader has."""
    pid = member.holder(number)
    return PartitionLost(
        f"partition {number} of {member.topic.name!r} is read by another member of {member.consumer!r}"
        + (f" (process {pid})" if pid else ""),
        hint="leave partitions out to share them, or close the other reader",
    )


def _seen(member: MemberRecord) -> tuple[int | None, bool]:
    """The member's pid, if that process is the one that joined, and whether it is stopped."""
    if member.pid == os.getpid():
        return member.pid, False
    state, started = process(member.pid)
    if member.started and started != member.started:
        return None, False
    return member.pid, state in ("T", "t")


_NAME = "queue-readers"


class QueueMember:
    """One reader, as others see it in each topic that it reads."""

    def __init__(self, folders: list[str], files: Files) -> None:
        #: Tells it from any other reader, ever.
        self.member = secrets.randbits(62) | 1
        self._files = files
        self._fds: dict[str, int] = {}
        try:
            for folder in folders:
                fd = self._fds[folder] = files.open(os.path.join(folder, _NAME), create=True)
                ByteLock(fd).try_lock(self.member)
        except BaseException:
            self.close()
            raise

    def is_alive(self, folder: str, member: int) -> bool:
        """Whether another reader of a topic lives."""
        return ByteLock(self._fds[folder]).is_held_elsewhere(member)

    def close(self) -> None:
        """Close the files; in a forked child this leaves the parent its locks."""
        fds, self._fds = self._fds, {}
        for fd in fds.values():
            self._files.close(fd)
