"""`upsert`: the latest message of each key as a row of a Delta table, by MERGE; a tombstone deletes its row.

    the table's next offsets ─► plan ─► tasks keep the latest of each key ─► one MERGE with the new offsets

Where it stands is in the table's own commits, as with `archive`: the rows and the offsets up to which they
hold change in one commit, so a run that is killed anywhere is simply run again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import HistoryChanged
from penstock.lake.current import CurrentTable, open_current, open_or_create_current
from penstock.lake.storage import storage
from penstock.parse import MIB, Duration, one_of, seconds
from penstock.spark import executors
from penstock.spark.pipelines.engine import ENGINES, Choice, Engine, chosen, started
from penstock.spark.pipelines.upsert_tasks import Latest, latest, newest
from penstock.spark.source import checkpoint
from penstock.spark.source.options import parse
from penstock.spark.source.query import StreamQuery
from penstock.spark.source.survey import count_messages
from penstock.spark.stream_run import failed
from penstock.store import PipelineRun, Store, Topic
from penstock.store.pipelines import Watch, claim, unwatched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: One MERGE takes in about so much: its rows are in memory here.
_ROUND_BYTES = 256 * MIB
_LOOK_S = 0.2


@dataclass(frozen=True)
class Upserted:
    """What a run of `upsert` did."""

    topic: str
    table: str
    read: int
    #: Rows that were written, new or changed, and rows that were deleted.
    written: int
    deleted: int
    merges: int
    #: The next offset of each partition.
    next: dict[int, int]


def upsert(
    store: Store, source: str, table: str | os.PathLike[str], *, schema: str | os.PathLike[str] | None = None,
    follow: bool = False, every: Duration = "10s", name: str | None = None, important: bool | None = None,
    engine: Engine = "auto", spark: SparkSession | None = None, master: str | None = None,
    storage_options: Mapping[str, str] | None = None, watch: Watch = unwatched,
    on_engine: Callable[[Choice], None] = lambda choice: None,
) -> Upserted:  # fmt: skip
    """Bring a Delta table up to date with the latest message of each key of `source`.

    A row has `key`, the `value` (or with `schema`, such as "name string, age int", the fields of its JSON),
    `timestamp`, `partition` and `offset` of the message. A tombstone deletes its key's row. Messages without
    a key are skipped and not counted as written. `follow` goes on as messages come, with a MERGE `every`
    so often. Each message counts once, also through kill -9: offsets are committed with the rows.

    Raises `NotATable` or `ForeignArchive` for a table that is something else, `HistoryChanged` when the store
    was put back to an earlier state since the last run, `PipelineRunning` when another process does the same.
    """
    topic = store.topic(source)
    one_of("engine", engine, ENGINES)
    place = storage(table, storage_options)
    wait_s = seconds("every", every)
    fields = None if schema is None else _fields(schema, spark, master)
    called = name or f"upsert-{source}"
    open_current(place, store.id, topic.open_topic.record.id, fields)  # another one is said before all else
    identity = {"topic": source, "topic_id": topic.id, "table": place.uri}
    with claim(
        store, called, kind="upsert", identity=identity, consumer=called, options={"follow": follow}
    ) as run, watch(run):  # fmt: skip
        target = open_or_create_current(place, store.id, topic.open_topic.record.id, source, fields)
        todo = sum(count_messages(log) for log in topic.open_topic.logs())
        choice = chosen(engine, todo, is_running=spark is not None)
        on_engine(choice)
        spread = _here if choice.engine == "python" else partial(_spread, run, spark, master)
        options = {"path": store.path, "topic": source, "consumer": called}
        query = StreamQuery(
            parse(options | ({} if important is None else {"important": str(important).lower()}))
        )
        try:
            return _Loop(run, topic, target, query, spread, fields).run(wait_s if follow else None)
        finally:
            query.close()


_Spread = Callable[[list[Latest]], list[pa.Table]]


class _Loop:
    """One run: rounds until the table is up to date, or until it is asked to end."""

    def __init__(
        self, run: PipelineRun, topic: Topic[Any], table: CurrentTable, query: StreamQuery, spread: _Spread,
        fields: pa.Schema | None,
    ) -> None:  # fmt: skip
        self._run, self._topic, self._table, self._query = run, topic, table, query
        self._spread, self._fields = spread, fields
        self._read = self._written = self._deleted = self._merges = 0

    def run(self, every_s: float | None) -> Upserted:
        kept = self._begin()
        if every_s is None:
            self._query.freeze()
        while not self._run.stopping:
            begun = time.monotonic()
            moved = self._round(kept)
            if moved is None and every_s is None:
                break
            kept = moved or kept
            while every_s is not None and time.monotonic() < begun + every_s and not self._run.stopping:
                time.sleep(_LOOK_S)
        positions = {number: at for (_, number), at in self._positions(kept).items()}
        name, uri = self._topic.name, self._table.storage.uri
        return Upserted(name, uri, self._read, self._written, self._deleted, self._merges, positions)

    def _begin(self) -> dict[str, Any]:
        """Where the table stands; a new one begins with the topic's first message."""
        name = self._topic.name
        stands = self._table.positions(self._topic.open_topic.numbers()[-1] + 1)
        if not stands:
            return self._query.initial()
        positions = {(name, number): at for number, (at, _) in stands.items()}
        known = {(name, number): last for number, (_, last) in stands.items()}
        return checkpoint.encode(positions, self._table.store_id, {name: self._table.topic_id}, known)

    def _round(self, start: dict[str, Any]) -> dict[str, Any] | None:
        """Plan, reduce, merge; returns where the table stands now, None when there was nothing to do."""
        try:
            end = self._query.latest(start, None, _ROUND_BYTES)
        except HistoryChanged as error:  # it speaks of options that only a query of Spark's has
            error.hint = (
                "this table has rows that the topic does not have: bring another table up to date, "
                f"after penstock pipeline drop {self._run.name}"
            )
            raise
        if end == start:
            return None
        slices = self._query.planned(start, end)
        rows = newest(self._spread([Latest(each, self._fields) for each in slices]))
        known = {number: mark for (_, number), mark in checkpoint.kept_fingerprints(end).items()}
        positions = {number: (at, known.get(number, 0)) for (_, number), at in self._positions(end).items()}
        written, deleted = self._table.merge(rows, positions)
        self._query.done(end)
        before = self._positions(start)
        count = sum(at - before.get(part, 0) for part, at in self._positions(end).items())
        self._read += count
        self._written, self._deleted = self._written + written, self._deleted + deleted
        self._merges += 1
        self._run.report(rows=count, last_batch=self._table.version)
        return end

    def _positions(self, kept: dict[str, Any]) -> dict[tuple[str, int], int]:
        return checkpoint.decode(kept, self._table.store_id, {self._topic.name: self._table.topic_id})


def _here(work: list[Latest]) -> list[pa.Table]:
    return [latest(each) for each in work]


def _spread(
    run: PipelineRun, spark: SparkSession | None, master: str | None, work: list[Latest]
) -> list[pa.Table]:
    if not work:
        return []
    try:
        results = executors.spread(started(spark, master), latest, work)
    except Exception as error:  # whatever Spark raises is told by its cause
        raise failed(run.name, error) from error
    for each in results:
        if isinstance(each, executors.Failed):
            raise each.error()
    return [each for each in results if not isinstance(each, executors.Failed)]


def _fields(schema: str | os.PathLike[str], spark: SparkSession | None, master: str | None) -> pa.Schema:
    from penstock.spark.pipelines.archive_schema import parsed

    started(spark, master)  # it is Spark that understands the schema
    return pa.schema(parsed(schema))
