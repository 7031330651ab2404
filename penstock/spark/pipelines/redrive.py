"""Redrive: send dead letters, chosen by SQL, back to the consumers that rejected them.

    redrive(store, "orders", where="last_error LIKE '%timeout%' AND attempts > 3")

Spark reads the topic of dead letters and chooses; only numbers come back. Replaying them is writing a few
files of the store, which this process does as `DeadLetters.replay` would. A run that is killed has replayed
what it had noted, and perhaps some letters twice; run again, it goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from penstock.consume import dead_letter_topic
from penstock.consume.dead_letters import DeadLetters
from penstock.errors import InvalidOption
from penstock.parse import one_of
from penstock.spark.pipelines.engine import ENGINES, Choice, Engine, chosen, started
from penstock.store import Store
from penstock.store.pipelines import PipelineRun, Watch, claim, unwatched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Numbers replayed between two reports, and between two looks whether it is asked to stop.
_AT_A_TIME = 10_000


@dataclass(frozen=True)
class Redriven:
    """What a run of `redrive` did."""

    topic: str
    engine: str
    replayed: int


def redrive(
    store: Store, topic: str, *, where: str | None = None, consumer: str | None = None,
    reason: str | None = None, rate: float | None = None, name: str | None = None, engine: Engine = "auto",
    spark: SparkSession | None = None, master: str | None = None, watch: Watch = unwatched,
    told: Callable[[Choice], None] = lambda choice: None,
) -> Redriven:  # fmt: skip
    """Replay dead letters of a topic, all or those that fit; return when they are on their way.

    `where` is SQL over `number, consumer, reason, attempts, first_error, last_error, partition, offset,
    timestamp, key, value`, and needs Spark; `consumer` and `reason` are as for `DeadLetters.replay`. Each
    letter is delivered again to the consumer that rejected it, at most `rate` a second.
    """
    one_of("engine", engine, ENGINES)
    if where is not None and engine == "python":
        raise InvalidOption(
            "where is SQL, which needs Spark", hint='engine="spark", or consumer= and reason='
        )
    letters = store.dead_letters(topic)
    called = name or f"redrive-{topic}"
    identity = {"topic_id": store.topic(topic).id}
    with claim(store, called, kind="redrive", identity=identity) as run, watch(run):
        there = letters.find_topic()
        count = 0 if there is None else sum(log.bounds().end - log.bounds().start for log in there.logs())
        asked: Engine = "spark" if where is not None else engine
        choice = chosen(asked, count, is_running=spark is not None)
        told(choice)
        if there is None:
            return Redriven(topic, choice.engine, 0)
        if choice.engine == "python":
            numbers: Iterator[int] = (letter.number for letter in letters.choose(None, consumer, reason))
        else:
            frame = _letters(started(spark, master), store.path, dead_letter_topic.dead_name(topic))
            numbers = _numbers(_fitting(frame, where, consumer, reason), letters.settled_numbers(there))
        return Redriven(topic, choice.engine, _replay(letters, numbers, rate, run))


def _replay(letters: DeadLetters, numbers: Iterator[int], rate: float | None, run: PipelineRun) -> int:
    total = 0
    while not run.stopping and (some := list(islice(numbers, _AT_A_TIME))):
        total += letters.replay(some, rate=rate)
        run.report(rows=len(some))
    return total


def _letters(spark: SparkSession, path: str, topic: str) -> DataFrame:
    """Dead letters as a table; notes among them, and what others wrote there, are left out."""
    messages = (
        spark.read.format("penstock").option("topic", topic).option("includeHeaders", "true").load(path)
    )
    return messages.selectExpr(
        "offset AS number", _header(dead_letter_topic.ORIGIN, "origin"),
        _header(dead_letter_topic.REASON, "reason"),
        f"CAST(CAST(headers['{dead_letter_topic.ATTEMPTS}'] AS STRING) AS INT) AS attempts",
        _header(dead_letter_topic.FIRST_ERROR, "first_error"),
        _header(dead_letter_topic.LAST_ERROR, "last_error"), "timestamp", "key", "value",
    ).where("origin IS NOT NULL").selectExpr(
        "*", "get_json_object(origin, '$.consumer') AS consumer",
        "CAST(get_json_object(origin, '$.partition') AS INT) AS partition",
        "CAST(get_json_object(origin, '$.offset') AS BIGINT) AS offset",
    ).drop("origin")  # fmt: skip


def _header(name: str, column: str) -> str:
    return f"CAST(headers['{name}'] AS STRING) AS {column}"


def _fitting(frame: DataFrame, where: str | None, consumer: str | None, reason: str | None) -> DataFrame:
    from pyspark.sql.functions import col

    if where is not None:
        frame = frame.where(where)
    if consumer is not None:
        frame = frame.where(col("consumer") == consumer)
    if reason is not None:
        frame = frame.where(col("reason").contains(reason) | col("last_error").contains(reason))
    return frame


def _numbers(frame: DataFrame, gone: set[int]) -> Iterator[int]:
    """Yield numbers in ascending order, without those that were replayed or dropped before."""
    return iter(
        sorted(row.number for row in frame.select("number").toLocalIterator() if row.number not in gone)
    )
