"""Compact: the latest message of each key, copied into another topic in the order of the source.

    compact(store, "orders", "orders.latest")

In two phases. First the latest offset of each key is found from keys and offsets alone; a bit for each
message says whether it was chosen. Then tasks copy the chosen messages out of their frames into staged
files. So values are read once, never shuffled, and never seen by Java.

A run looks at what was written since the last one, and writes the keys that changed. What it writes and
its position become true in one transaction. A tombstone removes its key: nothing is written for it at first,
and the tombstone itself in later runs, since the sink may hold the key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption, PenstockError
from penstock.log.copy import MessageRun
from penstock.log.staging import StagedPiece
from penstock.parse import MIB, Duration, one_of, seconds
from penstock.spark.pipelines.engine import ENGINES, Choice, Engine, chosen, started
from penstock.spark.user_session import cores
from penstock.store import Store, Topic
from penstock.store.pipeline_position import PipelinePosition
from penstock.store.pipelines import PipelineRun, Watch, claim, unwatched
from penstock.store.replay import copying_into, identity_of, run_of, two_topics
from penstock.topic.copy import OffsetSet
from penstock.topic.open_topic import OpenTopic
from penstock.topic.write_plan import TopicPlan, plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: What becomes of messages without a key.
Keyless = Literal["refuse", "keep", "drop"]
KEYLESS = ("refuse", "keep", "drop")

_READ_BYTES = 8 * MIB
_READ_MESSAGES = 1 << 20


class CompactRange(NamedTuple):
    """Offsets of a partition that are looked at."""

    start: int
    stop: int


#: By partition.
Ranges = Mapping[int, CompactRange]


def latest(topic: OpenTopic, ranges: Ranges, keyless: Keyless) -> dict[int, OffsetSet]:
    """The offsets of the latest message of each key, by partition; raises `keyless_refused`."""
    marks = {number: OffsetSet(*each) for number, each in ranges.items()}
    last: dict[int, dict[bytes, int]] = {}
    for number, each in ranges.items():
        found: dict[bytes | None, int] = {}
        for first, run in read(topic, number, each):
            keys = run.keys()
            found.update(zip(keys, range(first, first + len(run)), strict=True))
            if keyless == "keep":
                marks[number].add(first + place for place, key in enumerate(keys) if key is None)
        if (alone := found.pop(None, None)) is not None and keyless == "refuse":
            raise keyless_refused(topic.name, number, alone)
        last[number] = found  # type: ignore[assignment]  # None is not among them any more
    for number, offsets in _winners(topic, last).items():
        marks[number].add(offsets.values())
    return marks


def read(topic: OpenTopic, number: int, within: CompactRange) -> Iterator[tuple[int, MessageRun]]:
    """Everything of a range, each run with its first offset."""
    cursor = topic.log(number).cursor(within.start, far=True)
    while rows := cursor.read(_READ_MESSAGES, _READ_BYTES, within.stop):
        for each in rows:
            yield each.first, run_of(each)


def keyless_refused(topic: str, partition: int, offset: int) -> InvalidOption:
    """Return the error for a topic that holds messages without a key."""
    return InvalidOption(
        f"{topic!r} holds messages without a key, such as offset {offset} of partition {partition}",
        hint='there is no latest one of them: keyless="keep" keeps all, keyless="drop" none',
    )


def _winners(topic: OpenTopic, last: Mapping[int, dict[bytes, int]]) -> Mapping[int, dict[bytes, int]]:
    """Leave out keys of a partition that another one has a later message of."""
    owner: dict[bytes, int] = {}
    for number, offsets in last.items():
        for key in owner.keys() & offsets.keys():
            other = owner[key]
            if _written_at(topic, other, last[other][key]) > _written_at(topic, number, offsets[key]):
                del offsets[key]
            else:
                del last[other][key]
        owner.update(dict.fromkeys(offsets, number))
    return last


def _written_at(topic: OpenTopic, number: int, offset: int) -> int:
    message = topic.log(number).segments.message(offset)
    return message.written_at if message is not None else 0


#: No tombstone is as young as that: none is kept.
_NEVER = 2**63 - 1
#: Offsets to one of Spark's bitmaps.
_BITMAP = 32_768


@dataclass(frozen=True)
class Compacted:
    """What a run of `compact` did."""

    source: str
    sink: str
    engine: str
    #: Messages that it looked at.
    read: int
    #: Messages that it wrote: keys with a new latest message, and tombstones that were kept.
    written: int
    #: Keys that a tombstone removed.
    removed: int
    bytes: int


def compact(
    store: Store, source: str, sink: str, *, name: str | None = None, keyless: Keyless = "refuse",
    keep_tombstones: Duration | None = None, engine: Engine = "auto", spark: SparkSession | None = None,
    master: str | None = None, watch: Watch = unwatched, told: Callable[[Choice], None] = lambda choice: None,
) -> Compacted:  # fmt: skip
    """Write the latest message of each key of `source` to `sink`; return when it is there.

    Run again, it writes the keys that changed since. `keyless`: messages without a key are refused, all kept,
    or dropped. `keep_tombstones`: those not older than that are written from the first run on. `told` hears
    which engine was chosen, and why.
    """
    origin, target = two_topics(store, source, sink)
    one_of("keyless", keyless, KEYLESS)
    one_of("engine", engine, ENGINES)
    keep_s = None if keep_tombstones is None else seconds("keep_tombstones", keep_tombstones)
    called = name or f"compact-{source}"
    identity = {**identity_of(origin, target), "keyless": keyless}
    options = {} if keep_s is None else {"keep_tombstones_s": keep_s}
    with claim(
        store, called, kind="compact", identity=identity, consumer=called, options=options
    ) as run, watch(run):  # fmt: skip
        work = _Compaction(store, origin, target, run, keyless, keep_s)
        choice = chosen(engine, work.messages, is_running=spark is not None)
        told(choice)
        return work.run(choice, spark, master)


class _Compaction:
    """One run."""

    def __init__(
        self,
        store: Store,
        source: Topic,
        sink: Topic,
        run: PipelineRun,
        keyless: Keyless,
        keep_s: float | None,
    ) -> None:
        self._store, self._source, self._sink, self._run = store, source, sink, run
        self._keyless = keyless
        self._from = source.open_topic
        self._standing = PipelinePosition(source, run)
        self._ranges = {
            number: CompactRange(at, max(self._from.log(number).bounds().end, at))
            for number, at in self._standing.at.items()
        }
        self._keep_since = 0
        if self._standing.is_at_begin:
            now = store.clock.now_ns()
            self._keep_since = _NEVER if keep_s is None else now - round(keep_s * NANOSECONDS)
        #: How many there are to look at.
        self.messages = sum(each.stop - each.start for each in self._ranges.values())

    def run(self, choice: Choice, spark: SparkSession | None, master: str | None) -> Compacted:
        sink = self._sink.open_topic
        sink.refresh()
        plan = plan_of(sink)
        if not self.messages:
            return self._summary(choice, 0, 0, 0)
        if choice.engine == "python":
            staged = self._here(plan)
        else:
            staged = _OnSpark(
                started(spark, master), self._store.path, self._source, self._ranges, self._run.name
            ).run(plan, self._keyless, self._keep_since)
        with self._store.transaction() as tx:
            tx.adopt(
                self._sink, staged.pieces, tree=plan.tree, rows=plan.rows, raw=False,
                bodies=staged.bodies,
            )  # fmt: skip
            self._standing.move(tx, {number: each.stop for number, each in self._ranges.items()})
        self._run.report(rows=self.messages)
        removed = sum(map(len, staged.marks.values())) - staged.messages
        return self._summary(choice, staged.messages, removed, staged.bytes)

    def _summary(self, choice: Choice, written: int, removed: int, size: int) -> Compacted:
        return Compacted(
            self._source.name, self._sink.name, choice.engine, self.messages, written, removed, size
        )

    def _here(self, plan: TopicPlan) -> _Staged:
        """The work in this process."""
        marks = latest(self._from, self._ranges, self._keyless)
        copying = copying_into(self._sink.open_topic, plan, source=self._from.tree)
        try:
            for number, within in self._ranges.items():
                for first, run in read(self._from, number, within):
                    copying.add_marked(number, first, run, marks[number], keep_since=self._keep_since)
            return _Staged(marks, copying.finish(), copying.count, copying.bytes, copying.bodies)
        except BaseException:
            copying.discard()
            raise


class _Staged(NamedTuple):
    """What was chosen, what is staged of it by partition, and how much that is."""

    marks: dict[int, OffsetSet]
    pieces: dict[int, list[StagedPiece]]
    messages: int
    bytes: int
    #: Objects with bodies that were made for it.
    bodies: Sequence[str] = ()


class _OnSpark:
    """The work on Spark."""

    def __init__(self, spark: SparkSession, store: str, source: Topic, ranges: Ranges, name: str) -> None:
        self._spark, self._store, self._source, self._ranges, self._name = spark, store, source, ranges, name

    def run(self, plan: TopicPlan, keyless: Keyless, keep_since: int) -> _Staged:
        from penstock.spark.executors import spread
        from penstock.spark.pipelines.compact_tasks import Job, gathered, stage
        from penstock.spark.source.plan import divided
        from penstock.spark.stream_run import failed

        try:
            marks = self._latest(keyless)
            wholes = [whole for whole in self._slices() if whole.start < whole.stop]
            jobs = [
                Job(
                    each,
                    marks[each.partition].between(each.start, each.stop),
                    plan,
                    self._source.open_topic.tree,
                    keep_since,
                )
                for each in divided(wholes, cores(self._spark))
            ]
            done = gathered(spread(self._spark, stage, jobs), jobs)
        except PenstockError:
            raise
        except Exception as error:  # Spark's own, or that of a task that died
            raise failed(self._name, error) from error
        return _Staged(marks, done.pieces, done.messages, done.bytes)

    def _options(self) -> dict[str, str]:
        topic = self._source.name
        return {
            "topic": topic,
            "startingOffsets": json.dumps({topic: {n: each.start for n, each in self._ranges.items()}}),
            "endingOffsets": json.dumps({topic: {n: each.stop for n, each in self._ranges.items()}}),
        }

    def _slices(self) -> Sequence[Any]:
        from penstock.spark.source.options import parse
        from penstock.spark.source.survey import survey

        return survey(parse({**self._options(), "path": self._store}))

    def _latest(self, keyless: Keyless) -> dict[int, OffsetSet]:
        """The first phase: keys and offsets in, a bitmap of the latest ones out."""
        columns = "partition,offset,key" + (",written_at" if len(self._ranges) > 1 else "")
        messages = self._spark.read.format("penstock").options(**self._options(), columns=columns)
        last = latest_of(messages.load(self._store), keyless, several=len(self._ranges) > 1)
        marks = {number: OffsetSet(*each) for number, each in self._ranges.items()}
        for partition, bucket, bits, alone in bitmaps(last).collect():
            if alone is not None and keyless == "refuse":
                raise keyless_refused(self._source.name, partition, alone)
            marks[partition].add_bits(bucket * _BITMAP, bytes(bits))
        return marks


def latest_of(messages: DataFrame, keyless: Keyless, *, several: bool) -> DataFrame:
    """Partition, offset and key of the latest message of each key.

    Within a partition the offset counts. Between partitions (`several`) it is the time of writing, which
    the log keeps from going back only within a segment; so each partition finds its own latest first.
    """
    from pyspark.sql import functions as F

    if keyless == "drop":
        messages = messages.where("key IS NOT NULL")
    by: list[Any] = [F.col("key")]
    if keyless == "keep":
        by.append(F.expr("if(key IS NULL, struct(partition, offset), NULL)").alias("alone"))
    if not several:
        last = [F.max("offset").alias("offset"), F.first("partition").alias("partition")]
        return messages.groupBy(*by).agg(*last).select("key", "partition", "offset")
    own = messages.groupBy(*by, F.col("partition")).agg(F.max(F.struct("offset", "written_at")).alias("own"))
    found = F.max(F.struct("own.written_at", "partition", "own.offset")).alias("last")
    again = ["key", "alone"] if keyless == "keep" else ["key"]
    return own.groupBy(*again).agg(found).select("key", "last.partition", "last.offset")


def bitmaps(last: DataFrame) -> DataFrame:
    """Partition, number of a bitmap in it, its bits, and an offset in it that has no key, if there is one."""
    from pyspark.sql import functions as F

    return last.groupBy("partition", F.expr(f"offset DIV {_BITMAP}").alias("bucket")).agg(
        F.expr(f"bitmap_construct_agg(offset % {_BITMAP})").alias("bits"),
        F.expr("max(if(key IS NULL, offset, NULL))").alias("alone"),
    )
