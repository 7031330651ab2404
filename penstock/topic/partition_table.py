"""`PartitionTable`: where a key's messages may lie since partitions were added, to find those sent again.

When a partition is added, keys may move to it. A message that was stored before and is sent again must be
found where it was: it is a duplicate if its seqno is not above the highest that the key's earlier
partition held *at that moment*. What that partition got later, of other keys, does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from penstock.log.log import Log
from penstock.log.producer_table import NOTHING, ProducerTable
from penstock.log.producers import Pair, gate_facts
from penstock.state.topics import TopicRecord
from penstock.topic.routing import PARTITIONERS, Partitioner, Route


class PartitionTable:
    """The times partitions were added to a topic, oldest first, and what was known of producers then."""

    def __init__(
        self, record: Callable[[], TopicRecord], gates: Callable[[int], Mapping[int, dict[int, int]]],
        log: Callable[[int], Log],
    ) -> None:  # fmt: skip
        self._record = record
        self._gates = gates
        self._log = log
        self._tree = 0
        #: (number of partitions before, where each of them ended)
        self._times: list[tuple[int, dict[int, int]]] = []
        self._facts: dict[tuple[int, int], ProducerTable | None] = {}

    def stored_elsewhere(self, route: Route, pair: Pair, choose: Partitioner | None) -> list[int]:
        """Which messages of a share, routed by their keys, an earlier partition of theirs holds."""
        choose = choose or PARTITIONERS[self._record().options.partitioner]
        found: set[int] = set()
        for count, ends in self._looked_up():
            highest = {
                number: self._known(number, end, pair)
                for number, end in ends.items()
                if number != route.partition
            }
            for place, key, seqno in _placed_by_key(route, max(highest.values(), default=-1)):
                if seqno <= highest.get(choose(key, count), -1):
                    found.add(place)
        return sorted(found)

    def outnumbered(self, route: Route, pair: Pair, choose: Partitioner | None) -> list[int]:
        """Which messages of a share came here by their keys later than others with higher seqnos.

        Keys that came from elsewhere may have seqnos which this partition had passed with other keys before:
        its highest does not tell whether they are stored.
        """
        choose = choose or PARTITIONERS[self._record().options.partitioner]
        found: set[int] = set()
        for count, ends in self._looked_up():
            end = ends.get(route.partition)
            passed = -1 if end is None else self._known(route.partition, end, pair)
            for place, key, _ in _placed_by_key(route, passed):
                if choose(key, count) != route.partition:
                    found.add(place)
        return sorted(found)

    def _known(self, partition: int, end: int, pair: Pair) -> int:
        """The highest seqno of the pair in a partition at that moment, or -1."""
        key = partition, end
        if key not in self._facts:
            self._facts[key] = gate_facts(self._log(partition).folder, end)
        facts = self._facts[key]
        return (NOTHING if facts is None else facts.get(pair)).seqno

    def _looked_up(self) -> list[tuple[int, dict[int, int]]]:
        record = self._record()
        if record.tree != self._tree:
            parents = self._gates(record.id).values()
            times = {len(ends): ends for ends in parents}
            self._times, self._tree = sorted(times.items()), record.tree
        return self._times


def _placed_by_key(route: Route, most: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield (place, key, seqno) of messages whose keys chose the partition, up to a seqno."""
    keys, seqnos = route.columns.keys, route.columns.seqnos
    assert keys is not None
    assert seqnos is not None
    for place, (key, seqno) in enumerate(zip(keys, seqnos, strict=True)):
        if seqno is None or seqno > most:
            return
        if key is not None and not (route.chosen and route.chosen[place] is not None):
            yield place, key, seqno
