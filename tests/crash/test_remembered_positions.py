"""Positions of streams that a process remembers (S000-21): nobody gets an old one, whatever another does."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parents[2]

#: For each line: put the consumer there, and say so.
PUT = """
import sys, penstock

with penstock.open(sys.argv[1]) as store:
    stream = store.stream("stream")
    for line in sys.stdin:
        stream.update_consumer_position("reader", "orders", int(line))
        print("done", flush=True)
"""

#: Killed behind the commit, before it is counted.
KILLED = """
import os, signal, sys, penstock
from penstock.state.change_count import ChangeCount

with penstock.open(sys.argv[1]) as store:
    stream = store.stream("stream")
    ChangeCount.end_change = lambda self: os.kill(os.getpid(), signal.SIGKILL)
    stream.update_consumer_position("reader", "orders", 7)
"""


def started(script, path):
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True,
    )  # fmt: skip


@pytest.fixture
def stream(tmp_path):
    with penstock.open(tmp_path / "store") as store:
        stream = store.stream("stream")
        stream.update_consumer_position("reader", "orders", 1)
        assert [stream.get_consumer_position("reader", "orders") for _ in range(3)] == [1, 1, 1]
        yield stream


def test_what_another_process_said_is_known_at_once(stream, tmp_path):
    with started(PUT, tmp_path / "store") as other:
        for number in [*range(2, 200), 5, 0]:
            other.stdin.write(f"{number}\n")
            other.stdin.flush()
            assert other.stdout.readline() == "done\n"
            assert stream.get_consumer_position("reader", "orders") == number
            assert stream.get_consumer_position("another", "orders") == 0
        other.stdin.close()


def test_a_process_that_began_before_any_position_was_stored_sees_the_first(tmp_path):
    with penstock.open(tmp_path / "store") as store:
        stream = store.stream("stream")
        assert stream.get_consumer_position("reader", "orders") == 0
        with started(PUT, tmp_path / "store") as other:
            other.communicate("3\n")
        assert stream.get_consumer_position("reader", "orders") == 3


def test_positions_only_rise_for_who_looks_while_another_process_advances(stream, tmp_path):
    seen, over = [], threading.Event()

    def look():
        while not over.is_set():
            seen.append(stream.get_consumer_position("reader", "orders"))

    looking = threading.Thread(target=look)
    looking.start()
    with started(PUT, tmp_path / "store") as other:
        other.communicate("".join(f"{number}\n" for number in range(2, 2000)))
    assert stream.get_consumer_position("reader", "orders") == 1999
    over.set()
    looking.join()
    assert seen == sorted(seen)


def test_a_writer_killed_behind_its_commit_leaves_nobody_with_an_old_position(stream, tmp_path):
    with started(KILLED, tmp_path / "store") as other:
        assert other.wait() == -signal.SIGKILL
    assert [stream.get_consumer_position("reader", "orders") for _ in range(3)] == [7, 7, 7]
    stream.update_consumer_position("reader", "orders", 8)
    assert [stream.get_consumer_position("reader", "orders") for _ in range(3)] == [8, 8, 8]


def test_positions_of_a_stream_that_was_dropped_are_gone(tmp_path):
    """The next topic may have the same id."""
    with penstock.open(tmp_path / "store") as store, penstock.open(tmp_path / "store") as other:
        stream = store.stream("stream")
        stream.update_consumer_position("reader", "orders", 5)
        assert stream.get_consumer_position("reader", "orders") == 5
        other.drop_topic("stream")
        anew = store.stream("stream")
        assert anew.get_consumer_position("reader", "orders") == 0


def test_a_closed_store_remembers_nothing(tmp_path):
    with penstock.open(tmp_path / "store") as store:
        stream = store.stream("stream")
        stream.update_consumer_position("reader", "orders", 5)
        assert stream.get_consumer_position("reader", "orders") == 5
    with pytest.raises(penstock.Closed):
        stream.get_consumer_position("reader", "orders")


def test_a_store_that_may_only_be_read_sees_each_change(stream, tmp_path):
    with penstock.open(tmp_path / "store", read_only=True) as store:
        watching = store.stream("stream")
        for number in (3, 4):
            stream.update_consumer_position("reader", "orders", number)
            assert watching.get_consumer_position("reader", "orders") == number
