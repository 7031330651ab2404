"""`Copies`: messages that are out for long, stored again, so that the read position can move past them.

While a message is out, those behind it may be finished. The read position stands before it, so a crash
would bring those again. Stored again elsewhere, the message is done in this file; when its copy comes due
here and the message is still out, the copy takes the place of the one that was left.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.delay.chain import Chains
from penstock.delay.file_names import rung
from penstock.delay.records import NewRecord, blocks, some_columns
from penstock.delay.window import TakenMessage, Window

#: After a crash a message that was copied comes back no later than this.
_WAIT_MAX_MS = 60_000


class Copies:
    """Where the copies of what is out lie."""

    def __init__(self, chains: Chains) -> None:
        self._chains = chains
        self._by_spot: dict[tuple[str, int], TakenMessage] = {}

    @property
    def are_there(self) -> bool:
        """Whether there are any copies."""
        return bool(self._by_spot)

    def make(self, window: Window, now: int) -> None:
        """Store again, durably, what is unfinished before something finished; it is done in this file."""
        by_wait: dict[int, list[int]] = {}
        for place in window.unfinished():
            by_wait.setdefault(self._wait(window.records[place], now), []).append(place)
        for wait, places in by_wait.items():
            taken = [window.records[place] for place in places]
            spots = self._store(
                [NewRecord(wait, t.id, t.topic, t.attempts, t.data) for t in taken], wait, now
            )
            for place, each, spot in zip(places, taken, spots, strict=True):
                self._by_spot[spot] = each
                window.leave(place)
                each.window = None

    def find(
        self, window: Window, found: Sequence[TakenMessage]
    ) -> tuple[list[TakenMessage], list[TakenMessage]]:
        """Of the last records of a window: those that are no copies, and copies of what is finished.

        The others are out: they lie here now.
        """
        fresh: list[TakenMessage] = []
        finished: list[TakenMessage] = []
        for place, taken in enumerate(found, window.next - len(found)):
            original = self._by_spot.pop((window.name, taken.byte), None)
            if original is None:
                fresh.append(taken)
            elif original.is_done:
                finished.append(taken)
            else:
                original.window, original.byte = window, taken.byte
                window.records[place] = original
        return fresh, finished

    def _store(self, entries: Sequence[NewRecord], wait: int, now: int) -> list[tuple[str, int]]:
        """Store copies on the ladder, durably; the file and byte of each."""
        delay = self._chains.ladder.rung(wait)
        made = blocks(some_columns(entries), delay)
        stored = self._chains.append([(self._chains.chain(rung(delay)), made)], now)
        self._chains.sync(stored)
        return [
            (place.name, place.begin + begin)
            for (_, place), block in zip(stored, made, strict=True)
            for begin in block.begins()
        ]

    def _wait(self, taken: TakenMessage, now: int) -> int:
        """The longer it has been out, the longer until its copy is looked at."""
        if taken.due > now:
            return taken.due - now
        ladder = self._chains.ladder
        return max(ladder.rung(min(now - taken.due, _WAIT_MAX_MS)), ladder.smallest)
