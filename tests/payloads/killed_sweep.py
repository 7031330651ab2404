"""A sweep that kills itself while it deletes: python -m tests.payloads.killed_sweep STORE MOMENT."""

import sys

import penstock
from tests.kit.bodies import FileBodies
from tests.kit.pipelines import sweep_module as sweep
from tests.kit.system import CommandClock
from tests.payloads.killed_process import after


def some_deleted(store):
    sweep._AT_A_TIME = 1
    FileBodies.delete = after(FileBodies.delete, 2)
    sweep.sweep(store, "images", engine="python", apply=True)


if __name__ == "__main__":
    with penstock.open(sys.argv[1], clock=CommandClock()) as opened:
        globals()[sys.argv[2]](opened)
