"""Spark over topics: a session that finds its own Java, and the source behind `format("penstock")`.

    from penstock.spark import session

    spark = session()
    orders = spark.read.format("penstock").option("topic", "orders").load("data")

The driver opens the store and plans; executors open segment files and nothing else. What an executor
imports (`planning`, `segments`, `columns`, `batches`) therefore stays away from `state` and above.
"""

from __future__ import annotations

from penstock.spark.session import session

__all__ = ["session"]
