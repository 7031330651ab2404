"""A stream's progress under a consumer's name: seen with its lag, and waited for by retention.

Where the query stands is decided by Spark's checkpoint alone; the consumer follows it. A query has its
consumer for itself: two would move one position to and fro.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from penstock.claims import Claimed, claim
from penstock.errors import AlreadyExists, PartitionLost
from penstock.spark.admission import Positions
from penstock.state.consumers import ConsumerOptions
from penstock.topic.partitions import Partitions

#: A query that was stopped a moment ago needs a moment to let go.
_WAIT_S = 5.0


class Progress:
    """The consumer of one running query."""

    def __init__(self, consumer: str, *, important: bool | None, wait_s: float = _WAIT_S) -> None:
        self._consumer = consumer
        self._important = important
        self._wait_s = wait_s
        #: Lock files by the topic's id; held as long as this process has them open.
        self._held: dict[int, int] = {}
        self._epochs: dict[tuple[int, int], int] = {}
        self._stored: dict[tuple[int, int], int] = {}

    def claim(self, topics: Mapping[str, Partitions]) -> None:
        """Have the consumer for this query alone; raises `PartitionLost` when another one has it."""
        for partitions in topics.values():
            if partitions.record.id not in self._held:
                self._held[partitions.record.id] = self._lock(partitions)

    def keep(self, positions: Positions, topics: Mapping[str, Partitions]) -> None:
        """Everything before these positions is done; raises `PartitionLost` when someone moved them."""
        self.claim(topics)
        for topic, partitions in topics.items():
            numbers = {number: at for (name, number), at in positions.items() if name == topic}
            topic_id = partitions.record.id
            known = {number for other, number in self._epochs if other == topic_id}
            if not known and numbers:
                self._declare(partitions, numbers)
            else:
                self._store(partitions, numbers)

    def close(self) -> None:
        """Let another query have the consumer; its positions stay."""
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()

    def _declare(self, partitions: Partitions, numbers: dict[int, int]) -> None:
        """Make the consumer, or bring the one there is to where the query begins."""
        consumers, topic_id = partitions.consumers, partitions.record.id
        now = partitions.clock.now_ns()
        try:
            options = ConsumerOptions(important=bool(self._important))
            consumers.add(self._consumer, topic_id, options, numbers, now)
        except AlreadyExists:
            there = next(r for r in consumers.of_topic(topic_id) if r.name == self._consumer)
            if self._important not in (None, there.options.important):
                consumers.alter(
                    self._consumer, topic_id, replace(there.options, important=bool(self._important))
                )
            for number, at in numbers.items():
                consumers.begin(self._consumer, topic_id, number, at, now)
            consumers.seek(self._consumer, topic_id, numbers, now)
        self._learn(partitions, numbers)

    def _store(self, partitions: Partitions, numbers: dict[int, int]) -> None:
        topic_id, now = partitions.record.id, partitions.clock.now_ns()
        fresh = {number: at for number, at in numbers.items() if (topic_id, number) not in self._epochs}
        for number, at in fresh.items():
            partitions.consumers.begin(self._consumer, topic_id, number, at, now)
        if fresh:
            self._learn(partitions, fresh)
        for number, at in numbers.items():
            if at > self._stored.get((topic_id, number), -1):
                epoch = self._epochs[topic_id, number]
                partitions.consumers.commit(self._consumer, topic_id, number, at, epoch, now)
                self._stored[topic_id, number] = at

    def _learn(self, partitions: Partitions, numbers: dict[int, int]) -> None:
        """Take over the epochs of these partitions: whoever counts them up later has taken them from us."""
        topic_id = partitions.record.id
        for stored in partitions.consumers.positions(topic_id, self._consumer):
            if stored.partition in numbers:
                self._epochs[topic_id, stored.partition] = stored.epoch
                self._stored[topic_id, stored.partition] = stored.position

    def _lock(self, partitions: Partitions) -> int:
        try:
            return claim(os.path.join(partitions.folder, "queries", self._consumer), self._wait_s)
        except Claimed as taken:
            raise self._taken(partitions.name, taken) from None

    def _taken(self, topic: str, taken: Claimed) -> PartitionLost:
        return PartitionLost(
            f"consumer {self._consumer!r} of {topic!r} is used by another running query{taken}",
            hint="stop it, or give this one a consumer of its own",
        )
