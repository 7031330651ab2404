"""fork() under load: what a child inherits is closed, the parent is unharmed, a child may open anew.

A lock is the parent's alone: the child's exit does not free it. And SQLite's notes about its locks are not
the child's, either: what it commits stays when the parent closes.
"""

import os
import signal
import time
from collections import Counter

import pytest

import penstock
from tests.crash.processes import Worker, no_orphans, told
from tests.crash.workers import ORDERS

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
