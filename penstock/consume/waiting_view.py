"""The messages of a topic that wait, as they lie in the files: listed without taking any."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from penstock.consume.retries import decode
from penstock.delay import file_reader
from penstock.delay.records import WaitingRecord
from penstock.topic import delayed
from penstock.topic.delayed import PUBLISH, delay_root, retries_folder, retries_of
from penstock.topic.open_topic import OpenTopic


class WaitingMessage(NamedTuple):
    """A message that waits: for its consumer's next attempt, or (without a consumer) to enter its topic."""

    consumer: str | None
    #: None where the topic will choose it.
    partition: int | None
    #: None of a message that is not in the topic yet.
    offset: int | None
    #: How often it was tried.
    attempts: int
    #: In milliseconds since 1970.
    due_ms: int
    key: bytes | None
    last_error: str


def waiting_messages(topic: OpenTopic) -> Iterator[WaitingMessage]:
    """All of them, in no order."""
    for consumer, folder in retries_of(topic):
        for record in _records(folder, topic):
            found = decode(record.data)
            yield WaitingMessage(
                consumer, found.partition, found.offset, record.attempts, record.due, found.key,
                found.last_error,
            )  # fmt: skip
    for record in _records(os.path.join(delay_root(topic), PUBLISH), topic):
        each = delayed.decode(record.data)
        if each.topic_id == topic.record.id:
            yield WaitingMessage(None, each.partition, None, 0, record.due, each.key, "")


def anything_waits(topic: OpenTopic, consumer: str, partition: int) -> bool:
    """Whether messages of a partition wait for another attempt of a consumer, or are out for one."""
    return any(True for _ in _records(retries_folder(topic, consumer, partition), topic))


def _records(folder: str, topic: OpenTopic) -> Iterator[WaitingRecord]:
    if topic.files.exists(folder):
        yield from file_reader.records(folder, topic.files, file_reader.stored_states(folder, topic.files))
