"""Split partitions whose messages are gone: their folders go too, their rows stay.

What a consumer had not read of one is a gap, as it is in a partition that is still there: it is raised, or
noted where gaps are skipped, and the consumer goes on in the children.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from contextlib import closing

from penstock.consume.leases import LeaseFile
from penstock.consume.membership import lease_path
from penstock.consume.partition import Gap
from penstock.consume.waiting_view import anything_waits
from penstock.errors import OffsetTrimmed, PenstockError
from penstock.log.folder import DELETED
from penstock.log.log import Log
from penstock.log.producer_table import keep_later_checkpoint
from penstock.state.queues import QueuePlace
from penstock.topic.body_trim import GOING
from penstock.topic.identity import keep_identity
from penstock.topic.open_topic import OpenTopic

logger = logging.getLogger("penstock.retention")

#: What a folder is called while it is being deleted.
_GONE = ".removed-"


def remove_emptied(topic: OpenTopic) -> tuple[int, ...]:
    """Remove split partitions that are empty and that nobody needs any more; returns their numbers."""
    topic.refresh()
    split = [number for number in topic.numbers() if not topic.tree.is_active(number)]
    removed = tuple(number for number in split if _remove_if_there(topic, number))
    if topic.tree.removed():
        _delete_folders(topic)
    return removed


def left_behind(topic: OpenTopic, consumer: str) -> list[Gap]:
    """What a consumer had not read of partitions that are gone by now."""
    ends = topic.tree.removed()
    if not ends:
        return []
    stored = topic.consumers.positions(topic.record.id, consumer)
    return [
        Gap(topic.name, p.partition, p.position, ends[p.partition], "the partition is gone with its messages")
        for p in stored
        if p.position < ends.get(p.partition, 0)
    ]


def go_on_behind(topic: OpenTopic, consumer: str, gaps: list[Gap], *, skip: bool) -> list[Gap]:
    """Have a consumer be done with what is gone; raises `OffsetTrimmed` unless gaps are skipped."""
    if gaps and not skip:
        _, number, first, stop, _ = gaps[0]
        error = OffsetTrimmed(
            f"offsets {first} to {stop - 1} of {topic.name!r} partition {number} are gone, and so is the "
            "partition: it was split, and its messages expired before they were read",
            partition=number, offset=first, first=stop,
        )  # fmt: skip
        error.hint = 'on_gap="skip" goes on in its children and notes the gap; so does a seek'
        raise error
    for gap in gaps:
        logger.warning("skipped offsets %d to %d of partition %d: %s", gap.first, gap.stop - 1, *gap[1::3])
    pass_removed(topic, consumer)
    return gaps


def refuse_left_behind(topic: OpenTopic, consumer: str) -> None:
    """Raise `OffsetTrimmed` when a consumer had not read all of a partition that is gone."""
    go_on_behind(topic, consumer, left_behind(topic, consumer), skip=False)


def pass_removed(topic: OpenTopic, consumer: str) -> None:
    """Have a consumer stand at the end of every partition that is gone."""
    behind = {gap.partition: gap.stop for gap in left_behind(topic, consumer)}
    if behind:
        topic.consumers.seek(consumer, topic.record.id, behind, topic.clock.now_ns())


def _remove_if_there(topic: OpenTopic, number: int) -> bool:
    try:
        return _remove(topic, topic.log(number))
    except (PenstockError, FileNotFoundError):
        topic.refresh()
        if number in topic.numbers():
            raise
        return False  # another process was quicker


def _remove(topic: OpenTopic, log: Log) -> bool:
    """Remove one partition, unless it holds something or somebody holds it."""
    number, topic_id = log.partition, topic.record.id
    with log.folder.housekeeping() as alone:
        if not alone or not _is_empty(topic, log) or _is_used(topic, number):
            return False
        for consumer in topic.consumers.of_topic(topic_id):  # also of those who never came to read it
            topic.consumers.begin(consumer.name, topic_id, number, 0, topic.clock.now_ns())
        for child in topic.tree.row(number).children:
            if child in topic.tree.numbers:  # it will not find there what its parent knew of producers
                keep_later_checkpoint(topic.log(child).folder, 0)
        topic.topics.partitions.remove(topic_id, number)
        topic.refresh()
        keep_identity(topic.files, topic.folder, topic.record, topic.topics)
    return True


def _is_empty(topic: OpenTopic, log: Log) -> bool:
    """Whether nothing lies in a partition, also not for scans that were planned a moment ago."""
    bounds = log.stored()
    if bounds.start < bounds.end or bounds.end != topic.tree.row(log.partition).end:
        return False
    names = topic.files.listdir(log.folder.path)
    return not any(name.endswith(DELETED) for name in names) and GOING not in names


def _is_used(topic: OpenTopic, number: int) -> bool:
    """Whether a transaction, a lease or another attempt is open, or later partitions look facts up in it."""
    topic_id = topic.record.id
    if topic.transactions.unfinished_pieces(topic_id, number):
        return True
    if any(number in parents for parents in topic.topics.partitions.gates_before_rows(topic_id).values()):
        return True
    names = [consumer.name for consumer in topic.consumers.of_topic(topic_id)]
    return any(
        _is_leased(topic, name, number)
        or anything_waits(topic, name, number)
        or topic.consumers.queues.next_free_ms(QueuePlace(name, topic_id, number)) is not None
        for name in names
    )


def _is_leased(topic: OpenTopic, consumer: str, number: int) -> bool:
    try:
        file = LeaseFile(lease_path(topic, consumer), topic.files, create=False, write=False)
    except FileNotFoundError:
        return False
    with closing(file):
        return bool(file.look([number]).held)


def _delete_folders(topic: OpenTopic) -> None:
    """Delete the folders of partitions that the rows call removed: first they get another name."""
    parts, gone = os.path.join(topic.folder, "parts"), topic.tree.removed()
    for name in topic.files.listdir(parts):
        if name.isdecimal() and int(name) in gone:
            aside = _GONE + secrets.token_hex(8)
            topic.files.rename(os.path.join(parts, name), os.path.join(parts, aside))
            topic.files.sync_dir(parts)
            name = aside
        if name.startswith(_GONE):
            shutil.rmtree(os.path.join(parts, name), ignore_errors=True)
