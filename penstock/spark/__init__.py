"""Spark over topics: a session that finds its own Java, and the source behind `format("penstock")`.

    from penstock.spark import read, session

    spark = session()
    orders = read(spark, "data", "orders", where="offset >= 1000", columns=["key", "value"])

The driver opens the store and plans; executors open segment files and nothing else. What an executor
imports (`plan`, `segments`, `batches`) therefore stays away from `state` and above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.session import session

if TYPE_CHECKING:
    from penstock.spark.aggregation import aggregate
    from penstock.spark.read_topic import count, read
    from penstock.spark.user_session import register
    from penstock.spark.write_topic import to_topic

__all__ = ["aggregate", "count", "read", "register", "session", "to_topic"]

#: Loaded when they are asked for: executors import this package for its modules, and need none of these.
_LATER = {
    "aggregate": "penstock.spark.aggregation",
    "count": "penstock.spark.read_topic",
    "read": "penstock.spark.read_topic",
    "register": "penstock.spark.user_session",
    "to_topic": "penstock.spark.write_topic",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(_LATER[name]), name))
