"""Where a pipeline stands in its source: positions of a consumer that move with what it writes.

Reading, writing and moving on are one transaction each, so whatever happens, what was read is written
once. The consumer has the pipeline's name, and shows how far behind it is.

    pipelines/<name>/begun      where the pipeline began: JSON, partition -> offset

A pipeline that was dropped and is made again begins anew, although its consumer stayed: `begun` went with
its folder. It is durable before anything is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from penstock.consume.removed_parents import refuse_left_behind
from penstock.errors import AlreadyExists
from penstock.files import Files
from penstock.place import EARLIEST, Place
from penstock.state.consumers import ConsumerOptions, Position
from penstock.state.transactions import PositionUpdate, Transactions
from penstock.store.pipelines import PipelineRun
from penstock.store.topic import Topic
from penstock.store.transaction import Transaction

_BEGUN = "begun"


class PipelinePosition:
    """A run's positions in the topic that it reads. Another reader of its consumer loses its place."""

    def __init__(self, topic: Topic[Any], run: PipelineRun, start: Place = "earliest") -> None:
        self._open_topic = topic.open_topic
        self._consumer = run.name
        self._open_topic.refresh()
        refuse_left_behind(self._open_topic, self._consumer)
        self.began = self._begin(run.folder, start)
        self._stored = self._take()
        #: The next offset to be read, by partition.
        self.at = {number: stored.position for number, stored in self._stored.items()}
        self._moving: dict[int, int] = {}

    @property
    def is_at_begin(self) -> bool:
        """Whether nothing was done yet, in this run or an earlier one."""
        return all(at == self.began.get(number, at) for number, at in self.at.items())

    @property
    def transactions(self) -> Transactions:
        """The transactions of the store."""
        return self._open_topic.transactions

    def move(self, tx: Transaction, to: Mapping[int, int]) -> None:
        """Have the positions be there once the transaction is committed."""
        self._moving = {number: at for number, at in to.items() if at != self.at[number]}
        tx.enlist(self)

    def moves(self, tx: Transaction) -> list[PositionUpdate]:
        """Return how the positions change with the commit."""
        topic_id = self._open_topic.record.id
        return [
            PositionUpdate(self._consumer, topic_id, number, self._stored[number].epoch, self.at[number], to)
            for number, to in self._moving.items()
        ]

    def committed(self, tx: Transaction) -> None:
        """Take note that the commit has happened: the positions have moved."""
        self.at.update(self._moving)

    def rolled_back(self, tx: Transaction) -> None:
        """Forget the moves: the positions stay."""
        self._moving = {}

    def _begin(self, folder: str, start: Place) -> dict[int, int]:
        path = os.path.join(folder, _BEGUN)
        try:
            with open(path, encoding="ascii") as file:
                return {int(number): at for number, at in json.load(file).items()}
        except FileNotFoundError:
            pass
        begin = self._open_topic.begin_all(start, self._open_topic.clock.now_ns())
        self._put(begin)
        keep_durably(self._open_topic.files, path, json.dumps(begin).encode())
        return begin

    def _put(self, begin: dict[int, int]) -> None:
        """Make the consumer, or bring the one there is to the beginning."""
        consumers, topic_id = self._open_topic.consumers, self._open_topic.record.id
        now = self._open_topic.clock.now_ns()
        try:
            consumers.add(self._consumer, topic_id, ConsumerOptions(), begin, now)
        except AlreadyExists:
            for number, at in begin.items():
                consumers.begin(self._consumer, topic_id, number, at, now)
            consumers.seek(self._consumer, topic_id, begin, now)

    def _take(self) -> dict[int, Position]:
        """Take all partitions over; those that were added later begin at their first offset."""
        partitions, topic_id = self._open_topic, self._open_topic.record.id
        now = partitions.clock.now_ns()
        numbers = partitions.numbers()
        known = {stored.partition for stored in partitions.consumers.positions(topic_id, self._consumer)}
        for number in numbers:
            if number not in known:
                first = partitions.log(number).resolve(EARLIEST)
                partitions.consumers.begin(self._consumer, topic_id, number, first, now)
        return partitions.consumers.take(self._consumer, topic_id, numbers)


def keep_durably(files: Files, path: str, data: bytes) -> None:
    """Put a small file into a pipeline's folder, whole or not at all, on the disk when this returns."""
    draft = f"{path}.new"
    fd = files.open(draft, create=True)
    try:
        files.truncate(fd, 0)  # a process that died may have left one
        files.pwrite(fd, data, 0)
        files.sync(fd)
    finally:
        files.close(fd)
    files.rename(draft, path)
    folder = os.path.dirname(path)
    for _ in range(3):  # it, and the names of the folders on the way to it
        files.sync_dir(folder)
        folder = os.path.dirname(folder)
