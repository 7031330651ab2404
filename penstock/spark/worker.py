"""Spark's Python workers, as our tasks find them."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle_in() -> None:
    """Make what this worker has loaded cheap to keep; called by a task, it works once in each worker.

    PySpark collects garbage after every task, and so goes each time through all that was ever imported:
    pandas, Arrow, itself. That took 40 ms a task, a fifth of a scan. What is loaded by now stays until the
    worker ends, so it need not be looked at again.
    """
    gc.freeze()
