"""Streams under many publishers, and when they are killed: what was acknowledged is there, whole."""

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import penstock

ROOT = Path(__file__).parents[2]

PUBLISH = """
import random, sys, threading, penstock

path, process, threads, each = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
with penstock.open(path) as store:
    stream = store.stream("stream")

    def publish(number):
        chance = random.Random(f"{process}-{number}")
        for count in range(each):
            size = chance.choice((0, 10, 1000, 50_000, 70_000, 200_000))
            body = f"{process}-{number}-{count}:".encode() + chance.randbytes(size)
            stream.publish(f"subject-{chance.randrange(3)}", body)

    sys.stdin.readline()
    workers = [threading.Thread(target=publish, args=(number,)) for number in range(threads)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
"""

PUBLISH_FOR_EVER = """
import sys, penstock

with penstock.open(sys.argv[1]) as store:
    stream = store.stream("stream")
    count = 0
    while True:
        size = (0, 100, 100_000)[count % 3]
        print(stream.publish("orders", f"{count}:".encode() + bytes(size)), flush=True)
        count += 1
"""


def started(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip


def expected(process, number, count):
    """What one thread of one process publishes, by the name that begins each body."""
    chance = random.Random(f"{process}-{number}")
    for each in range(count):
        size = chance.choice((0, 10, 1000, 50_000, 70_000, 200_000))
        body = f"{process}-{number}-{each}:".encode() + chance.randbytes(size)
        chance.randrange(3)
        yield body.partition(b":")[0].decode(), body


def test_a_consumer_that_acks_misses_nothing_of_32_concurrent_publishers(tmp_path):
    """W000-1: a smaller sequence that became visible after a larger one was acked was never delivered."""
    processes, threads, each = 4, 8, 8
    total = processes * threads * each
    with penstock.open(tmp_path) as store:
        stream = store.stream("stream")
        publishers = [started(PUBLISH, tmp_path, number, threads, each) for number in range(processes)]
        got, positions = {}, []

        def consume():
            while len(got) < total:
                for message in stream.subscribe("billing", "*", timeout=60):
                    name, _, _ = message.data.partition(b":")
                    got.setdefault(name.decode(), message.data)
                    assert stream.ack("billing", "*", message.sequence)
                    positions.append(message.sequence)
                    if len(got) == total:
                        return

        consumer = threading.Thread(target=consume)
        consumer.start()
        for publisher in publishers:
            publisher.stdin.write(b"\n")
            publisher.stdin.close()
        assert [publisher.wait(120) for publisher in publishers] == [0] * processes
        consumer.join(120)
        for publisher in publishers:
            publisher.stdout.close()
        wanted = dict(
            pair
            for process in range(processes)
            for number in range(threads)
            for pair in expected(process, number, each)
        )
        assert got == wanted
        assert positions == sorted(set(positions))
        assert stream.get_consumer_position("billing", "*") == stream.get_latest_sequence() == total
        assert stream.check_new_messages("*", "billing")["new_count"] == 0


def test_what_a_killed_publisher_was_told_is_there_with_its_body(tmp_path):
    """B000: the front end restarted under load: nothing lost."""
    with penstock.open(tmp_path) as store:
        stream = store.stream("stream")
        told, killed = [], 0
        for _ in range(3):
            publisher = started(PUBLISH_FOR_EVER, tmp_path)
            told += [int(publisher.stdout.readline()) for _ in range(15)]
            publisher.send_signal(signal.SIGKILL)
            told += [int(line) for line in publisher.stdout.read().split(b"\n")[:-1]]
            killed += publisher.wait(30) == -signal.SIGKILL
            publisher.stdin.close()
            publisher.stdout.close()
            assert stream.publish("images") > told[-1]
        assert killed == 3
        assert told == sorted(set(told))
        messages = {message.sequence: message for message in stream.messages("orders")}
        assert told == [sequence for sequence in sorted(messages) if sequence in set(told)]
        for message in messages.values():
            count, _, rest = message.data.partition(b":")
            assert len(rest) == (0, 100, 100_000)[int(count) % 3]
