"""A process that holds a lock is stopped (SIGSTOP, a debugger, a frozen container).

Writers of that partition wait, then hear who it is; nobody breaks the lock; when it goes on, so does
everyone. Readers take no lock and notice nothing.
"""

import os
import signal
import threading
import time

import pytest

import penstock
from penstock.errors import LockTimeout, NotYetDurable, Unavailable
from tests.crash.processes import Worker, no_orphans
from tests.crash.workers import ORDERS
from tests.kit.system import locks_module as locks
from tests.kit.topics import inside


@pytest.fixture
def store(scratch):
    with penstock.open(os.path.join(scratch, "store")) as opened:
        topic = opened.create_topic(ORDERS)
        topic.write(b"before")
        yield opened


@pytest.fixture
def stopped(scratch, store):
    """Start a process that takes a lock and stops."""
    workers = []
    with no_orphans(workers):

        def start(which):
            workers.append(Worker("hold", store.path, which, out=os.path.join(scratch, which)))
            workers[-1].wait_for("held")
            _wait_until_stopped(workers[-1].pid)
            return workers[-1]

        yield start


def _wait_until_stopped(pid):
    while True:
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "T":
                return
        time.sleep(0.005)


def values_of(topic):
    return [message.value for message in topic.read()]


@pytest.mark.parametrize("which", ["append", "tail"])
def test_a_writer_waits_for_a_stopped_holder_and_then_names_it(store, stopped, monkeypatch, which):
    topic = store.topic(ORDERS)
    holder = stopped(which)
    monkeypatch.setattr(locks, "PATIENCE_S", 0.3)
    began = time.monotonic()
    # Behind the tail lock it is in the log already: who tried again would have it twice.
    refusal = LockTimeout if which == "append" else NotYetDurable
    with pytest.raises(refusal, match=f"process {holder.pid} holds") as caught:
        topic.write(b"too early")
    assert time.monotonic() - began >= 0.3
    timed_out = caught.value if which == "append" else caught.value.__cause__
    assert timed_out.pid == holder.pid
    assert isinstance(timed_out, Unavailable)
    assert caught.value.retryable == (which == "append")
    assert values_of(topic) == [b"before"], "readers go on"
    assert locks.flock_holder(_fd(topic, which)) == holder.pid, "it still has its lock"
    holder.send(signal.SIGCONT)
    assert holder.end() == 0, holder.errors()
    assert holder.lines() == ["held", "released"], "nobody broke its lock"
    topic.write(b"after")
    # Behind the tail lock it was appended already, and becomes durable with the next message.
    assert values_of(topic) == [b"before", *([b"too early"] if which == "tail" else []), b"after"]


def _fd(topic, which):
    folder = inside(topic).log(0).folder
    return folder.append_fd if which == "append" else folder.tail_fd


@pytest.mark.parametrize("which", ["append", "tail"])
def test_writers_that_still_wait_go_on_when_the_holder_does(store, stopped, which):
    topic = store.topic(ORDERS)
    holder = stopped(which)
    receipts = []
    threads = [
        threading.Thread(target=lambda n=n: receipts.append(topic.write(b"waiting %d" % n))) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert receipts == []
    holder.send(signal.SIGCONT)
    for thread in threads:
        thread.join(20)
    assert sorted(receipt.offset for receipt in receipts) == [1, 2, 3, 4]
    assert sorted(values_of(topic)) == sorted([b"before", *(b"waiting %d" % n for n in range(4))])


@pytest.mark.parametrize("which", ["append", "tail"])
def test_a_buffered_writer_says_who_stops_it(store, stopped, monkeypatch, which):
    topic = store.topic(ORDERS)
    holder = stopped(which)
    monkeypatch.setattr(locks, "PATIENCE_S", 0.3)
    writer = topic.writer()
    writer.write(b"buffered")
    with pytest.raises(LockTimeout) as caught:
        writer.flush()
    assert caught.value.pid == holder.pid
    holder.send(signal.SIGCONT)
    assert holder.end() == 0, holder.errors()
    monkeypatch.undo()
    writer.close()
    assert values_of(topic) == [b"before", b"buffered"]


def test_a_consumer_names_who_stops_it_from_committing(store, stopped, monkeypatch):
    topic = store.topic(ORDERS)
    with topic.reader(consumer="billing", follow=False) as reader:
        message = reader.receive()
        holder = stopped("state")
        monkeypatch.setattr(locks, "PATIENCE_S", 0.3)
        with pytest.raises(LockTimeout) as caught:
            reader.commit(message)
        assert caught.value.pid == holder.pid
        assert topic.write(b"writers need no state.lock").offset == 1
        holder.send(signal.SIGCONT)
        assert holder.end() == 0, holder.errors()
        reader.commit(message)
        assert topic.consumers()[0].positions == {0: 1}, "trying again is enough"


def test_a_holder_that_is_killed_lets_go_at_once(store, stopped):
    holder = stopped("append")
    holder.send(signal.SIGKILL)
    holder.end()
    began = time.monotonic()
    store.topic(ORDERS).write(b"after")
    assert time.monotonic() - began < locks.PATIENCE_S
