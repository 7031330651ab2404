"""Which engine does the work: this process, or Spark, whose start alone takes longer than much small work."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.errors import MissingExtra
from penstock.parse import one_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Engine = Literal["auto", "python", "spark"]
ENGINES = ("auto", "python", "spark")
#: Up to here this process is done before Java is up, and its table of keys stays small.
PYTHON_MESSAGES_MOST = 2_000_000


class Choice(NamedTuple):
    """An engine, and why it was chosen."""

    engine: Literal["python", "spark"]
    reason: str

    def __str__(self) -> str:
        return f"{self.engine}: {self.reason}"


def chosen(
    asked: Engine, messages: int, *, is_running: bool = False, has_spark: bool | None = None
) -> Choice:
    """The engine for so many messages; `is_running`: a Spark session is there already.

    Raises `MissingExtra` when Spark is asked for and not installed.
    """
    one_of("engine", asked, ENGINES)
    installed = find_spec("pyspark") is not None if has_spark is None else has_spark
    if asked == "spark" and not installed:
        raise MissingExtra("pyspark", "spark")
    if asked != "auto":
        return Choice(asked, "as asked")
    if not installed:
        return Choice("python", "PySpark is not installed")
    if is_running:
        return Choice("spark", "a session is running")
    if messages <= PYTHON_MESSAGES_MOST:
        return Choice("python", f"{messages:,} messages, a JVM would take longer to start")
    return Choice("spark", f"{messages:,} messages are worth starting a JVM")


def started(spark: SparkSession | None, master: str | None, *, is_stream: bool = False) -> SparkSession:
    """The session that is given, or one on `master`; raises `UsageError` for one that `is_stream` cannot use.

    A client of Spark Connect hears of a stream's batches, but not how many rows they had.

    On one machine a shuffle has two parts a core: Spark's 200 would cost a stream with a state 200 files a
    batch. A stream keeps the number it began with.
    """
    from penstock.spark.session import session
    from penstock.spark.user.query_plan import refuse_connect

    if spark is not None:
        if is_stream:
            refuse_connect(spark)
        return spark
    settings = {} if master is not None and not master.startswith("local") else _LOCAL_SETTINGS
    return session(master, **settings)


_LOCAL_SETTINGS = {"spark.sql.shuffle.partitions": 2 * (os.cpu_count() or 1)}
