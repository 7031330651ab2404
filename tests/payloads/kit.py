"""What the tests of payloads share."""

import os
from collections.abc import Iterator

import penstock
from tests.kit.topics import inside

KIB = 1024


def body(size: int) -> bytes:
    """Bytes like no others."""
    return os.urandom(size)


def objects(topic: penstock.Topic) -> list[str]:
    """Names of everything that lies outside the log, in all places of the topic."""
    stores = inside(topic).bodies.stores().values()
    return sorted(found.name for store in stores for found in store.list())


def referred(topic: penstock.Topic) -> set[str]:
    """Names of what messages refer to."""
    return {message.reference.name for message in messages(topic) if message.reference is not None}


def messages(topic: penstock.Topic) -> Iterator[penstock.Message]:
    return topic.scan().messages()


def values(topic: penstock.Topic) -> list[bytes | None]:
    return [message.value for message in messages(topic)]
