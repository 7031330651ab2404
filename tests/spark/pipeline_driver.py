"""A ready pipeline in a process that dies: `python -m tests.spark.pipeline_driver '{"store": …}'`."""

import json
import os
import signal
import sys

import penstock
from penstock import Transaction
from penstock.spark import session
from tests.kit.pipelines import compact_module as compact
from tests.kit.pipelines import dedup_module as dedup
from tests.kit.pipelines import replay_table_module as replay_table
from tests.kit.spark_settings import SETTINGS

#: Where a driver may die: before or after the commit of what its tasks staged.
POINTS = ("before", "after")


def die() -> None:
    """End driver and JVM at once."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def dying_commit(point: str) -> None:
    commit = Transaction.commit

    def dying(tx: Transaction) -> None:
        if point == "before":
            die()
        commit(tx)
        die()

    Transaction.commit = dying  # type: ignore[method-assign]


def dying_batches(point: str) -> None:
    """The sink commits in a process of its own, so here it is the batch as a whole."""
    writing = dedup._writing

    def dying(*arguments, **named):
        write = writing(*arguments, **named)

        def one(batch, number: int) -> None:
            if point == "before":
                die()
            write(batch, number)
            die()

        return one

    dedup._writing = dying


def main(store: str, job: str, point: str, table: str) -> None:
    spark = session("local[2]", **SETTINGS)
    with penstock.open(store) as opened:
        if job == "dedup":
            dying_batches(point)
            dedup.dedup(opened, "source", "sink", within="1h", once=True, spark=spark)
        else:
            dying_commit(point)
            if job == "compact":
                compact.compact(opened, "source", "sink", engine="spark", spark=spark)
            else:
                replay_table.replay_table(opened, table, "sink", spark=spark)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
