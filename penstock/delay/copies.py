"""Copies of messages that are out: stored again so that the read position can move on behind them.

The copy lies at the end of a chain and is met there again when it is due. If the message is still out then,
it belongs to that place from now on; if it was finished meanwhile, so is the copy; and if the process died,
the copy is the message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.delay.chain import Chain
from penstock.delay.ladder import Ladder
from penstock.delay.records import Entry, blocks, some_columns
from penstock.delay.window import Home, Taken, Window

#: After a crash a message that was copied comes back no later than this.
_WAIT_MAX_MS = 60_000


class Copies:
    """Where the copies of what is out lie."""

    def __init__(self, ladder: Ladder, chain: Callable[[int], Chain], limbo: Home) -> None:
        self._ladder = ladder
        self._chain = chain
        self._limbo = limbo
        self._by_spot: dict[tuple[str, int], Taken] = {}

    @property
    def are_there(self) -> bool:
        return bool(self._by_spot)

    def make(self, window: Window, now: int) -> None:
        """Store again, durably, what is unfinished before something finished; it is done in this file."""
        by_wait: dict[int, list[int]] = {}
        for place in window.unfinished():
            by_wait.setdefault(self._wait(window.records[place], now), []).append(place)
        for wait, places in by_wait.items():
            taken = [window.records[place] for place in places]
            spots = self._store([Entry(wait, t.id, t.topic, t.attempts, t.data) for t in taken], wait, now)
            for place, each, spot in zip(places, taken, spots, strict=True):
                self._by_spot[spot] = each
                window.leave(place)
                each._home = self._limbo

    def find(self, window: Window, found: Sequence[Taken]) -> tuple[list[Taken], list[Taken]]:
        """Of the last records of a window: those that are no copies, and copies of what is finished.

        The others are out: they lie here now.
        """
        fresh: list[Taken] = []
        finished: list[Taken] = []
        for place, taken in enumerate(found, window.next - len(found)):
            original = self._by_spot.pop((window.name, taken._at), None)
            if original is None:
                fresh.append(taken)
            elif original._is_done:
                finished.append(taken)
            else:
                original._home, original._at = window, taken._at
                window.records[place] = original
        return fresh, finished

    def _store(self, entries: Sequence[Entry], wait: int, now: int) -> list[tuple[str, int]]:
        """The file and byte of each."""
        rung = self._ladder.rung(wait)
        chain, made = self._chain(rung), blocks(some_columns(entries), rung)
        stored = chain.append(made, now)
        for place in stored:
            chain.sync(place)
        return [
            (place.name, place.begin + begin)
            for place, block in zip(stored, made, strict=True)
            for begin in block.begins()
        ]

    def _wait(self, taken: Taken, now: int) -> int:
        """The longer it has been out, the longer until its copy is looked at."""
        if taken.due > now:
            return taken.due - now
        return max(self._ladder.rung(min(now - taken.due, _WAIT_MAX_MS)), self._ladder.smallest)
