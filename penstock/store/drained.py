"""Split partitions that hold nothing any more: their folders go, their rows stay (S001-16, S001-27)."""

from __future__ import annotations

import os
import secrets
import shutil

from penstock.consume.membership import members
from penstock.consume.retries import waiting_messages
from penstock.state.queues import QueuePlace
from penstock.topic.open_topic import OpenTopic


def remove_drained(topic: OpenTopic) -> list[int]:
    """Remove the partitions that were split, are empty, and have nothing open; return their numbers."""
    topic.refresh()
    gone = []
    for row in topic.tree:
        number = row.partition
        is_drained = row.state == "inactive" and _is_empty(topic, number) and not _is_open(topic, number)
        if is_drained and topic.growth.remove(number):
            gone.append(number)
    for row in topic.tree:
        if row.state == "removed":  # also what a process that died left behind
            _delete_folder(topic, row.partition)
    return gone


def _is_empty(topic: OpenTopic, number: int) -> bool:
    stored = topic.log(number).stored()
    return stored.start >= stored.end


def _is_open(topic: OpenTopic, number: int) -> bool:
    """Whether a reader has the partition, or a message of it waits for another attempt."""
    topic_id = topic.record.id
    for record in topic.consumers.of_topic(topic_id):
        if any(number in member.partitions for member in members(topic, record.name)):
            return True
        if topic.consumers.queues.next_free_ms(QueuePlace(record.name, topic_id, number)) is not None:
            return True
    return any(each.consumer is not None and each.partition == number for each in waiting_messages(topic))


def _delete_folder(topic: OpenTopic, number: int) -> None:
    parts = os.path.join(topic.folder, "parts")
    path = os.path.join(parts, f"{number:06d}")
    if topic.files.exists(path):
        aside = os.path.join(parts, f".{number:06d}-{secrets.token_hex(4)}")
        topic.files.rename(path, aside)
        topic.files.sync_dir(parts)
    for name in topic.files.listdir(parts):
        if name.startswith(f".{number:06d}-"):
            shutil.rmtree(os.path.join(parts, name), ignore_errors=True)
