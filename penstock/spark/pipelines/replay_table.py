"""Replay of an archive: the messages of a Delta table back into a topic, each once, on Spark.

    replay_table(store, "lake/orders", "orders.again", start="2026-01-31")

A step appends a range of offsets of one partition: tasks read files of the table and stage frames, one
transaction commits them. It is named by that range, so what was appended before is known by its name:

    replay/<run's own id>/<partition>/<start>-<stop>

Values are written raw, as the table has them, and headers as bytes; times are those of the archive, to the
nanosecond.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import InvalidOption, NotAnArchive, PenstockError
from penstock.lake.layout import LakeFile
from penstock.lake.storage import storage
from penstock.lake.table import Archive, open_archive
from penstock.parse import MIB, TIME_MAX_NS, TIME_MIN_NS
from penstock.place import Place, spot
from penstock.spark.executors import Failed, spread
from penstock.spark.pipelines.engine import started
from penstock.spark.pipelines.replay_tasks import TableJob, stage_table
from penstock.spark.sink.commit import gathered
from penstock.spark.sink.task import TaskResult, WriteTarget, discard
from penstock.spark.user_session import cores
from penstock.store import PipelineRun, Store, Topic
from penstock.store.pipeline_position import keep_durably
from penstock.store.pipelines import Watch, claim, unwatched
from penstock.store.replay import PartitionRange, Replayed, ReplayPlan
from penstock.topic.write_plan import plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: A task gets files of about this size in all.
_JOB_BYTES = 64 * MIB
#: Tasks to a core before there is a commit.
_JOBS_A_CORE = 8
_BEGUN = "begun"


class Begun(NamedTuple):
    """What a replay keeps in its folder: it tells it from one of the same name that was dropped."""

    id: str
    #: When it was made: ages are counted from then, or a restart would leave out what they have passed.
    now_ns: int


class ReplayRange(NamedTuple):
    """Which messages of a partition are wanted: by offset, and by the time of writing."""

    start: int
    stop: int
    since: int = TIME_MIN_NS
    until: int = TIME_MAX_NS


def replay_table(
    store: Store, table: str, sink: str, *, start: Place = "earliest", stop: Place = "latest",
    storage_options: Mapping[str, str] | None = None, name: str | None = None,
    spark: SparkSession | None = None, master: str | None = None, watch: Watch = unwatched,
) -> Replayed:  # fmt: skip
    """Write the messages of an archive to `sink`, each exactly once; return when they are there.

    Places are as for `replay`: offsets are those of the archived topic, times those of writing. Run again
    under its name it goes on, also with what was archived since.

    Raises `NotATable` or `NotAnArchive` for a table that is something else.
    """
    target = store.topic(sink)
    target.require_raw()
    archive = _archive(table, storage_options)
    _wanted(archive, start, stop, store.clock.now_ns())  # a wrong place is said before the pipeline is made
    called = name or f"replay-{archive.origin.topic}-table"
    identity = {
        "table": archive.storage.uri, "sink": sink, "sink_id": target.id, "from": str(start), "to": str(stop),
    }  # fmt: skip
    with claim(store, called, kind="replay", identity=identity) as run, watch(run):
        begun = _begun(store, run.folder)
        files = _wanted(archive, start, stop, begun.now_ns)
        return _TableReplay(store, archive, target, run, started(spark, master), begun.id).run(files)


def plan_replay_table(
    store: Store, table: str, sink: str, *, start: Place = "earliest", stop: Place = "latest",
    storage_options: Mapping[str, str] | None = None,
) -> ReplayPlan:  # fmt: skip
    """What a new replay of a table would copy, about where it begins or ends inside of a file."""
    archive = _archive(table, storage_options)
    target = store.topic(sink)
    ranges = []
    for number, (wanted, files) in _wanted(archive, start, stop, store.clock.now_ns()).items():
        first, last = max(wanted.start, files[0].first), min(wanted.stop, files[-1].stop)
        count = sum(each.rows * _share(each, wanted) // (each.stop - each.first) for each in files)
        size = sum(each.bytes * _share(each, wanted) // (each.stop - each.first) for each in files)
        ranges.append(PartitionRange(number, first, last, count, size))
    return ReplayPlan.of(archive.storage.uri, target.name, ranges)


_Files = dict[int, tuple[ReplayRange, list[LakeFile]]]


class _TableReplay:
    """One run."""

    def __init__(
        self, store: Store, archive: Archive, sink: Topic, run: PipelineRun, spark: SparkSession, own_id: str
    ) -> None:
        self._store, self._archive, self._sink, self._run, self._spark = store, archive, sink, run, spark
        self._series = f"replay/{own_id}/"
        self._messages = self._bytes = 0

    def run(self, files: _Files) -> Replayed:
        partitions = max((file.partition for file in self._archive.files()), default=-1) + 1
        for number, (wanted, each) in files.items():
            at = self._reached(number)
            jobs = self._jobs(wanted._replace(start=max(wanted.start, at)), each, partitions)
            limit = _JOBS_A_CORE * (cores(self._spark) or 1)
            while (step := list(islice(jobs, limit))) and not self._run.stopping:
                self._step(number, step)
        left = self._left(files) if self._run.was_asked_to_stop else 0
        return Replayed(self._archive.storage.uri, self._sink.name, self._messages, self._bytes, left)

    def _left(self, files: _Files) -> int:
        """How many messages are in files that were not reached, about."""
        found = 0
        for number, (_, each) in files.items():
            reached = self._reached(number)
            found += sum(file.rows for file in each if file.stop > reached)
        return found

    def _reached(self, number: int) -> int:
        """Where a partition goes on: behind the last range that was committed."""
        prefix = f"{self._series}{number}/"
        names = self._store.transactions.names(prefix)
        return max((int(name.rpartition("-")[2]) for name in names), default=0)

    def _jobs(self, wanted: ReplayRange, files: Sequence[LakeFile], partitions: int) -> Iterator[TableJob]:
        """Neighbouring files up to a size, task by task."""
        sink = self._sink.open_topic
        sink.refresh()
        plan = plan_of(sink)
        target = WriteTarget(self._store.path, {plan.name: plan}, plan.name, 0)
        waiting: list[LakeFile] = []
        for file in files:
            if file.stop <= wanted.start or file.first >= wanted.stop:
                continue
            if waiting and sum(each.bytes for each in waiting) + file.bytes > _JOB_BYTES:
                yield TableJob(self._archive.storage, tuple(waiting), *wanted, target, partitions)
                waiting = []
            waiting.append(file)
        if waiting:
            yield TableJob(self._archive.storage, tuple(waiting), *wanted, target, partitions)

    def _step(self, number: int, jobs: Sequence[TableJob]) -> None:
        from penstock.spark.stream_run import failed

        plan = jobs[0].target.topics[self._sink.name]
        try:
            results = spread(self._spark, stage_table, jobs)
        except Exception as error:  # Spark's own, or that of a task that died
            raise failed(self._run.name, error) from error
        shares = [each for each in results if isinstance(each, TaskResult)]
        wrong: list[PenstockError] = [each.error() for each in results if isinstance(each, Failed)]
        if wrong:
            for share in shares:
                discard(share.topics, share.plans, keep=lambda topic, partition: frozenset())
            raise wrong[0]
        pieces = gathered(shares, self._sink.name)
        stop = min(jobs[-1].files[-1].stop, jobs[-1].stop)
        name = f"{self._series}{number}/{jobs[0].files[0].first}-{stop}"
        before = self._store.transactions.names(f"{self._series}{number}/")
        with self._store.transaction(name=name) as tx:
            tx.adopt(self._sink, pieces, tree=plan.tree, rows=plan.rows)
        self._store.transactions.forget(before)
        rows = sum(share.rows for share in shares)
        self._messages += rows
        self._bytes += sum(piece.size for parts in pieces.values() for piece in parts)
        self._run.report(rows=rows)


def _archive(table: str, options: Mapping[str, str] | None) -> Archive:
    archive = open_archive(storage(table, options))
    if archive.kind != "raw":
        raise NotAnArchive(
            f"{archive.storage.uri} holds values divided into columns, which are no messages any more",
            hint="replay an archive that was made without a schema",
        )
    return archive


def _wanted(archive: Archive, start: Place, stop: Place, now_ns: int) -> _Files:
    """What is to be read of each partition, and the files that hold it, in offset order."""
    files: dict[int, list[LakeFile]] = {}
    for file in archive.files():
        files.setdefault(file.partition, []).append(file)
    found: _Files = {}
    for number, each in files.items():
        wanted = wanted_of(number, start, stop, now_ns)
        inside = [file for file in each if _share(file, wanted) > 0]
        if inside:
            found[number] = wanted, inside
    return found


def wanted_of(partition: int, start: Place, stop: Place, now_ns: int) -> ReplayRange:
    """What two places mean for a partition of an archive."""
    first = spot(start, partition, now_ns)
    last = spot("latest" if isinstance(stop, Mapping) and partition not in stop else stop, partition, now_ns)
    if first.kind in ("latest", "last") or last.kind == "last":
        raise InvalidOption("an archive has no latest message", hint="begin at an offset, a time or earliest")
    return ReplayRange(
        first.value if first.kind == "offset" else 0,
        last.value if last.kind == "offset" else (0 if last.kind == "earliest" else 2**63 - 1),
        first.value if first.kind == "time" else TIME_MIN_NS,
        last.value if last.kind == "time" else TIME_MAX_NS,
    )


def _share(file: LakeFile, wanted: ReplayRange) -> int:
    """How many offsets of a file are wanted, at most."""
    low, high = file.written
    if (high + 1) * 1000 <= wanted.since or low * 1000 >= wanted.until:
        return 0
    return max(min(file.stop, wanted.stop) - max(file.first, wanted.start), 0)


def _begun(store: Store, folder: str) -> Begun:
    """What is kept there, made at first; durable before anything is written."""
    path = os.path.join(folder, _BEGUN)
    if not os.path.exists(path):
        made = Begun(secrets.token_hex(8), store.clock.now_ns())
        keep_durably(store.files, path, json.dumps(made._asdict()).encode())
    with open(path, encoding="ascii") as file:
        return Begun(**json.load(file))
