"""`upsert` in a process of its own, to be killed: `python -m tests.lake.upsert_driver STORE TABLE`."""

import sys

import penstock
from tests.kit.pipelines import upsert, upsert_module

if __name__ == "__main__":
    upsert_module._ROUND_BYTES = 4096  # many small rounds, so that there is much to be killed in
    with penstock.open(sys.argv[1]) as store:
        print("begun", flush=True)
        upsert(store, "users", sys.argv[2], engine="python")
        print("done", flush=True)
