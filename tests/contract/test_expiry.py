"""Retention happens by itself, while a process has the store open for writing (S001-48, S002-27)."""

import subprocess
import sys
import time

import penstock
from penstock.testing import Clock
from tests.kit.topics import inside

PATIENCE_S = 60


def until(reached, patience_s=PATIENCE_S):
    """Wait for a state; how long it takes is a matter of the machine."""
    deadline = time.monotonic() + patience_s
    while not (found := reached()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)
    return found


def start_of(topic):
    return inside(topic).log(0).folder.read_shown().start


def test_what_has_expired_goes_while_a_writer_is_open(tmp_path):
    with penstock.open(tmp_path) as store:
        topic = store.create_topic("orders", retention="500ms")
        topic.write_many([b"a", b"b", b"c"])
        until(lambda: start_of(topic) == 3)
        assert topic.write(b"d").offset == 3


def test_a_topic_that_nobody_asked_for_is_cleaned_too(tmp_path):
    with penstock.open(tmp_path) as store:
        store.create_topic("orders", retention="500ms").write(b"a")
        tail = inside(store.topic("orders")).log(0).folder
        path = tail.path
    with penstock.open(tmp_path, read_only=True) as seen, penstock.open(tmp_path):
        folder = inside(seen.topic("orders")).log(0).folder
        assert folder.path == path
        until(lambda: folder.read_shown().start == 1)


def test_retention_given_later_is_heeded(tmp_path):
    with penstock.open(tmp_path) as store:
        topic = store.create_topic("orders")
        topic.write(b"a")
        topic.alter(retention="200ms")
        until(lambda: start_of(topic) == 1)


def test_lifetimes_of_keys_free_their_space_by_themselves(tmp_path):
    with penstock.open(tmp_path) as store:
        topic = store.create_topic("orders", index="key", key_retention={"progress.*": "300ms"})
        topic.write(b"a", key="progress.1")
        topic.write(b"b", key="other")
        until(lambda: start_of(topic) == 1)
        assert [message.value for message in topic.read()] == [b"b"]


def test_consumers_that_hold_messages_back_are_heard(tmp_path):
    with penstock.open(tmp_path) as store:
        topic = store.create_topic("orders", retention="100ms")
        topic.add_consumer("billing", important=True)
        free = store.create_topic("free", retention="100ms")
        topic.write(b"a")
        free.write(b"a")
        until(lambda: start_of(free) == 1)
        assert start_of(topic) == 0
        with topic.reader(consumer="billing", follow=False) as reader:
            reader.commit(reader.receive())
        until(lambda: start_of(topic) == 1)


KEEPER = """
import sys, time, penstock
with penstock.open(sys.argv[1]) as store:
    print("open", flush=True)
    sys.stdin.read()
"""


def kill(process):
    process.kill()
    process.communicate()


def test_another_process_takes_over_when_the_one_that_cleaned_is_killed(tmp_path):
    with penstock.open(tmp_path, clock=Clock()) as store:  # has no thread of its own
        topic = store.create_topic("orders", retention="300ms")
    keepers = []
    for _ in range(2):
        keeper = subprocess.Popen(
            [sys.executable, "-c", KEEPER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        keepers.append(keeper)
        assert keeper.stdout.readline() == b"open\n"
    try:
        with penstock.open(tmp_path) as store:
            topic = store.topic("orders")
            for number in range(3):
                topic.write(b"a")
                until(lambda number=number: start_of(topic) == number + 1)
                if keepers:
                    kill(keepers.pop(0))
    finally:
        for keeper in keepers:
            kill(keeper)


def test_a_clock_moved_by_hand_removes_nothing_behind_a_tests_back(tmp_path):
    clock = Clock()
    with penstock.open(tmp_path, clock=clock) as store:
        topic = store.create_topic("orders", retention="1h")
        topic.write(b"a")
        clock.advance("2h")
        assert start_of(topic) == 0
        assert topic.vacuum().messages == 1
        assert start_of(topic) == 1
