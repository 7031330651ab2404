"""Ctrl-C at any moment: the log stays sound, what was acknowledged is there, and no lock is kept."""

import os
import random
import signal
import time

import pytest

import penstock
from tests.crash.processes import Worker, no_orphans, told
from tests.crash.workers import ORDERS
from tests.kit.system import locks_module as locks


@pytest.fixture
def store(scratch):
    path = os.path.join(scratch, "store")
    with penstock.open(path) as opened:
        opened.create_topic(ORDERS, segment_bytes=1 << 14)
    return path


def check(store, workers, *, lines):
    """Everything acknowledged is stored, nothing twice, and anyone can write at once."""
    with penstock.open(store) as opened:
        topic = opened.topic(ORDERS)
        topic.write(b"end:0")
        stored = [(m.partition, m.offset, m.text) for m in topic.scan().messages()]
    values = [value for _, _, value in stored]
    assert len(set(values)) == len(values)
    assert {each for worker in workers for each in told(lines(worker))} <= set(stored)
    return len(values)


def test_a_writer_that_is_interrupted_leaves_a_sound_log(scratch, store):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    workers: list[Worker] = []
    with no_orphans(workers):
        for number in range(6):
            worker = Worker(
                "interrupted", store, f"w{number}", "leave", out=os.path.join(scratch, f"w{number}")
            )
            workers.append(worker)
            worker.wait_for("ready")
            time.sleep(chance.uniform(0, 0.05))
            worker.send(signal.SIGINT)
            worker.end()
            assert "KeyboardInterrupt" in worker.errors()
    assert check(store, workers, lines=lambda worker: worker.lines()[1:]) > 6


@pytest.mark.parametrize("mode", ["stay", "commit"])
def test_a_process_that_goes_on_after_ctrl_c_keeps_no_lock(scratch, store, monkeypatch, mode):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    workers = [Worker("interrupted", store, "w", mode, out=os.path.join(scratch, "out"))]
    with no_orphans(workers):
        (worker,) = workers
        worker.wait_for("ready")
        for _ in range(600):
            time.sleep(chance.uniform(0, 0.004))
            worker.send(signal.SIGINT)
        worker.send(signal.SIGTERM)
        worker.wait_for("over")
        monkeypatch.setattr(locks, "PATIENCE_S", 2.0)
        assert check(store, workers, lines=lambda worker: worker.lines()[1:-1]) > 20
        worker.process.kill()
