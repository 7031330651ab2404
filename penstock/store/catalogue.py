"""The topics of a store as one process has them: made, opened once, dropped, and closed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from penstock.clock import Clock
from penstock.errors import InvalidOption, TopicReplaced
from penstock.files import Files
from penstock.locks import FORKED
from penstock.options import TopicOptions
from penstock.state.consumers import Consumers
from penstock.state.topics import TopicRecord, Topics
from penstock.state.transactions import Transactions
from penstock.store.folders import TopicFolders
from penstock.topic.delays import DelaysMessages
from penstock.topic.housekeeper import Housekeeper
from penstock.topic.partitions import Partitions


class Catalogue:
    """Finds topics by their records; each that is open is open once."""

    def __init__(
        self, records: Topics, consumers: Consumers, transactions: Transactions, folders: TopicFolders,
        files: Files, clock: Clock, *, read_only: bool,
    ) -> None:  # fmt: skip
        self._records = records
        self._consumers = consumers
        self._transactions = transactions
        self._folders = folders
        self._files = files
        self._clock = clock
        self._read_only = read_only
        self._mutex = threading.Lock()
        self._opened: dict[int, Partitions] = {}
        self.housekeeper = Housekeeper()
        #: What topics are given when they are opened: who holds their delayed messages, and their neighbours.
        self.delayed: DelaysMessages | None = None
        self.neighbour: Callable[[str, dict[str, Any]], Partitions] | None = None

    def create(self, name: str, options: TopicOptions) -> Partitions:
        """Make a topic with its partitions; raises `AlreadyExists`."""
        leftover = self._folders.path(name)
        partitions = self.open(
            self._records.create(
                name, options, self._clock.now_ns(), before=lambda: self._folders.put_away(leftover)
            )
        )
        partitions.logs()
        return partitions

    def open(self, record: TopicRecord) -> Partitions:
        """The topic of a record."""
        with self._mutex:
            partitions = self._opened.get(record.id)
            if partitions is None:
                partitions = Partitions(
                    self._folders.path(record.name), record, self._records, self._consumers,
                    self._transactions, self._files, self._clock, read_only=self._read_only,
                )  # fmt: skip
                partitions.on_roll = lambda number, opened=partitions: self.housekeeper.add(opened, number)  # type: ignore[misc]
                if self.neighbour is not None:
                    partitions.neighbour = self.neighbour
                if self.delayed is not None:
                    partitions.delayed = self.delayed
                self._opened[record.id] = partitions
            return partitions

    def by_id(self, topic_id: int) -> Partitions:
        """The topic of an id; raises `TopicReplaced` when it was dropped."""
        return self.open(self._records.by_id(topic_id))

    def is_gone(self, topic_id: int) -> bool:
        """Whether a topic was dropped."""
        try:
            self._records.by_id(topic_id)
        except TopicReplaced:
            return True
        return False

    def drop(self, partitions: Partitions) -> None:
        """Remove a topic with its messages and positions; who has it open gets `TopicReplaced`."""
        record, folder = partitions.record, self._folders.path(partitions.name)
        partitions.publish_dropped(
            lambda: self._records.drop(record.id, after=lambda: self._folders.put_away(folder))
        )
        with self._mutex:
            self._opened.pop(record.id, None)
        partitions.close("the topic was dropped")
        self._folders.remove_put_away()

    def remove_abandoned(self) -> None:
        """Remove folders of topics whose making or dropping a process did not live to finish."""
        if self._folders.look_abandoned(self._records.names()):
            self._records.sweep(self._folders.put_away_all_but)
            self._folders.remove_put_away()

    def finish_transactions(self) -> None:
        """Bring in what processes that died had committed; whoever is at it now is left alone."""
        for topic_id, number in self._transactions.unfinished():
            try:
                self.by_id(topic_id).log(number).finish_transactions()
            except TopicReplaced:
                continue  # dropped at this moment

    def close_writers(self) -> None:
        """Close all writers, also when one of them fails."""
        with ExitStack() as writers:
            for partitions in list(self._opened.values()):
                for writer in list(partitions.writers):
                    writers.callback(writer.close)

    def settle(self) -> None:
        """With sync="os" everything goes to disk on a clean close."""
        for partitions in self._opened.values():
            if not self._read_only and partitions.options.sync == "os":
                _settle(partitions)

    def close(self) -> None:
        """Let go of all files."""
        for partitions in self._opened.values():
            partitions.close()

    def abandon(self) -> None:
        """In a forked child: all of it is the parent's."""
        for partitions in self._opened.values():
            partitions._closed = FORKED
            partitions._logs = {}
        self._opened = {}


def refuse_other_options(name: str, there: TopicOptions, wanted: Mapping[str, Any]) -> None:
    """Raise when a topic that exists was asked for with other options."""
    differing = [
        f"{field}={getattr(there, field)!r} there, {value!r} asked"
        for field, value in wanted.items()
        if getattr(there, field) != value
    ]
    if differing:
        raise InvalidOption(
            f"topic {name!r} exists with other options: {'; '.join(differing)}", hint="alter() changes them"
        )


def _settle(partitions: Partitions) -> None:
    """Everything goes to disk, and offsets set aside are given back."""
    for log in list(partitions._logs.values()):
        try:
            log.bounds()  # says so when it was dropped: a sync would only find that its file is gone
            log.sync_all()
            log.lower_reserve()
        except TopicReplaced:
            return  # another process dropped it: there is nothing to keep
