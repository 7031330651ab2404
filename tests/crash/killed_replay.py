"""A replay or a compaction that kills itself: `python -m tests.crash.killed_replay STORE JOB CALLS`."""

import sys

import penstock
from penstock.spark.pipelines.compact import compact
from penstock.store import replay as module
from tests.crash.workers import Deadly


def main(path: str, job: str, calls: str) -> None:
    """Die before the file call of that number, counted from when the pipeline begins."""
    module._STEP_BYTES, module._READ_BYTES = 12_000, 6_000
    files = Deadly(int(calls))
    with penstock.open(path, files=files) as store:
        store.topic("source").stats()
        files.armed = True
        if job == "replay":
            module.replay(store, "source", "sink")
        else:
            compact(store, "source", "sink", engine="python")
        files.armed = False


if __name__ == "__main__":
    main(*sys.argv[1:])
