"""`archive`: a topic into a Delta table, each message once, in offset order.

    the table's next offsets ─► plan ─► one Spark job: tasks write Parquet files ─► one commit ─► consumer

Where the archive stands is in the table's own commits, so there is no checkpoint that could be lost, and a
run that dies anywhere is simply run again: files that no commit names do not count, and what was committed
is not planned again. The consumer follows behind: it shows the lag, and with `important` retention waits
for it. It may be lost, too.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa

from penstock.errors import ConflictError, Corrupt, OffsetTrimmed
from penstock.lake import parquet_files
from penstock.lake.cut import Held
from penstock.lake.layout import RAW_SCHEMA, Kind, LakeFile, json_schema
from penstock.lake.parquet_files import FILE_BYTES, FileTarget
from penstock.lake.storage import Storage, storage
from penstock.lake.table import Archive, ArchivedSpan, ArchiveOrigin, open_or_create
from penstock.locks import Claimed, claim
from penstock.log.fingerprint import UNKNOWN
from penstock.parse import MIB, Duration, Size, one_of, seconds, size, whole
from penstock.spark import executors
from penstock.spark.pipelines import archive_tasks
from penstock.spark.session import session
from penstock.spark.source import checkpoint
from penstock.spark.source.options import parse, store_path
from penstock.spark.source.plan import Slice
from penstock.spark.source.query import StreamQuery
from penstock.spark.source.survey import opened_store, other_history
from penstock.spark.stream_run import failed
from penstock.store import PipelineRun, Store, Topic, pipelines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


#: One job reads about so much, then it is committed: what a crash costs, and how often progress is told.
_ROUND_BYTES = 4096 * MIB
#: How often a run that follows looks for new messages, or whether it should end.
_LOOK_S = 0.2
_VACUUM_EVERY_S = 86400.0
_STORE_HINT = "an archive begins with the folder of a store"
_ANOTHER_TABLE = "what the table has stays there: archive into another table from now on"

#: What to do about messages that are damaged, or that retention took before they were archived.
OnGap = Literal["raise", "skip"]
_Work = TypeVar("_Work")


@dataclass(frozen=True, kw_only=True)
class ArchiveSummary:
    """What a run of an archive did."""

    topic: str
    table: str
    rows: int = 0
    files: int = 0
    bytes: int = 0
    batches: int = 0
    #: By partition: where the run began, and the first offset that is not in the table yet.
    first: dict[int, int] = field(default_factory=dict)
    next: dict[int, int] = field(default_factory=dict)
    #: Small files that were put together, and leftovers that were removed.
    compacted: int = 0
    removed: int = 0
    seconds: float = 0.0


def archive(
    store: str | os.PathLike[str], topic: str, table: str | os.PathLike[str], *, name: str | None = None,
    spark: SparkSession | None = None, master: str | None = None, follow: bool = False,
    important: bool | None = None, schema: str | os.PathLike[str] | None = None,
    file_size: Size = FILE_BYTES, every: Duration = "10s", consumer: str | None = None,
    storage_options: Mapping[str, str] | None = None, compact: bool = True,
    on_gap: OnGap = "raise", watch: pipelines.Watch = pipelines.unwatched,
) -> ArchiveSummary:  # fmt: skip
    """Bring everything of a topic that is not in a Delta table yet into it, each message once.

    `table` is a folder or `s3://bucket/prefix` with `storage_options`; it is made at first. With `schema`
    ("id long, paid boolean", or a file with that) values are JSON, divided into columns. `follow` goes on
    as messages come, with a commit `every` so often. `important` makes retention wait for the archive;
    without it what retention took first raises `OffsetTrimmed`. `on_gap="skip"` skips that and
    damage (`Corrupt`).

    Raises `PipelineRunning` or `ConflictError` when another process does the same, `HistoryChanged` when the
    store was put back to an earlier state since the last run, `NotATable`,
    `NotAnArchive` or `ForeignArchive` for a table that is something else, `ReadOnly` for one that cannot
    be written to.
    """
    place = storage(table, storage_options)
    asked = _Asked(
        place=place, file_bytes=size("file_size", file_size), every_s=seconds("every", every), follow=follow,
        compact=compact, spark=lambda: session(master) if spark is None else spark,
    )  # fmt: skip
    gap(on_gap)
    known_as = name or default_name(topic, place)
    fields = None if schema is None else _fields(schema, asked)
    with ExitStack() as stack:
        opened = stack.enter_context(opened_store(store_path(os.fspath(store)), _STORE_HINT, read_only=False))
        found = opened.topic(topic)
        run = stack.enter_context(
            pipelines.claim(
                opened, known_as, kind="archive", identity={"topic": topic, "table": place.uri},
                consumer=consumer or known_as,
                options={"follow": follow, "file_size": asked.file_bytes},
            )
        )  # fmt: skip
        stack.enter_context(_claimed(found, place))
        stack.enter_context(watch(run))
        target = _table(opened, found, place, fields)
        options = {
            "path": opened.path, "topic": topic, "consumer": consumer or known_as,
            "failOnDataLoss": "true" if on_gap == "raise" else "false",
        } | ({} if important is None else {"important": str(important).lower()})  # fmt: skip
        query = StreamQuery(parse(options))
        stack.callback(query.close)
        return _Loop(asked, run, found, target, query).run()


def default_name(topic: str, place: Storage) -> str:
    """What an archive is called when nobody says: by its topic and the last part of the table's place."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", place.uri.rsplit("/", 1)[-1])
    return f"archive-{topic}-{base}"[:200]


