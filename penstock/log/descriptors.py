"""How many descriptors the logs of this process may have: a store may have more partitions than that.

An open log has a handful of files open. When more logs are awake than fit into a part of the limit that the
system sets (`ulimit -n`), those that were opened first give their files back, unless they are at work. They
open them again when they are used.
"""

from __future__ import annotations

import resource
import threading
import weakref
from typing import Protocol

from penstock.locks import forget_in_child

#: A log takes about six descriptors, and what it has mapped: so it is one for this many.
_SHARE_OF_ONE = 10
_LEAST = 16
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
        forget_in_child(self)

    def __len__(self) -> int:
        return len(self._logs)

    def add(self, log: Rests) -> None:
        """A log has opened its files; others may have to give theirs back."""
        with self._mutex:
            self._logs.pop(id(log), None)
            self._logs[id(log)] = weakref.ref(log)
            surplus = len(self._logs) - self.most()
            others = list(self._logs.items())[:-1] if surplus > 0 else []
        for number, found in others:
            if surplus <= 0:
                break
            other = found()
            if other is None or other.rest():
                self._forget(number, found)
                surplus -= 1

    def discard(self, log: Rests) -> None:
        """A log was closed."""
        with self._mutex:
            self._logs.pop(id(log), None)

    def most(self) -> int:
        """How many may be awake."""
        return max(_limit() // _SHARE_OF_ONE, _LEAST)

    def mapped_most(self) -> int:
        """How many sealed segments a log may keep mapped; each holds a descriptor."""
        return max(1, min(_MAPPED_MOST, _limit() // _MAPPED_SHARE // max(len(self._logs), 1)))

    def after_fork_in_child(self) -> None:
        """Forget the parent's logs: a child opens its own."""
        self._mutex = threading.RLock()
        self._logs = {}

    def _forget(self, number: int, found: weakref.ref[Rests]) -> None:
        with self._mutex:
            if self._logs.get(number) is found:
                del self._logs[number]


def _limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 2**20


AWAKE = AwakeLogs()
