"""Real processes that store and take waiting messages, killed and stopped.

None is lost, none comes before its time, equal delays keep their order, and another process goes on.
"""

import os
import random
import signal
import time
from collections import defaultdict

import pytest

from penstock.errors import Closed, TakenElsewhere
from tests.crash.processes import Worker, no_orphans
from tests.crash.waiting_workers import opened
from tests.kit.patience import PATIENCE_S
from tests.kit.waiting import scheduler_lock_module as scheduler_lock

JOBS = "tests.crash.waiting_workers"


def start(workers, scratch, job, *arguments, out=None):
    path = os.path.join(scratch, out or f"out{len(workers)}")
    workers.append(Worker(job, os.path.join(scratch, "delay"), *arguments, out=path, jobs=JOBS))
    return workers[-1]


def run_with_kills(scratch, messages, chance):
    """Store in two processes, take in two, killing all of them again and again; what every taker said."""
    stop, workers = os.path.join(scratch, "stop"), []
    with no_orphans(workers):
        takers = [start(workers, scratch, "take", stop) for _ in range(2)]
        storers = {name: start(workers, scratch, "store", name, str(messages)) for name in ("a", "b")}
        rounds = 0
        while rounds < 5 or any(worker.process.poll() is None for worker in storers.values()):
            time.sleep(chance.uniform(0.0, 0.2))
            victim = chance.randrange(2)
            takers[victim].wait_for("ready")
            takers[victim].send(signal.SIGKILL)
            takers[victim].end()
            takers[victim] = start(workers, scratch, "take", stop)
            rounds += 1
            if rounds == 3:  # one that stores is killed too: what it said is stored
                storers["b"].send(signal.SIGKILL)
                storers["b"].end()
        assert storers["a"].end() == 0, storers["a"].errors()
        with opened(os.path.join(scratch, "delay")) as waiting:
            deadline = time.monotonic() + PATIENCE_S
            while waiting.count() > 8 and time.monotonic() < deadline:  # those that the takers hold back
                time.sleep(0.02)
        open(stop, "w").close()
        for taker in takers:
            assert taker.end() == 0, taker.errors()
    said = [line.split() for worker in workers for line in worker.lines()]
    stored = defaultdict(int)
    for line in said:
        if line[0] == "stored":
            stored[line[1]] = max(stored[line[1]], int(line[2]))
    with opened(os.path.join(scratch, "delay")) as waiting:
        deadline = time.monotonic() + PATIENCE_S
        while (left := waiting.count()) and time.monotonic() < deadline:  # a hop that was killed comes twice
            waiting.wait(1)
            for taken in waiting.take():
                taken.done()
    per_worker = [[line.split() for line in worker.lines()] for worker in workers]
    return stored, [[line for line in lines if line[0] == "came"] for lines in per_worker], left


def check(scratch, messages, seed):
    stored, per_worker, left = run_with_kills(scratch, messages, random.Random(seed))
    came = {(line[1], int(line[3])) for lines in per_worker for line in lines}
    assert stored["a"] == messages
    missing = [(name, n) for name, count in stored.items() for n in range(count) if (name, n) not in came]
    assert not missing, f"{len(missing)} lost, the first {missing[:5]}"
    assert left == 0
    assert not [line for lines in per_worker for line in lines if line[5] == "early"]
    first_time = set()
    for lines in per_worker:
        last = {}
        for _, name, wait, number, _, _ in lines:
            if (name, number) not in first_time and wait in ("20", "50", "200"):
                assert int(number) > last.get((name, wait), -1), "equal delays keep their order"
                last[name, wait] = int(number)
            first_time.add((name, number))


def test_nothing_is_lost_while_takers_and_storers_are_killed(scratch):
    check(scratch, 3000, seed=1)


@pytest.mark.slow
def test_a_hundred_thousand_messages_survive_kills(scratch):
    check(scratch, 100_000, seed=2)


def test_another_process_goes_on_when_the_scheduler_is_killed(scratch):
    workers = []
    with no_orphans(workers), opened(os.path.join(scratch, "delay")) as waiting:
        waiting.store(wait=0, id=bytes(16), topic="t", data=b"x 0 0 0")
        holder = start(workers, scratch, "hold")
        holder.wait_for("holds x 0 0 0")
        assert waiting.holder == holder.pid
        assert waiting.take() == [], "one process hands out at a time"
        holder.send(signal.SIGKILL)
        assert waiting.wait(10), "its end wakes who waits"
        (taken,) = waiting.take()
        assert taken.data == b"x 0 0 0"
        assert waiting.holder == os.getpid()
        taken.done()


def test_a_stopped_scheduler_is_kicked_and_fenced(scratch, monkeypatch):
    monkeypatch.setattr(scheduler_lock, "STOPPED_S", 0.2)
    workers = []
    with no_orphans(workers), opened(os.path.join(scratch, "delay")) as waiting:
        waiting.store(wait=0, id=bytes(16), topic="t", data=b"x 0 0 0")
        holder = start(workers, scratch, "hold")
        holder.wait_for("holds x 0 0 0")
        assert waiting.wait(20), "who is stopped for some time loses the post"
        (taken,) = waiting.take()
        holder.send(signal.SIGCONT)
        holder.wait_for("TakenElsewhere")
        taken.done()
        assert waiting.count() == 0


def test_kick_takes_the_post_at_once(scratch):
    with opened(os.path.join(scratch, "delay")) as first, opened(os.path.join(scratch, "delay")) as second:
        first.store(wait=0, id=bytes(16), topic="t", data=b"once more")
        assert first.wait(5)
        (early,) = first.take()
        assert second.take() == []
        assert second.kick() == os.getpid()
        (late,) = second.take()
        assert late.data == early.data
        with pytest.raises(TakenElsewhere, match="another process"):
            early.done()
        with pytest.raises(TakenElsewhere):
            early.again("1s")
        assert first.take() == []
        late.done()
        assert second.count() == 0


def test_a_forked_child_must_open_anew_and_the_parent_keeps_the_post(scratch):
    with opened(os.path.join(scratch, "delay")) as waiting:
        waiting.store(wait=0, id=bytes(16), topic="t", data=b"mine")
        assert waiting.wait(5)
        (taken,) = waiting.take()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                waiting.take()
            except Closed:
                with opened(os.path.join(scratch, "delay")) as own:
                    own.store(wait=0, id=bytes(16), topic="t", data=b"the child's")
                    code = 0 if own.take() == [] else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        taken.done()
        assert waiting.wait(5)
        assert [each.data for each in waiting.take()] == [b"the child's"]
