"""How many descriptors the logs of this process may have: a store may have more partitions than that.

An open log has a handful of files open. When more logs are awake than fit into a part of the limit that the
system sets (`ulimit -n`), or 256 of one topic, those that were opened first give their files back, unless
they are at work. They open them again when they are used.
"""

from __future__ import annotations

import resource
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from penstock.locks import forget_in_child

#: A log takes about six descriptors, and what it has mapped: so it is one for this many.
_SHARE_OF_ONE = 10
_LEAST = 16
#: So many logs of one topic are awake at most, whatever the system allows.
TOPIC_MOST = 256
#: A quarter of the descriptors is for sealed segments that stay mapped; so many at most for one log.
_MAPPED_SHARE, _MAPPED_MOST = 4, 64


class Rests(Protocol):
    """A log: it lies above this module, which only asks it to rest."""

    def rest(self) -> bool:
        """Give all descriptors back; False when someone is at work."""


class AwakeLogs:
    """The logs of this process that have their files open, in the order in which they opened them."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._logs: dict[int, weakref.ref[Rests]] = {}
        self._topics: dict[int, str] = {}
        self._counts: Counter[str] = Counter()
        forget_in_child(self)

    def __len__(self) -> int:
        return len(self._logs)

    def add(self, log: Rests, topic: str = "") -> None:
        """A log of a topic has opened its files; others may have to give theirs back."""
        with self._mutex:
            self._drop(id(log))
            self._logs[id(log)] = weakref.ref(log)
            self._topics[id(log)] = topic
            self._counts[topic] += 1
            surplus, of_topic = len(self._logs) - self.most(), self._counts[topic] - TOPIC_MOST
            others = list(self._logs.items())[:-1] if surplus > 0 or of_topic > 0 else []
            if surplus <= 0:  # only the topic has too many
                others = [each for each in others if self._topics[each[0]] == topic]
        self._rest(others, max(surplus, of_topic))

    def _rest(self, others: Sequence[tuple[int, weakref.ref[Rests]]], surplus: int) -> None:
        """Have so many of these logs give their files back, the first ones first."""
        for number, found in others:
            if surplus <= 0:
                return
            other = found()
            if other is None or other.rest():
                with self._mutex:
                    if self._logs.get(number) is found:
                        self._drop(number)
                surplus -= 1

    def discard(self, log: Rests) -> None:
        """A log was closed."""
        with self._mutex:
            self._drop(id(log))

    def _drop(self, number: int) -> None:
        if self._logs.pop(number, None) is not None:
            topic = self._topics.pop(number)
            self._counts[topic] -= 1
            if not self._counts[topic]:
                del self._counts[topic]

    def most(self) -> int:
        """How many logs may have their files open."""
        return max(_limit() // _SHARE_OF_ONE, _LEAST)

    def mapped_most(self) -> int:
        """How many sealed segments a log may keep mapped; each holds a descriptor."""
        return max(1, min(_MAPPED_MOST, _limit() // _MAPPED_SHARE // max(len(self._logs), 1)))

    def after_fork_in_child(self) -> None:
        """Forget the parent's logs: a child opens its own."""
        self._mutex = threading.RLock()
        self._logs, self._topics, self._counts = {}, {}, Counter()


def _limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 2**20


AWAKE = AwakeLogs()