def gap(text: str) -> OnGap:
    """Understand `on_gap`; raises `InvalidOption`."""
    one_of("on_gap", text, ("raise", "skip"))
    return "skip" if text == "skip" else "raise"


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What a run was asked for."""

    place: Storage
    file_bytes: int
    every_s: float
    follow: bool
    compact: bool
    #: Started when there is something to do: a run that finds nothing new needs no Java.
    spark: Callable[[], SparkSession]

    def __post_init__(self) -> None:
        whole("file_size", self.file_bytes, 1, 2**40)


class _Loop:
    """One run: rounds until everything is in the table, or until it is asked to end."""

    def __init__(
        self, asked: _Asked, run: PipelineRun, topic: Topic[Any], table: Archive, query: StreamQuery
    ) -> None:
        self._asked, self._run, self._topic, self._table, self._query = asked, run, topic, table, query
        self._done = _Tally()
        #: Of the last message before each partition's position.
        self._fingerprints: dict[int, int] = {}
        self._vacuumed_at = -_VACUUM_EVERY_S

    def run(self) -> ArchiveSummary:
        begun = time.monotonic()
        self._vacuum()
        positions = self._begin()
        self._refuse_other_history()
        self._done.first = dict(positions)
        if not self._asked.follow:
            self._query.freeze()
        while not self._run.stopping:
            looked = time.monotonic()
            before = self._done.bytes
            moved = self._round(positions)
            if moved is None and not self._asked.follow:
                break
            positions = moved or positions
            if self._asked.follow and self._done.bytes - before < self._asked.file_bytes:
                self._vacuum()
                self._wait(looked + (self._asked.every_s if moved else 0.0))
        return self._done.summary(self._topic.name, self._table, time.monotonic() - begun, positions)

    def _begin(self) -> dict[int, int]:
        """Where the table stands. A topic is archived from its first message on; later partitions from 0."""
        starts = {log.partition: log.bounds().start for log in self._topic.open_topic.logs()}
        starts |= self._topic.open_topic.tree.removed()
        stands = {number: self._table.next_offset(number) for number in starts}
        is_new = all(at is None for at in stands.values())
        begin = {number: (start if is_new else 0) for number, start in starts.items()}
        return begin | {number: at for number, at in stands.items() if at is not None}

    def _refuse_other_history(self) -> None:
        """Raise `HistoryChanged` when the store was put back: one table must not hold two histories."""
        topic, table = self._topic.open_topic, self._table
        numbers = topic.numbers()
        held = {
            number: Held(next=table.next_offset(number) or 0, fingerprint=table.fingerprint(number))
            for number in {*numbers, *(file.partition for file in table.files())}
        }
        for error in other_history(held, topic, self._asked.place.uri):
            error.hint = _ANOTHER_TABLE
            raise error
        self._fingerprints = {number: held[number].fingerprint for number in numbers}

    def _round(self, begin: Mapping[int, int]) -> dict[int, int] | None:
        """Plan, write, commit; returns where the table stands now, None when there was nothing to do."""
        start = self._encoded(begin)
        try:
            end = self._query.latest(start, None, _ROUND_BYTES)
            if end == start:
                return None
            slices = self._query.planned(start, end)
            files = self._spread(archive_tasks.fill, [self._filling(each) for each in slices])
        except OffsetTrimmed as error:
            error.hint = 'important=True makes retention wait; on_gap="skip" goes on, with a gap in the table'
            raise
        except Corrupt as error:
            error.hint = 'on_gap="skip" goes on behind it, with a gap in the table'
            raise
        moved = self._decoded(end)
        self._fingerprints |= {
            number: known for (_, number), known in checkpoint.kept_fingerprints(end).items()
        }
        is_new = self._table.append(files, self._spans(begin, moved))
        self._query.done(end)
        if is_new:
            self._done.add(files)
            self._run.report(rows=sum(each.rows for each in files), last_batch=self._table.version)
        if self._asked.compact:
            self._compact()
        return moved

    def _filling(self, planned: Slice) -> archive_tasks.Filling:
        return archive_tasks.Filling(planned, self._target(planned.partition), self._table.kind)

    def _target(self, partition: int) -> FileTarget:
        return FileTarget(self._asked.place, self._table.schema, partition, self._asked.file_bytes)

    def _compact(self) -> None:
        groups = parquet_files.chosen(self._table.files(), self._asked.file_bytes)
        merging = [archive_tasks.Merging(group, self._target(group[0].partition)) for group in groups]
        if merging and not self._run.stopping:
            made = self._spread(archive_tasks.merge, merging)
            old = [each for group in groups for each in group]
            self._table.replace(old, made)
            self._done.compacted += len(old)

    def _vacuum(self) -> None:
        if time.monotonic() - self._vacuumed_at >= _VACUUM_EVERY_S:
            self._vacuumed_at = time.monotonic()
            self._done.removed += len(self._table.vacuum())

    def _spread(self, function: Callable[[_Work], list[LakeFile]], work: Sequence[_Work]) -> list[LakeFile]:
        """Have files written by executors; when one of them fails, what the others wrote is deleted."""
        if not work:
            return []
        spark = self._asked.spark()
        try:
            results = executors.spread(spark, function, work)
        except Exception as error:  # whatever Spark raises is told by its cause
            raise failed(self._run.name, error) from error
        failures = [each for each in results if isinstance(each, executors.Failed)]
        files = [file for each in results if not isinstance(each, executors.Failed) for file in each]
        if failures:
            self._asked.place.delete(each.path for each in files)
            raise failures[0].error()
        return files

    def _wait(self, until: float) -> None:
        """Until then, or until the run is asked to end; a moment at least."""
        time.sleep(_LOOK_S)
        while time.monotonic() < until and not self._run.stopping:
            time.sleep(_LOOK_S)

    def _spans(self, begin: Mapping[int, int], end: Mapping[int, int]) -> dict[int, ArchivedSpan]:
        """What the table gets of each partition; also that it begins behind what was gone before it."""
        return {
            number: ArchivedSpan(begin.get(number, 0), stop, self._fingerprints.get(number, UNKNOWN))
            for number, stop in end.items()
            if stop > begin.get(number, 0) or (stop and self._table.next_offset(number) is None)
        }

    def _encoded(self, positions: Mapping[int, int]) -> dict[str, Any]:
        origin = self._table.origin
        name = self._topic.name
        return checkpoint.encode(
            {(name, number): at for number, at in positions.items()},
            origin.store_id,
            {name: origin.topic_id},
            {(name, number): known for number, known in self._fingerprints.items()},
        )

    def _decoded(self, kept: Any) -> dict[int, int]:
        origin = self._table.origin
        found = checkpoint.decode(kept, origin.store_id, {self._topic.name: origin.topic_id})
        return {number: at for (_, number), at in found.items()}


class _Tally:
    """What a run has done so far."""

    def __init__(self) -> None:
        self.rows = self.files = self.bytes = self.batches = self.compacted = self.removed = 0
        self.first: dict[int, int] = {}

    def add(self, files: Sequence[LakeFile]) -> None:
        self.batches += 1
        self.files += len(files)
        self.rows += sum(each.rows for each in files)
        self.bytes += sum(each.bytes for each in files)

    def summary(self, topic: str, table: Archive, took_s: float, positions: dict[int, int]) -> ArchiveSummary:
        return ArchiveSummary(
            topic=topic, table=table.storage.uri, rows=self.rows, files=self.files, bytes=self.bytes,
            batches=self.batches, first=self.first, next=positions, compacted=self.compacted,
            removed=self.removed, seconds=round(took_s, 3),
        )  # fmt: skip


@contextmanager
def _claimed(topic: Topic[Any], place: Storage) -> Iterator[None]:
    """Be the only one that archives this topic into this table, whatever the pipelines are called."""
    known = hashlib.sha256(place.uri.encode()).hexdigest()[:32]
    try:
        fd = claim(os.path.join(topic.open_topic.folder, "archives", known))
    except Claimed as taken:
        raise ConflictError(
            f"{topic.name!r} is being archived into {place.uri} by another process{taken}",
            hint="stop it first: one at a time archives a topic into a table",
        ) from None
    try:
        yield
    finally:
        os.close(fd)


def _table(store: Store, topic: Topic[Any], place: Storage, fields: Sequence[pa.Field] | None) -> Archive:
    """The table, with the columns that are asked for."""
    origin = ArchiveOrigin(store.id, topic.open_topic.record.id, topic.name)
    kind: Kind = "raw" if fields is None else "json"
    found = open_or_create(place, origin, kind, RAW_SCHEMA if fields is None else json_schema(fields))
    if fields is not None:
        from penstock.spark.pipelines.archive_schema import missing

        more = missing(found.schema, fields)
        if more:
            found.add_columns(more)
    return found


def _fields(schema: str | os.PathLike[str], asked: _Asked) -> list[pa.Field]:
    from penstock.spark.pipelines.archive_schema import parsed

    asked.spark()  # it is Spark that understands the schema
    return parsed(schema)
