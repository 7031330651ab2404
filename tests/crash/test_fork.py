"""fork() under load: what a child inherits is closed, the parent is unharmed, a child may open anew.

A lock is the parent's alone: the child's exit does not free it. And SQLite's notes about its locks are not
the child's, either: what it commits stays when the parent closes.
"""

import os
import signal
import sys
import threading
import time
from collections import Counter

import pytest

import penstock
from tests.crash.processes import Worker, no_orphans, told
from tests.crash.workers import ORDERS
from tests.kit.system import Files

CHILDREN = 12


def made(scratch):
    store = os.path.join(scratch, "store")
    with penstock.open(store) as opened:
        opened.create_topic(ORDERS, segment_bytes=1 << 16)
    return store


def test_children_of_a_busy_process_find_everything_closed_and_may_open_it_again(scratch):
    store = made(scratch)
    workers = [Worker("fork", store, str(CHILDREN), out=os.path.join(scratch, "out"))]
    with no_orphans(workers):
        assert workers[0].end() == 0, workers[0].errors()
    with penstock.open(store) as opened:
        stored = {(m.partition, m.offset): m.text for m in opened.topic(ORDERS).scan().messages()}
        consumers = {consumer.consumer for consumer in opened.topic(ORDERS).consumers()}
    acked = told(workers[0].lines())
    assert {(partition, offset): value for partition, offset, value in acked} == stored
    assert max(Counter(stored.values()).values()) == 1, "a buffer was written by parent and child"
    writers = Counter(value.partition(":")[0] for value in stored.values())
    assert writers["buffered"] == 50 * CHILDREN
    assert writers["thread"] > 0
    assert all(writers[f"child{number}"] == 1 for number in range(CHILDREN))
    assert consumers == {"parent", *(f"child{number}" for number in range(CHILDREN))}


def test_a_childs_exit_does_not_free_the_parents_lock(scratch):
    store = made(scratch)
    workers = [Worker("fork_inside", store, out=os.path.join(scratch, "out"))]
    with no_orphans(workers):
        assert workers[0].end() == 0, workers[0].errors()
    assert workers[0].lines() == ["kept", "free"] * 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12: other threads are alive
def test_what_a_child_commits_stays_when_its_parent_closes(scratch):
    """The parent would remove SQLite's log if it took itself for the last one."""
    store = made(scratch)
    opened = penstock.open(store)
    opened.topic(ORDERS).write(b"a")
    ready, begin = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            own = penstock.open(store)
            reader = own.topic(ORDERS).reader(consumer="child", follow=False)
            message = reader.receive()
            os.write(ready[1], b"x")
            os.read(begin[0], 1)
            reader.commit(message)
            own.create_topic("of-the-child")
            code = 0
        finally:
            os._exit(code)
    os.read(ready[0], 1)
    opened.close()
    os.write(begin[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    for end in (*ready, *begin):
        os.close(end)
    with penstock.open(store) as opened:
        assert [topic.name for topic in opened.topics()] == ["of-the-child", ORDERS]
        assert opened.topic(ORDERS).consumers()[0].positions == {0: 1}


def test_a_child_does_not_keep_its_parents_leases(scratch):
    """The parent is killed; its child lives on, and the partitions are free at once."""
    store = made(scratch)
    workers = [Worker("fork_member", store, out=os.path.join(scratch, "out"))]
    with no_orphans(workers), penstock.open(store) as opened:
        while not workers[0].lines():
            assert workers[0].process.poll() is None, workers[0].errors()
            time.sleep(0.005)
        child = int(workers[0].lines()[0].split()[1])
        try:
            topic = opened.topic(ORDERS)
            (member,) = topic.consumers()[0].members
            assert member.pid == workers[0].pid
            os.kill(workers[0].pid, signal.SIGKILL)
            workers[0].process.wait(30)
            os.kill(child, 0)
            with topic.reader(consumer="c") as reader:
                assert len(reader.assigned) == topic.options.partitions
        finally:
            os.kill(child, signal.SIGKILL)


class SlowOpening(Files):
    """Opening the lock of a store takes until somebody lets it go on."""

    def __init__(self):
        self.began, self.may_end = threading.Event(), threading.Event()

    def open(self, path, **how):
        fd = super().open(path, **how)
        if path.endswith("state.lock") and not self.began.is_set():
            self.began.set()
            self.may_end.wait(10)
        return fd


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_for_a_thread_that_opens_a_store(scratch):
    """Else the child has files and locks of a store that nobody in it knows, and cannot close."""
    other, files = os.path.join(scratch, "other"), SlowOpening()
    opener = threading.Thread(target=lambda: penstock.open(other, files=files).close())
    opener.start()
    assert files.began.wait(10)
    threading.Timer(0.2, files.may_end.set).start()
    pid = os.fork()
    if pid == 0:
        inherited = [name for name in map(_target, os.listdir("/proc/self/fd")) if name.startswith(other)]
        os._exit(len(inherited))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    opener.join()


def _target(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_children_go_on_while_a_thread_opens_and_closes_stores(scratch):
    """Each child opens a store itself: SQLite's own locks must not be in the hands of a thread it lacks."""
    store, other = made(scratch), os.path.join(scratch, "other")
    ended, failures = threading.Event(), []

    def open_and_close():
        while not ended.is_set():
            with penstock.open(other) as opened:
                opened.create_topic("x", exists_ok=True)

    opener = threading.Thread(target=open_and_close)
    opener.start()
    before, sys.unraisablehook = sys.unraisablehook, lambda failed: failures.append(failed.exc_value)
    try:
        for _ in range(25):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                with penstock.open(store) as own:
                    own.topic(ORDERS).write(b"child")
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        ended.set()
        opener.join()
        sys.unraisablehook = before
    assert not failures
