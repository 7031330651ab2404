"""Who waits for something new: one call waits in Tarantool for all of a process, however many they are.

A waiting call takes one of the few places an instance has for calls, so there is one, and only while
somebody waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.errors import PenstockError
from penstock.tarantool.link import Link
from penstock.wake import LOOK_AGAIN_S

#: One call waits so long; then the next one does.
_WAIT_S = 10.0


class Watching:
    """Somebody waits, and is rung."""

    pause_s = LOOK_AGAIN_S


class News:
    """Rings all who wait when a message was published, whoever did it."""

    def __init__(self, link: Link, function: str) -> None:
        self._link = link
        self._function = function
        self._rings: list[Callable[[], None]] = []
        self._mutex = threading.Lock()
        self._round = 0

    @contextmanager
    def watching(self, ring: Callable[[], None]) -> Iterator[Watching]:
        """Have `ring` called soon after something was published."""
        with self._mutex:
            self._rings.append(ring)
            if len(self._rings) == 1:
                self._round += 1
                self._link.start(self._listen(self._round))
        try:
            yield Watching()
        finally:
            with self._mutex:
                self._rings.remove(ring)

    def _ring(self) -> None:
        with self._mutex:
            rings = list(self._rings)
        for ring in rings:
            ring()

    async def _listen(self, round: int) -> None:
        """Until nobody waits any more, or a later one listens."""
        seen = -1
        while self._rings and self._round == round:
            try:
                found = await self._link.called(self._function, max(seen, 0), _WAIT_S, waits_s=_WAIT_S)
            except PenstockError:
                await asyncio.sleep(LOOK_AGAIN_S)  # those who wait look for themselves, and are told
                continue
            if found > seen:
                seen = found
                self._ring()
