"""Pipelines: named jobs over topics, kept in the store with how far they are and how they ended.

    with claim(store, "hourly", kind="rollup", identity={"source": "orders"}, consumer="hourly") as run:
        while not run.stopping:
            run.report(rows=process_some())

A name is run by one process at a time: `pipelines/<name>/running` is locked by it, and the kernel frees the
lock when it dies. So a pipeline whose run has not ended and whose lock is free was killed. What is told of
a run is for people; where a pipeline goes on is kept by its consumer, checkpoint or target.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Protocol

from penstock import locks
from penstock.clock import Clock
from penstock.errors import PipelineChanged, PipelineRunning
from penstock.parse import pipeline_name
from penstock.state.database import refuse_read_only
from penstock.state.pipelines import PipelineRecord, Pipelines, RunFacts
from penstock.store.topic import Topic

FOLDER = "pipelines"
_LOCK = "running"
_CHECKPOINT = "checkpoint"
#: A run looks this often whether it was asked to end, and tells how it goes.
_LOOK_S = 0.5
#: A process that looks whether a pipeline runs has its lock for an instant, and must not pass for a run.
_PROBE_S = 0.1
#: Rates are taken over about this time.
_RATE_S = 10.0

State = Literal["running", "ended", "failed", "killed"]


class PipelineStore(Protocol):
    """The part of a store that is used here; its class lies above this module."""

    path: str
    read_only: bool

    @property
    def clock(self) -> Clock:
        """The clock that the store's times are of."""

    @property
    def pipeline_records(self) -> Pipelines:
        """What `state.db` knows of pipelines."""

    def topics(self) -> list[Topic]:
        """Return all topics."""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline as it was when it was asked for."""

    name: str
    #: What it does: archive, rollup, replay, …; `run` for one of the user's own.
    kind: str
    #: `killed`: its process is gone without having ended it.
    state: State
    #: The consumer whose positions show how far it is; None when it keeps none.
    consumer: str | None
    #: Messages its consumer has not done yet; None without one.
    lag: int | None
    #: What it reads and writes, and all else that a restart must agree with.
    identity: dict[str, Any]
    #: What the latest run was started with.
    options: dict[str, Any]
    #: Spark's checkpoint; None when it has none.
    checkpoint: str | None
    #: The latest run.
    run: RunFacts
    created: int


class PipelineRun:
    """A pipeline while this process runs it. Leaving `with` ends the run; an error is remembered."""

    def __init__(self, store: PipelineStore, record: PipelineRecord, folder: str, lock: int) -> None:
        self.name = record.name
        #: When the pipeline was made; one that was dropped and made anew is another.
        self.created = record.created
        #: For whatever the pipeline keeps: `<store>/pipelines/<name>`.
        self.folder = folder
        #: Where a Spark query of it has its checkpoint.
        self.checkpoint = os.path.join(folder, _CHECKPOINT)
        #: How it goes, since it began.
        self.facts = record.run
        #: Called with each report, to show progress.
        self.on_report: Callable[[RunFacts], None] = _nobody
        self._store = store
        self._lock = lock
        self._stopping = False
        self._looked = time.monotonic()
        self._pace = _Pace(self._looked)

    @property
    def stopping(self) -> bool:
        """Whether the run should end now: it was asked to, here or by another process."""
        now = time.monotonic()
        if not self._stopping and now - self._looked >= _LOOK_S:
            self._looked = now
            self._stopping = self._store.pipeline_records.is_asked_to_stop(self.name)
        return self._stopping

    @property
    def was_asked_to_stop(self) -> bool:
        """Whether the run is known to have been asked to stop, without looking again."""
        return self._stopping

    def stop(self) -> None:
        """Ask the run to end; safe to call from a signal handler."""
        self._stopping = True

    def report(self, *, rows: int = 0, batches: int = 1, last_batch: int | None = None) -> None:
        """Note how much was done since the last report."""
        now = time.monotonic()
        self.facts = replace(
            self.facts,
            updated=self._store.clock.now_ns(),
            rows=self.facts.rows + rows,
            batches=self.facts.batches + batches,
            rows_per_second=self._pace.after(rows, now),
            last_batch=self.facts.last_batch if last_batch is None else last_batch,
        )
        if batches or now - self._looked >= _LOOK_S:
            self._looked = now
            self._stopping |= self._store.pipeline_records.report(self.name, self.facts)
        self.on_report(self.facts)

    def __enter__(self) -> PipelineRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = self._store.clock.now_ns()
        self.facts = replace(self.facts, updated=now, ended=now, error=_told(error))
        try:
            self._store.pipeline_records.report(self.name, self.facts)
        finally:
            os.close(self._lock)


#: Follows a run: entered when it has begun, left when it ends.
Watch = Callable[[PipelineRun], AbstractContextManager[object]]


def unwatched(run: PipelineRun) -> AbstractContextManager[object]:
    """Follow nothing: for runs without progress to show."""
    return nullcontext()


class _Pace:
    """Rows a second over the last moments."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._rate = 0.0

    def after(self, rows: int, now: float) -> float:
        passed = max(now - self._since, 1e-6)
        self._since = now
        weight = min(passed / _RATE_S, 1.0) if self._rate else 1.0
        self._rate += weight * (rows / passed - self._rate)
        return round(self._rate, 1)


