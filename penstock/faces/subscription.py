"""Following a stream: what is new behind a place, again and again, by whoever waits for it.

A wake-up is only a hint. Who waits watches first, then looks, then waits, and looks again after a second at
the latest: a lost hint delays and never loses. Each look goes on until nothing is left, so that a burst is
delivered whole however few times it rang.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from penstock.faces.engine import Engine
from penstock.faces.streammessage import StreamMessage
from penstock.faces.subjects import Asked
from penstock.wake import Bell

T = TypeVar("T")

#: So many messages are taken at a time.
_AT_ONCE = 100


class News(NamedTuple):
    """There is something new."""

    subject: str
    latest_sequence: int
    #: How many messages lie behind the place that one follows from.
    new_count: int


class Following:
    """A place in a stream, and what comes behind it."""

    def __init__(self, engine: Engine, asked: Asked, subject: str, position: int) -> None:
        self._engine = engine
        self._asked = asked
        self._subject = subject
        self._position = position
        self._told = position

    def take(self) -> list[StreamMessage]:
        """The next messages; empty when there is nothing new."""
        found = self._engine.messages(self._asked, self._position + 1, _AT_ONCE)
        if found:
            self._position = found[-1].sequence
        return found

    def look(self) -> list[News]:
        """What is new if that was not told yet, and else nothing."""
        latest = self._engine.latest(self._asked)
        if latest <= self._told:
            return []
        self._told = latest
        return [News(self._subject, latest, self._engine.count(self._asked, self._position))]

    def up_to(self, stop: int) -> Iterator[StreamMessage]:
        """What there is up to the sequence `stop`."""
        while self._position < stop and (found := self.take()):
            for message in found:
                if message.sequence > stop:
                    return
                yield message


def followed(engine: Engine, take: Callable[[], list[T]], timeout_s: float | None) -> Iterator[T]:
    """What `take` gives, waiting for more whenever it gives nothing; ends when that took too long."""
    bell = Bell()
    with engine.watching(bell.ring) as watching:
        while True:
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            while not (found := take()):
                left = watching.pause_s if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return
                bell.wait(min(left, watching.pause_s))
                engine.help()
            yield from found
