"""A sweep on Spark: the view `payloads` and the references of the messages, joined; nothing is collected.

bodies   place, name, size, modified           listed by tasks, a share each; before the messages are read
objects  place, name, messages, live, needed   what messages refer to, by object
joined   both, where either is
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.options import datetime_ns
from penstock.payloads.stores import Found
from penstock.spark.pipelines.sweep_findings import Counts, Evidence, Finding, Orphan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_ON = ["place", "name"]
_ALONE = "messages IS NULL"
_TOO_SHORT = "messages IS NOT NULL AND is_ours AND (size IS NULL OR size < needed)"
_PARTLY_DEAD = "messages IS NOT NULL AND size > live"


class SweepFrames:
    """One topic as Spark sees it."""

    def __init__(self, spark: SparkSession, store: str, topic: str, addresses: Sequence[str]) -> None:
        self._spark, self._store, self._topic, self._addresses = spark, store, topic, addresses

    @contextmanager
    def look(
        self, *, before_ns: int, most: int, starts: Callable[[], Mapping[int, int]]
    ) -> Iterator[Evidence]:
        """Look at all bodies and all messages; bodies stored since `before_ns` are young.

        `starts` says where the partitions begin at the moment it is called. The orphans can be had within.
        """
        is_old = f"unix_micros(modified) < {before_ns // 1000}"
        with ExitStack() as kept:
            bodies = _kept(self._bodies(), kept)  # now, before any message is read
            messages = self._messages()
            joined = _kept(_joined(bodies, messages), kept, at_once=False)
            counts = _counts(joined, is_old)
            orphans = joined.where(f"{_ALONE} AND {is_old}")
            losses: list[Row] = []
            if counts.losses:
                missing = _kept(self._missing(messages, joined), kept)
                lost = self._still_there(missing, starts())
                counts, losses = replace(counts, losses=lost.count()), lost.limit(most).collect()
            findings = [
                *map(_body_finding, _first(orphans, joined.where(_PARTLY_DEAD), most)),
                *(_loss_finding(row) for row in losses),
            ]
            yield Evidence(counts, findings, _one_by_one(orphans))

    def _bodies(self) -> DataFrame:
        view = self._spark.read.format("penstock").options(view="payloads", topic=self._topic)
        return view.load(self._store).select("place", "name", "size", "modified")

    def _messages(self) -> DataFrame:
        """What messages refer to, one row each; what retention removes meanwhile is passed over."""
        from pyspark.sql.functions import col

        source = self._spark.read.format("penstock").options(
            topic=self._topic, columns="partition,offset,reference", failOnDataLoss="false"
        )
        return source.load(self._store).where("reference IS NOT NULL").select(
            "partition", "offset", "reference.place", "reference.name",
            col("reference.size").alias("wanted"),
            (col("reference.start") + col("reference.size")).alias("behind"),
            col("reference.place").isin(list(self._addresses)).alias("is_ours"),
        )  # fmt: skip

    def _missing(self, messages: DataFrame, joined: DataFrame) -> DataFrame:
        """Messages whose body is missing also now: it may have come after the first look."""
        suspects = messages.join(joined.where(_TOO_SHORT).select(*_ON), _ON, "left_semi")
        return suspects.join(self._bodies(), _ON, "left").where("size IS NULL OR size < behind")

    def _still_there(self, missing: DataFrame, starts: Mapping[int, int]) -> DataFrame:
        """Without those that retention has taken meanwhile, and their bodies after them."""
        begin = self._spark.createDataFrame(list(starts.items()), "partition int, begin long")
        return missing.join(begin, "partition").where("offset >= begin").orderBy("partition", "offset")


def _kept(frame: DataFrame, until: ExitStack, *, at_once: bool = True) -> DataFrame:
    """The frame worked out once, now or when it is first asked, and kept as it was then."""
    until.callback(frame.persist().unpersist)
    if at_once:
        frame.count()
    return frame


def _one_by_one(frame: DataFrame) -> Iterator[Orphan]:
    """Spark is asked when the first one is wanted."""
    yield from map(_orphan, frame.toLocalIterator())


def _joined(bodies: DataFrame, messages: DataFrame) -> DataFrame:
    from pyspark.sql.functions import count, first, lit, max, sum

    objects = messages.groupBy(*_ON).agg(
        count(lit(1)).alias("messages"), sum("wanted").alias("live"), max("behind").alias("needed"),
        first("is_ours").alias("is_ours"),
    )  # fmt: skip
    return bodies.join(objects, _ON, "full_outer")


def _counts(joined: DataFrame, is_old: str) -> Counts:
    """All numbers in one pass; losses are objects as yet, and only suspected."""
    wanted = {
        "bodies": "count(size)", "bytes": "sum(size)", "messages": "sum(messages)",
        "orphans": f"count_if({_ALONE} AND {is_old})",
        "orphan_bytes": f"sum(size) FILTER (WHERE {_ALONE} AND {is_old})",
        "young": f"count_if({_ALONE} AND NOT {is_old})",
        "partly_dead": f"count_if({_PARTLY_DEAD})",
        "dead_bytes": f"sum(size - live) FILTER (WHERE {_PARTLY_DEAD})",
        "losses": f"count_if({_TOO_SHORT})",
        "elsewhere": "sum(messages) FILTER (WHERE NOT is_ours)",
    }  # fmt: skip
    (row,) = joined.selectExpr(*(f"{how} AS {name}" for name, how in wanted.items())).collect()
    return Counts(**{name: row[name] or 0 for name in wanted})


def _first(orphans: DataFrame, partly_dead: DataFrame, most: int) -> list[Row]:
    """The oldest of both, in one job; those that messages refer to are the latter."""
    oldest = [each.orderBy("modified", "name").limit(most) for each in (orphans, partly_dead)]
    return oldest[0].unionAll(oldest[1]).collect()


def _orphan(row: Row) -> Orphan:
    return Orphan(row.place, Found(row.name, row.size, datetime_ns(row.modified.astimezone())))


def _body_finding(row: Row) -> Finding:
    place, body = _orphan(row)
    if row.messages is None:
        return Finding("orphan", place, body.name, body.size, body.modified_ns)
    return Finding("partly dead", place, body.name, body.size - row.live, body.modified_ns)


def _loss_finding(row: Row) -> Finding:
    return Finding("loss", row.place, row.name, row.wanted, None, row.partition, row.offset)
