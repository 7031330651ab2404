"""Tables that a pipeline reads beside its topics: files that Spark knows, and Delta tables without a jar.

A table is read when a run begins. What is added to it later is seen by the next run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.errors import InvalidOption, MissingExtra
from penstock.spark.own.blame import blamed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPARKS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_OPTIONS = {"csv": {"header": "true", "inferSchema": "true"}}
_DELTA_LOG = "_delta_log"
_HINT = "a .parquet, .csv or .json file (or a folder of them named so), or the folder of a Delta table"


def located(path: str, beside: str | None) -> str:
    """A path as it was given, or, if it is relative, from the folder of the file that names it."""
    if beside is None or os.path.isabs(path) or "://" in path:
        return path
    return os.path.join(os.path.dirname(os.path.abspath(beside)), path)


def check_table(name: str, path: str) -> None:
    """Raise `InvalidOption` when there is no such table, as far as that can be told without Spark."""
    if "://" in path:
        return
    if not os.path.exists(path):
        raise InvalidOption(f"table {name!r} is not there: {path}", hint=_HINT)
    if not _is_delta(path):
        _format(name, path)


def read_table(spark: SparkSession, name: str, path: str) -> DataFrame:
    """The table as a DataFrame."""
    if _is_delta(path):
        with blamed(f"reading table {name!r}", path):
            return _delta(spark, path)
    kind = _format(name, path)
    with blamed(f"reading table {name!r}", path):
        return spark.read.format(kind).options(**_OPTIONS.get(kind, {})).load(path)


def _is_delta(path: str) -> bool:
    return os.path.isdir(os.path.join(path, _DELTA_LOG))


def _delta(spark: SparkSession, path: str) -> DataFrame:
    try:
        from deltalake import DeltaTable
    except ImportError:
        raise MissingExtra("deltalake", "arrow") from None
    return spark.createDataFrame(DeltaTable(path).to_pyarrow_table())


def _format(name: str, path: str) -> str:
    stem, suffix = os.path.splitext(path.rstrip("/"))
    if suffix in (".gz", ".bz2", ".zst"):
        suffix = os.path.splitext(stem)[1]
    try:
        return _SPARKS[suffix.lower()]
    except KeyError:
        raise InvalidOption(f"table {name!r} is of no kind that is known: {path}", hint=_HINT) from None
