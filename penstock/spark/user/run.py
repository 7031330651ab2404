"""One run of a pipeline over a store: checked, planned, claimed, followed, and ended in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import PipelineChanged
from penstock.parse import pipeline_name
from penstock.spark.session import session
from penstock.spark.sink.checkpoint import refuse_put_back
from penstock.spark.sink.commit import WriterCommit
from penstock.spark.stream_run import run_stream
from penstock.spark.user.definition import Definition
from penstock.spark.user.query import build, check_table, read_table, writer
from penstock.spark.user.query_plan import QueryPlan, refuse_connect
from penstock.store import PipelineRun, Store, open_store
from penstock.store.pipelines import Watch, claim, refuse_running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PARTS = "spark.sql.shuffle.partitions"
_STATE = "spark.sql.streaming.stateStore.providerClass"
#: State on disk rather than in memory, so that it may grow; `transformWithState` works with no other.
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@contextmanager
def settled(spark: SparkSession, *, parts: int | None) -> Iterator[None]:
    """For a while: state in RocksDB, in so many parts; None leaves their number as it is.

    A checkpoint remembers both, and goes on with what it was begun with.
    """
    wanted = {_STATE: _ROCKSDB} if parts is None else {_STATE: _ROCKSDB, _PARTS: str(parts)}
    before = {name: spark.conf.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


KIND = "run"
_SHUFFLE = "spark.sql.shuffle.partitions"


def run_pipeline(
    definition: Definition, function: Callable[..., Any], parameters: Mapping[str, Any], *,
    store: Store | str | os.PathLike[str], once: bool, spark: SparkSession | None, master: str | None,
    conf: Mapping[str, object], watch: Watch,
) -> PipelineRun:  # fmt: skip
    """Run a pipeline until it is stopped, or with `once` until everything that is there is done."""
    pipeline_name(definition.name)
    with _opened(store) as opened:
        _check(opened, definition)
        running = spark or session(master, **conf)
        refuse_connect(running)
        transform = partial(function, **_tables(running, definition), **parameters)
        named = replace(definition, consumer=definition.consumer or definition.name)
        query = build(running, named, transform, store=opened.path)
        with claim(
            opened, named.name, kind=KIND, identity=identity(named, query.plan), consumer=named.consumer,
            options=_told(named, parameters, once=once),
        ) as run:  # fmt: skip
            app = f"pipeline/{named.name}/{run.created}"  # dropped and begun anew, it is another writer
            _refuse_lost_checkpoint(opened, run, app)
            refuse_put_back(opened, app, run.checkpoint)
            target = writer(query, named, store=opened.path, app=app, checkpoint=run.checkpoint)
            parts = _parts(running, conf, is_ours=spark is None)
            with watch(run), settled(running, parts=parts):
                run_stream(run, target, once=once, trigger=_trigger(named))
        return run


def identity(definition: Definition, plan: QueryPlan) -> dict[str, Any]:
    """What a restart must agree with, or the checkpoint would mean something else.

    The text of the function is no part of it, nor its parameters: a filter may change between two runs.
    """
    return {
        "source": list(plan.sources),
        "sink": definition.sink or "a topic for each row",
        "output": definition.output,
        "state": list(plan.state),
    }


@contextmanager
def _opened(store: Store | str | os.PathLike[str]) -> Iterator[Store]:
    if isinstance(store, Store):
        yield store
        return
    with open_store(store, create=False) as opened:
        yield opened


def _check(store: Store, definition: Definition) -> None:
    """Check all that can be known before Spark starts, which takes a while."""
    for topic in definition.sources:
        store.topic(topic)
    if definition.sink is not None:
        store.topic(definition.sink)
    for name, path in definition.tables.items():
        check_table(name, path)
    refuse_running(store, definition.name)


def _parts(spark: SparkSession, conf: Mapping[str, object], *, is_ours: bool) -> int | None:
    """State in as many parts as there are cores, unless whoever made the session thought of it."""
    return spark.sparkContext.defaultParallelism if is_ours and _SHUFFLE not in conf else None


def _tables(spark: SparkSession, definition: Definition) -> dict[str, Any]:
    return {name: read_table(spark, name, path) for name, path in definition.tables.items()}


def _trigger(definition: Definition) -> str | None:
    return None if definition.trigger_s is None else f"{round(definition.trigger_s * 1000)} milliseconds"


def _told(definition: Definition, parameters: Mapping[str, Any], *, once: bool) -> dict[str, Any]:
    told = {"parameters": {**parameters}, "tables": {**definition.tables}, "trigger": _trigger(definition)}
    kept = {name: value for name, value in told.items() if value}
    found: dict[str, Any] = msgspec.to_builtins({**kept, "once": once}, enc_hook=str)
    return found


def _refuse_lost_checkpoint(store: Store, run: PipelineRun, app: str) -> None:
    """Refuse a pipeline that wrote something and has lost its checkpoint: it would write it again."""
    has_written = store.transactions.names(WriterCommit(None, 0, 0, app).series)
    if has_written and not os.path.exists(os.path.join(run.checkpoint, "metadata")):
        raise PipelineChanged(f"the checkpoint of pipeline {run.name!r} is gone", run.name)
