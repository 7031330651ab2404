"""Stores and tables that several subjects read; each is made at first use, and once."""

from __future__ import annotations

from contextlib import closing
from functools import cached_property
from pathlib import Path

import penstock
from benchmarks.harness import TOPIC, Bench
from benchmarks.sqlite_table import Table
from benchmarks.usual_messages import PARTITIONS, TextBatch, with_headers


def seal(topic: penstock.Topic) -> None:
    """Do now what a roll and the housekeeping behind it do: seal, index, repack."""
    for log in topic.open_topic.logs():
        log.appender.seal_active()
        with log.folder.housekeeping():
            log.tidy()


class Stock:
    """The messages of a run, stored in each of the ways that are compared."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    @cached_property
    def store(self) -> Path:
        """Written in batches of a thousand; indexes made."""
        path = self._bench.folder / "stock-store"
        with penstock.open(path) as store:
            topic = store.create_topic(TOPIC, sync="os")
            for batch in self._bench.batches():
                topic.write_many(batch.values, keys=batch.keys)
            store.flush_housekeeping()
        return path

    @cached_property
    def usual(self) -> Path:
        """Text keys and headers, into several partitions, one `write` of a buffered writer each."""
        path = self._bench.folder / "stock-usual"
        with penstock.open(path) as store:
            topic = store.create_topic(TOPIC, sync="os", partitions=PARTITIONS)
            with topic.writer() as writer:
                for batch in self._bench.batches():
                    with_headers(writer.write, TextBatch(batch))
            store.flush_housekeeping()
        return path

    @cached_property
    def singles(self) -> Path:
        """Written one message at a time; all of it in the segment that is being written."""
        path = self._bench.folder / "stock-singles"
        with penstock.open(path) as store:
            topic = store.create_topic(TOPIC, sync="os")
            for key, value in self._bench.singles(self._bench.sizes.singles):
                topic.write(value, key=key)
        return path

    def seal_singles(self) -> None:
        with penstock.open(self.singles) as store:
            seal(store.topic(TOPIC))

    @cached_property
    def table(self) -> Path:
        path = self._bench.folder / "stock.db"
        with closing(Table(path)) as table:
            table.insert(self._bench.batches())
        return path
