"""What a topic asks of whoever holds its messages until they are due."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from penstock.topic.open_topic import OpenTopic


DELAY = "delay"
RETRIES, PUBLISH, SESSIONS = "retries", "publish", "sessions"


def delay_root(topic: OpenTopic) -> str:
    """The folder of all waiting messages of the store that a topic is in."""
    return os.path.join(os.path.dirname(os.path.dirname(topic.folder)), DELAY)


def retries_folder(topic: OpenTopic, consumer: str, partition: int) -> str:
    """Where messages of one partition wait for another attempt of a consumer."""
    return os.path.join(_of_consumer(topic, consumer), str(partition))


def retries_of(topic: OpenTopic) -> list[tuple[str, str]]:
    """(consumer, folder) of all that ever waited for another attempt."""
    root, files = _of_topic(topic), topic.files
    return [
        (consumer, os.path.join(root, consumer, partition))
        for consumer in (sorted(files.listdir(root)) if files.exists(root) else ())
        for partition in files.listdir(os.path.join(root, consumer))
    ]


def forget_consumer(topic: OpenTopic, consumer: str) -> None:
    """The consumer was dropped: what it wanted to try again goes with it."""
    shutil.rmtree(_of_consumer(topic, consumer), ignore_errors=True)


def forget_topic(topic: OpenTopic) -> None:
    """The topic was dropped, and so is what its consumers wanted to try again."""
    shutil.rmtree(_of_topic(topic), ignore_errors=True)


def _of_consumer(topic: OpenTopic, consumer: str) -> str:
    return os.path.join(_of_topic(topic), consumer)


def _of_topic(topic: OpenTopic) -> str:
    return os.path.join(delay_root(topic), RETRIES, str(topic.record.id))


class DelaysMessages(Protocol):
    """What holds messages until they are due (`penstock.topic.delayed.Delayed`)."""

    def add(self, topic: str, messages: Sequence[Any]) -> None: ...

    def prepare(self) -> None: ...

    def bring_in(self) -> None: ...

    def look(self) -> None: ...


class NoDelays:
    """For a topic outside a store, or in one that may only be read."""

    def add(self, topic: str, messages: Sequence[Any]) -> None:
        raise AssertionError("a topic outside a store delays nothing")

    def prepare(self) -> None:
        raise AssertionError("a topic outside a store delays nothing")

    def bring_in(self) -> None:
        pass

    def look(self) -> None:
        pass
