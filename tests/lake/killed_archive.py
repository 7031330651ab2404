"""An archive in a process that kills itself: `python -m tests.lake.killed_archive '{"store": …}'`."""

import json
import os
import signal
import sys
from collections.abc import Callable

from tests.kit.archives import parquet_files_module as parquet_files
from tests.kit.archives import storage_module as storage
from tests.kit.archives import table_module as table
from tests.kit.pipelines import archive_module as module
from tests.kit.pipelines import executors_module as executors
from tests.kit.slices import query_module as query
from tests.lake.conftest import spread_here

#: Where it may die: what is called there, and whether it dies before or after that.
POINTS: dict[str, tuple[object, str, bool]] = {
    "table made": (table, "_create", False),
    "planning": (query.StreamQuery, "planned", True),
    "writing": (storage.Storage, "create", False),
    "written": (table.Archive, "append", True),
    "committed": (table.Archive, "_commit", False),
    "consumer moved": (query.StreamQuery, "done", False),
    "merging": (parquet_files, "merge", True),
    "merged": (table.Archive, "replace", True),
    "replaced": (table.Archive, "replace", False),
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(inner: Callable, times: int, *, before: bool) -> Callable:
    """The same function, until it is called for the last time."""

    def call(*arguments, **named):
        nonlocal times
        times -= 1
        if before and not times:
            die()
        result = inner(*arguments, **named)
        if not times:
            die()
        return result

    return call


def main(store: str, into: str, point: str, times: int) -> None:
    executors.spread = spread_here
    module._ROUND_BYTES = 2048
    place, name, before = POINTS[point]
    setattr(place, name, dying(getattr(place, name), times, before=before))
    module.archive(store, "orders", into, spark=object())


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
