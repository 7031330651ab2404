"""Settings of Spark that a pipeline's query is started with; a query keeps those of its start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTS = "spark.sql.shuffle.partitions"
_STATE = "spark.sql.streaming.stateStore.providerClass"
#: State on disk rather than in memory, so that it may grow; `transformWithState` works with no other.
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@contextmanager
def settled(spark: SparkSession, *, parts: int | None) -> Iterator[None]:
    """For a while: state in RocksDB, in so many parts; None leaves their number as it is.

    A checkpoint remembers both, and goes on with what it was begun with.
    """
    wanted = {_STATE: _ROCKSDB} if parts is None else {_STATE: _ROCKSDB, _PARTS: str(parts)}
    before = {name: spark.conf.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))
