"""Find messages that a producer sends again, to another partition than the first time.

A partition knows the highest seqno of each producer and group that it holds. That is enough as long as a
message takes the same way whenever it is sent. A caller may choose another partition, though, and a binding
may have been forgotten. Then the other partitions are asked: first for the highest that they held when this
writer began, which is enough for all that is new, and for the rest whether they hold the message itself. The
highest alone must not decide: after a crash between two partitions one of them lacks what the other numbered
higher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from penstock.locks import hold
from penstock.log.append import Appended
from penstock.log.log import Log
from penstock.log.producers import Pair
from penstock.log.seqno_search import SeqnoSearch
from penstock.topic.producer import Producer


class StoredBefore(NamedTuple):
    """Messages of a share that another partition holds: which ones, and how far it must be synced."""

    partition: int
    places: list[int]
    end: Appended


def search(log: Log, pair: Pair, lowest: int) -> SeqnoSearch:
    """The seqnos of a pair that a partition holds now."""
    found = SeqnoSearch(log, pair, lowest)
    ends = hold((log.folder.append,), log.appender.ready)
    found.look(ends.append, ends.durable.cuts)
    return found


class Resends:
    """What the partitions of one topic held of a producer when its writers began."""

    def __init__(self, logs: Callable[[], Sequence[Log]], active: Callable[[], Sequence[Log]]) -> None:
        self._logs = logs
        #: Those that can be written to: they know all that was known of producers where they came from.
        self._active = active
        #: Writer → pair → the highest seqno of each partition when it first asked.
        self._highest: WeakKeyDictionary[Producer, dict[Pair, dict[int, int]]] = WeakKeyDictionary()
        #: Writer → (pair, partition) → the seqnos there, from the first that was asked for.
        self._stored: WeakKeyDictionary[Producer, dict[tuple[Pair, int], SeqnoSearch]] = WeakKeyDictionary()

    def home(self, pair: Pair, earlier: int | None) -> int | None:
        """The partition of a pair whose binding was forgotten; None when no partition holds messages of it.

        It is the earlier one, or the one with the highest seqno.
        """
        if not pair.id:
            return None
        held = _held(pair, self._active())
        if earlier is not None and held.get(earlier, -1) >= 0:
            return earlier
        seqno, beside = max(((seqno, -number) for number, seqno in held.items()), default=(-1, 0))
        return None if seqno < 0 else -beside  # of equals the first: the others know it from there

    def found(
        self, producer: Producer, pair: Pair, partition: int, seqnos: Sequence[int], places: Sequence[int]
    ) -> list[StoredBefore]:
        """Which of these places, whose seqnos ascend, hold messages that lie in another partition."""
        pairs = self._highest.setdefault(producer, {})
        if pair not in pairs:
            pairs[pair] = _held(pair, self._logs())
        before: list[StoredBefore] = []
        for number, highest in pairs[pair].items():
            asked = [place for place in places if seqnos[place] <= highest] if number != partition else []
            if asked:
                stored = self._stored_in(number, producer, pair, seqnos[asked[0]])
                own = [place for place in asked if seqnos[place] in stored.found]
                if own:
                    before.append(StoredBefore(number, own, stored.end))
                    places = sorted(set(places) - set(own))
        return before

    def _stored_in(self, number: int, producer: Producer, pair: Pair, lowest: int) -> SeqnoSearch:
        """Return the seqnos of a pair that a log holds; read once a writer, whose later ones are higher."""
        stored = self._stored.setdefault(producer, {})
        if (pair, number) not in stored:
            log = next(log for log in self._logs() if log.partition == number)
            stored[pair, number] = search(log, pair, lowest)
        return stored[pair, number]


def _held(pair: Pair, logs: Sequence[Log]) -> dict[int, int]:
    """The highest seqno of a pair in each of these logs, or -1."""
    return {log.partition: log.appender.known(pair).seqno for log in logs}
