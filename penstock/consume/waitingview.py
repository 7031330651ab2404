"""What waits of a topic, as it lies in the files, for whoever only looks: no lock, nothing taken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from penstock.consume import envelope
from penstock.delay import view
from penstock.delay.records import Record
from penstock.topic import delayed
from penstock.topic.delayfolders import PUBLISH, delay_root, retries_of
from penstock.topic.partitions import Partitions


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


def waiting_messages(topic: Partitions) -> Iterator[WaitingMessage]:
    """All of them, in no order."""
    for consumer, folder in retries_of(topic):
        for record in _records(folder, topic):
            found = envelope.decode(record.data)
            yield WaitingMessage(
                consumer, found.partition, found.offset, record.attempts, record.due, found.key,
                found.last_error,
            )  # fmt: skip
    for record in _records(os.path.join(delay_root(topic), PUBLISH), topic):
        each = delayed.decode(record.data)
        if each.topic_id == topic.record.id:
            yield WaitingMessage(None, each.partition, None, 0, record.due, each.key, "")


def _records(folder: str, topic: Partitions) -> Iterator[Record]:
    if topic.files.exists(folder):
        yield from view.records(folder, topic.files, view.states(folder, topic.files))
