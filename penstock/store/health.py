"""Whether a store is well, without reading its messages; `penstock verify` looks at every byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal, NamedTuple

from penstock.errors import PenstockError
from penstock.files import DISK_REFUSE, DISK_WARN
from penstock.store.consumers import ConsumerStats
from penstock.store.store import Store
from penstock.store.topic import Topic
from penstock.topic.retention import held

#: An important consumer that is further behind than this is told of, also where no retention waits for it.
FAR_BEHIND_S = 86400.0


class Complaint(NamedTuple):
    """Something that is not well. A "problem" needs someone to act; a "warning" may become one."""

    severity: Literal["problem", "warning"]
    what: str


class DiskSpace(NamedTuple):
    """The disk a store lies on."""

    free_bytes: int
    total_bytes: int

    @property
    def free_share(self) -> float:
        """Which share of the disk is free, from 0 to 1."""
        return self.free_bytes / self.total_bytes if self.total_bytes else 1.0


def disk(store: Store) -> DiskSpace:
    """Return how much room there is where the store lies."""
    room = os.statvfs(store.path)
    return DiskSpace(room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize)


def complaints(store: Store) -> Iterator[Complaint]:
    """What is wrong with the disk, `state.db`, the partitions and the positions."""
    share = disk(store).free_share
    if share < DISK_REFUSE:
        yield Complaint("problem", f"{share:.1%} of the disk is free: writes are refused")
    elif share < DISK_WARN:
        yield Complaint("warning", f"{share:.1%} of the disk is free; below 2 % writes are refused")
    for found in store.check_state():
        yield Complaint("problem", f"state.db: {found}")
    for topic in store.topics():
        try:
            yield from _of_topic(topic)
        except (PenstockError, OSError) as error:
            yield Complaint("problem", f"topic {topic.name}: {error.args[0]}")


def _of_topic(topic: Topic) -> Iterator[Complaint]:
    consumers = topic.consumers()
    yield from _of_retention(topic)
    for consumer in consumers:
        yield from _of_readers(topic, consumer)
        for number, start, end in topic.scan().ranges:
            position = consumer.positions.get(number, start)
            place = f"{topic.name} partition {number}: consumer {consumer.consumer} stands at {position}"
            if position > end:
                yield Complaint("problem", f"{place}, beyond the end ({end}): messages are lost")
            elif position < start:
                yield Complaint("warning", f"{place}, behind the start ({start}): retention overtook it")
    for log in topic.open_topic.logs():
        durable = log.folder.read_durable()
        if durable is not None and durable.poisoned:
            place = f"{topic.name} partition {log.partition}"
            yield Complaint("problem", f"{place}: the disk failed to sync; look at the disk")


def _of_retention(topic: Topic) -> Iterator[Complaint]:
    """Complain of consumers that keep messages from being removed: the disk can fill up (S001-57)."""
    kept: dict[tuple[str, ...], int] = {}
    for number in topic.open_topic.numbers():
        messages, held_by = held(topic.open_topic, number)
        if messages:
            kept[held_by] = kept.get(held_by, 0) + messages
    for held_by, messages in kept.items():
        who = f"{'consumer' if len(held_by) == 1 else 'consumers'} {', '.join(held_by)}"
        yield Complaint("warning", f"{topic.name}: {messages:,} messages past retention are kept for {who}")


def _of_readers(topic: Topic, consumer: ConsumerStats) -> Iterator[Complaint]:
    if consumer.important and consumer.lag_seconds > FAR_BEHIND_S:
        yield Complaint(
            "warning",
            f"{topic.name}: important consumer {consumer.consumer} is {consumer.lag_seconds / 3600:.0f} h "
            f"behind ({consumer.lag:,} messages, {consumer.lag_bytes:,} bytes)",
        )
    for member in consumer.members:
        if member.stopped and member.partitions:
            numbers = ", ".join(map(str, member.partitions))
            yield Complaint(
                "warning",
                f"{topic.name}: process {member.pid} is stopped and keeps partitions {numbers} of "
                f"{consumer.consumer}; penstock consumer kick {topic.name} {consumer.consumer} {member.pid}",
            )
