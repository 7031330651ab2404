"""`quality`: messages that keep all rules go to one topic, the others to another, which says why.

    quality(store, "orders", good="orders.good", bad="orders.bad",
            rules={"is json": "get_json_object(text, '$.id') IS NOT NULL", "small": "length(text) < 1000"})

A rule is a condition in SQL that a good message fulfills; where it is null, the message does not. Both topics
are written in one transaction, so a message is in exactly one of them, also through kill -9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidOption
from penstock.parse import Duration
from penstock.spark.pipelines.engine import started
from penstock.spark.pipelines.expressions import (
    check_expression,
    columns_for,
    no_messages,
    topic_stream,
    with_text,
)
from penstock.spark.pipelines.sink_run import StreamPace, run_into
from penstock.store import Store
from penstock.store.pipelines import Watch, claim, unwatched
from penstock.store.replay import identity_of, two_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: The header of a bad message that names the rules it breaks.
HEADER = "quality"
_FAILED = "_failed"
_METRICS = "quality"


@dataclass(frozen=True)
class QualityReport:
    """What a run of `quality` found."""

    source: str
    good: str
    bad: str
    read: int
    passed: int
    failed: int
    #: How many messages broke each rule.
    rules: dict[str, int]


def quality(
    store: Store, source: str, *, good: str, bad: str, rules: Mapping[str, str], once: bool = False,
    trigger: Duration | None = None, name: str | None = None, spark: SparkSession | None = None,
    master: str | None = None, watch: Watch = unwatched,
) -> QualityReport:  # fmt: skip
    """Divide the messages of `source` by rules: into `good`, or with the broken rules' names into `bad`.

    Messages keep key, value, headers and timestamp; those in `bad` have a header `quality` besides, with the
    names of the rules they break, separated by commas. Returns how many broke which.
    """
    origin, target = two_topics(store, source, good)
    two_topics(store, source, bad)
    if good == bad:
        raise InvalidOption(
            f"good and bad messages would both go to {good!r}", hint="name two topics: good ones, bad ones"
        )
    if not rules:
        raise InvalidOption("no rules", hint="rules={'has a key': 'key IS NOT NULL'}")
    if any("," in each or not each.strip() for each in rules):
        raise InvalidOption("a rule's name is empty or has a comma in it")
    pace = StreamPace(once, trigger)
    called = name or f"quality-{source}"
    columns = columns_for(("partition", "offset", "timestamp", "key", "value", "headers"), rules.values())
    running = started(spark, master, is_stream=True)
    divided(no_messages(running, columns), good, bad, rules)  # a wrong rule is said before all else
    identity = {**identity_of(origin, target), "bad": bad}
    with claim(
        store, called, kind="quality", identity=identity, consumer=called,
        options={"once": once, "rules": dict(rules)},
    ) as run, watch(run):  # fmt: skip
        tally = _Tally(rules)
        messages = topic_stream(running, store, source, columns, called)
        run_into(run, divided(messages, good, bad, rules), store.path, {}, pace, tally.on_batch)
        passed = tally.read - tally.failed
        return QualityReport(source, good, bad, tally.read, passed, tally.failed, tally.rules)


def divided(messages: DataFrame, good: str, bad: str, rules: Mapping[str, str]) -> DataFrame:
    """Rows for the sink: each with its topic, and the broken rules as a header."""
    from pyspark.sql import functions as F

    known = with_text(messages)
    for each, text in rules.items():
        check_expression(known, f"rule {each!r}", text, is_condition=True)
    broken = {each: ~F.coalesce(F.expr(text), F.lit(False)) for each, text in rules.items()}
    names = F.array_compact(F.array(*(F.when(is_broken, F.lit(each)) for each, is_broken in broken.items())))
    counts = [
        F.sum(is_broken.cast("bigint")).alias(f"rule {at}") for at, is_broken in enumerate(broken.values())
    ]
    judged = known.withColumn(_FAILED, names).observe(
        _METRICS,
        F.count("*").alias("read"),
        F.sum((F.size(_FAILED) > 0).cast("bigint")).alias("failed"),
        *counts,
    )
    is_good = F.size(_FAILED) == 0
    reason = F.create_map(F.lit(HEADER), F.concat_ws(",", _FAILED).cast("binary"))
    before = F.map_filter(
        F.coalesce("headers", F.create_map().cast("map<string,binary>")), lambda k, _: k != HEADER
    )
    return judged.select(
        F.when(is_good, F.lit(good)).otherwise(F.lit(bad)).alias("topic"), "key", "value", "timestamp",
        F.when(is_good, F.col("headers")).otherwise(F.map_concat(before, reason)).alias("headers"),
    )  # fmt: skip


class _Tally:
    """What Spark observed, batch by batch."""

    def __init__(self, rules: Mapping[str, str]) -> None:
        self.read = self.failed = 0
        self.rules = dict.fromkeys(rules, 0)

    def on_batch(self, report: Any) -> None:
        seen = (report["observedMetrics"] or {}).get(_METRICS)
        if seen is None:
            return
        self.read += seen["read"] or 0
        self.failed += seen["failed"] or 0
        for at, each in enumerate(self.rules):
            self.rules[each] += seen[f"rule {at}"] or 0
