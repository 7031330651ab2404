"""Waiting for news of a topic: ring when somebody writes, and repair what a dead process left."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.topic.open_topic import OpenTopic
from penstock.wake import LOOK_AGAIN_S, Watch, watch


class TopicWatch:
    """Rings a bell when somebody writes to the topic, and when the store is closed."""

    def __init__(self, topic: OpenTopic, ring: Callable[[], None]) -> None:
        self._topic = topic
        self._ring = ring
        self._watch: Watch = self._watched()

    @property
    def pause_s(self) -> float:
        """How long to wait before looking again, rung or not."""
        return self._watch.pause_s

    def let_go(self) -> None:
        """Wake the thread that waits: the topic closes."""
        self._ring()

    def pause(self) -> None:
        """Stop ringing for writes until `go_on`, for a caller that looks often enough by itself."""
        self._watch.close()

    def go_on(self) -> None:
        """Have the bell rung again. What was written meanwhile was not rung: look afterwards."""
        self._watch = self._watched()

    def _watched(self) -> Watch:
        return watch(self._topic.log(0).folder.name("tail"), self._ring)

    def __enter__(self) -> TopicWatch:
        self._topic.readers.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._topic.readers.discard(self)
        self._watch.close()


class DeadWriterHelp:
    """Shows readers what a writer that died left behind: looks once a second, however many wait."""

    def __init__(self, topic: OpenTopic) -> None:
        self._topic = topic
        self._last = time.monotonic()

    def is_due(self) -> bool:
        """Whether a second has passed; true once for each."""
        now = time.monotonic()
        if now - self._last < LOOK_AGAIN_S:
            return False
        self._last = now
        return True

    def __call__(self) -> None:
        self._topic.help(0)
