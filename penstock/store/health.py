"""Whether a store is well, without reading its messages; `penstock verify` looks at every byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal, NamedTuple

from penstock.errors import PenstockError
from penstock.log.append import DISK_REFUSE, DISK_WARN
from penstock.store.store import Store
from penstock.store.topic import Topic


class Complaint(NamedTuple):
    """Something that is not well. A "problem" needs someone to act; a "warning" may become one."""

    severity: Literal["problem", "warning"]
    what: str


class Disk(NamedTuple):
    """The disk a store lies on."""

    free_bytes: int
    total_bytes: int

    @property
    def free_share(self) -> float:
        return self.free_bytes / self.total_bytes if self.total_bytes else 1.0


def disk(store: Store) -> Disk:
    room = os.statvfs(store.path)
    return Disk(room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize)


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
    for consumer in topic.consumers():
        for number, start, end in topic.scan().ranges:
            position = consumer.positions.get(number, start)
            place = f"{topic.name} partition {number}: consumer {consumer.consumer} stands at {position}"
            if position > end:
                yield Complaint("problem", f"{place}, beyond the end ({end}): messages are lost")
            elif position < start:
                yield Complaint("warning", f"{place}, behind the start ({start}): retention overtook it")
    for log in topic._partitions.logs():
        durable = log.folder.read_durable()
        if durable is not None and durable.poisoned:
            place = f"{topic.name} partition {log.partition}"
            yield Complaint("problem", f"{place}: the disk failed to sync; look at the disk")
