"""Where messages of `penstock write` go, and what all of them have in common."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from penstock import Store, Topic, Writer
from penstock.cli import output
from penstock.errors import InvalidOption, MessageTooLarge, UnknownTopic
from penstock.options import TopicOptions
from penstock.topic.delayed import due_at
from penstock.topic.input import batch_of_one


class Common(NamedTuple):
    """What all messages of the call have in common."""

    key: bytes | None
    headers: dict[str, str] | None
    partition: int | None
    timestamp: int | None
    delay: str | None
    deliver_at: int | None

    @property
    def waits(self) -> bool:
        """Whether messages enter the topic later."""
        return self.delay is not None or self.deliver_at is not None


class Sender(NamedTuple):
    """Under which names the messages are written."""

    producer: str | None
    group: str | None
    #: The seqno of the first one; None leaves counting to the writer.
    first: int | None
    #: How values are packed; None stores them as they are.
    codec: str | None

    def writer(self, topic: Topic) -> Writer:
        """A writer under these names."""
        return topic.writer(producer_id=self.producer, group=self.group, codec=self.codec)


def check(value: bytes | None, common: Common) -> None:
    """Raise for arguments that no topic would take, before a store or a topic is made."""
    batch_of_one(value, common.key, common.headers, common.timestamp, common.partition, limit=2**62)
    due_at_of(common)


def due_at_of(common: Common) -> int | None:
    """When what is delayed enters the topic; None for now."""
    due = due_at(common.delay, common.deliver_at, time.time_ns()) if common.waits else None
    return None if due is None else due.at_ms * 1_000_000


def topic_to_write(store: Store, name: str, partition: int | None, value_bytes: int) -> Topic:
    """The topic, made if it is not there."""
    try:
        return store.topic(name)
    except UnknownTopic:
        refuse_in_new_topic(name, partition, value_bytes)
        topic = store.create_topic(name, exists_ok=True)
        output.say(f"created topic {name} (1 partition)")
        return topic


def refuse_in_new_store(store: str, name: str, partition: int | None, value_bytes: int) -> None:
    """Fail before a store is made for a message that it could not take."""
    if not os.path.exists(os.path.join(store, "state.db")):
        refuse_in_new_topic(name, partition, value_bytes)


def refuse_in_new_topic(name: str, partition: int | None, value_bytes: int) -> None:
    """Raise for a message that a topic made for it could not take."""
    limit = TopicOptions().max_message_bytes
    if partition:
        raise InvalidOption(
            f"topic {name!r} is not there, and a new one has partition 0 only",
            hint=f"`penstock topic create {name} --partitions {partition + 1}` makes it first",
        )
    if value_bytes > limit:
        raise MessageTooLarge(f"a value of {value_bytes} bytes is over the limit of {limit} for a new topic")