def claim(
    store: PipelineStore, name: str, *, kind: str, identity: Mapping[str, Any], consumer: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> PipelineRun:  # fmt: skip
    """Claim a pipeline for this process alone and begin a run; its first run makes the pipeline.

    `identity` is what a restart must agree with, or its checkpoint would mean something else: raises
    `PipelineChanged` when it does not, and `PipelineRunning` when another process has the pipeline.
    """
    pipeline_name(name)
    refuse_read_only(store.read_only)
    folder = _folder(store, name)
    lock = _locked(name, folder)
    try:
        _refuse_other(store.pipeline_records.get(name), name, kind, identity)
        now = store.clock.now_ns()
        run = RunFacts(pid=os.getpid(), host=socket.gethostname(), started=now, updated=now)
        store.pipeline_records.begin(
            name, kind, consumer=consumer, identity=identity, options=options or {}, run=run
        )
        return PipelineRun(store, store.pipeline_records.find(name), folder, lock)
    except BaseException:
        os.close(lock)
        raise


def refuse_running(store: PipelineStore, name: str) -> None:
    """Raise `PipelineRunning` when some process has the pipeline now; for those who claim it later."""
    if is_running(store, name):
        record = store.pipeline_records.get(name)
        raise PipelineRunning(name, None if record is None else record.run.pid)


def listed(store: PipelineStore) -> list[Pipeline]:
    """Return all pipelines of a store, with how far behind each is."""
    records = store.pipeline_records.all()
    lags = _lags(store, {each.consumer for each in records})
    return [_pipeline(store, each, lags) for each in records]


def shown(store: PipelineStore, name: str) -> Pipeline:
    """Return one pipeline, with how far behind it is."""
    record = store.pipeline_records.find(pipeline_name(name))
    return _pipeline(store, record, _lags(store, {record.consumer}))


def stop(store: PipelineStore, name: str, timeout: float) -> bool:
    """Ask a run to end and wait for it; False when it is still running after `timeout` seconds."""
    refuse_read_only(store.read_only)
    store.pipeline_records.find(pipeline_name(name))
    store.pipeline_records.ask_to_stop(name)
    deadline = time.monotonic() + timeout
    while is_running(store, name):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def drop(store: PipelineStore, name: str) -> None:
    """Forget a pipeline with its checkpoint; raises `PipelineRunning` while it runs. Its consumer stays."""
    refuse_read_only(store.read_only)
    store.pipeline_records.find(pipeline_name(name))
    folder = _folder(store, name)
    lock = _locked(name, folder)
    try:
        store.pipeline_records.drop(name)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def is_running(store: PipelineStore, name: str) -> bool:
    """Whether some process has the pipeline now."""
    try:
        fd = os.open(os.path.join(_folder(store, name), _LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _folder(store: PipelineStore, name: str) -> str:
    return os.path.join(store.path, FOLDER, name)


def _locked(name: str, folder: str) -> int:
    """The pipeline's lock, as a file to be closed; it is free again when this process is gone."""
    path = os.path.join(folder, _LOCK)
    while True:
        try:
            fd = locks.claim(path, _PROBE_S)
        except locks.Claimed as taken:
            raise PipelineRunning(name, taken.pid) from None
        if _is_still(fd, path):
            return fd
        os.close(fd)  # the pipeline was dropped between opening and locking


def _is_still(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _refuse_other(before: PipelineRecord | None, name: str, kind: str, identity: Mapping[str, Any]) -> None:
    if before is None:
        return
    if before.kind != kind:
        raise PipelineChanged(f"pipeline {name!r} is a {before.kind}, not a {kind}", name)
    for field in sorted({*before.identity, *identity}):
        was, now = before.identity.get(field), identity.get(field)
        if was != now:
            raise PipelineChanged(f"pipeline {name!r} was made with {field} {was!r}, not {now!r}", name)


def _pipeline(store: PipelineStore, record: PipelineRecord, lags: Mapping[str | None, int]) -> Pipeline:
    checkpoint = os.path.join(_folder(store, record.name), _CHECKPOINT)
    return Pipeline(
        record.name, record.kind, _state(store, record), record.consumer, lags.get(record.consumer),
        record.identity, record.options, checkpoint if os.path.isdir(checkpoint) else None, record.run,
        record.created,
    )  # fmt: skip


def _state(store: PipelineStore, record: PipelineRecord) -> State:
    if record.run.ended is None:
        return "running" if is_running(store, record.name) else "killed"
    return "ended" if record.run.error is None else "failed"


def _lags(store: PipelineStore, consumers: Set[str | None]) -> dict[str | None, int]:
    """How far behind each of these is, over all topics it reads."""
    lags: dict[str | None, int] = {}
    if consumers - {None}:
        for each in (found for topic in store.topics() for found in topic.consumers()):
            if each.consumer in consumers:
                lags[each.consumer] = lags.get(each.consumer, 0) + each.lag
    return lags


def _nobody(facts: RunFacts) -> None:
    pass


def _told(error: BaseException | None) -> str | None:
    if error is None or isinstance(error, (KeyboardInterrupt, SystemExit)):
        return None
    return f"{type(error).__name__}: {error}"
