"""Penstock in a session that somebody else made: source and sink registered, workers in the right Python."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from penstock.errors import MissingExtra
from penstock.spark.worker import PYTHON, refuse_wrong_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: What makes streams and reads better, and may be set while a session runs.
_SETTINGS = {
    # A query killed while it wrote its first offsets leaves a file, and could else never begin again.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def register(spark: SparkSession) -> SparkSession:
    """Make `format("penstock")` work in any session, classic or Connect; returns the session.

        spark = register(SparkSession.builder.getOrCreate())

    Spark runs its workers with the first `python3` on the PATH unless it is told otherwise, and that is not
    this one in a virtual environment that is not activated (cron, systemd, an IDE). In a classic session that
    is put right here. Raises `UsageError` with the line to add when the workers' Python lacks Penstock.
    """
    try:
        from penstock.spark.source.source import DefaultSource
    except ImportError:
        raise MissingExtra("pyspark", "spark") from None
    if not is_connect(spark):
        _use_this_python(spark)
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    spark.dataSource.register(DefaultSource)
    return spark


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a client of a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def cores(spark: SparkSession) -> int:
    """How many tasks a session runs at the same time; 0 when it does not say, as with Connect."""
    return 0 if is_connect(spark) else int(spark.sparkContext.defaultParallelism)


def _use_this_python(spark: SparkSession) -> None:
    """Have workers run in this Python, unless the session was told of another that has Penstock."""
    context = spark.sparkContext
    is_local = str(context.master).startswith("local")
    told = os.environ.get(PYTHON) or spark.conf.get("spark.pyspark.python", None)
    if told is None:
        if is_local:
            context.pythonExec = sys.executable
            return
        told = str(context.pythonExec)
    elif not is_local:
        return  # a path of other machines, which cannot be looked at from here
    refuse_wrong_python(told)
