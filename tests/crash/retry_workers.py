"""Processes that retry, reject, delay and hold sessions: `python -m tests.crash.retry_workers <job> …`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from typing import Literal

import penstock
from penstock import Message, Retry
from tests.crash.workers import ORDERS, Deadly, say

POLICY = Retry(first="10ms", limit="40ms", attempts=3)
#: A reader that is killed has used up an attempt of what it had.
QUEUE_POLICY = Retry(first="10ms", limit="40ms", attempts=12)


def never_works(offset: int) -> bool:
    """Messages whose handler always fails; of the others every third one does so twice."""
    return offset % 17 == 0


def process(store: str, stop: str, keep_order: str = "", kind: Literal["stream", "queue"] = "stream") -> None:
    """Handle messages for a consumer together with others, until `stop` is there; say what was handled."""
    logging.getLogger("penstock.reader").setLevel(logging.CRITICAL)  # nobody reads what each failure logs

    def handle(message: Message) -> None:
        if os.path.exists(stop):
            reader.stop()
        fails = never_works(message.offset) or (message.offset % 3 == 0 and message.attempt < 3)
        say(f"{'failed' if fails else 'done'} {message.partition} {message.offset} {time.monotonic_ns()}")
        if fails:
            raise RuntimeError(f"attempt {message.attempt}")

    policy = QUEUE_POLICY if kind == "queue" else POLICY
    with (
        penstock.open(store) as opened,
        opened.topic(ORDERS).reader(consumer="c", retry=policy, kind=kind) as reader,
    ):
        while not os.path.exists(stop):
            reader.process(handle, workers=2, follow=False, keep_order=bool(keep_order))


def interruptible(store: str) -> None:
    """Handle messages in two threads until Ctrl-C; say what began and ended."""

    def handle(message: Message) -> None:
        say(f"begun {message.offset}")
        time.sleep(0.1)  # so that Ctrl-C comes while it runs
        say(f"ended {message.offset}")

    with penstock.open(store) as opened, opened.topic(ORDERS).reader(consumer="c") as reader:
        summary = reader.process(handle, workers=2)
        say(f"returned {summary.handled}")


def deadly(store: str, kind: Literal["stream", "queue"] = "stream", how: str = "process") -> None:
    """Handle messages, until one that says so kills the process: the kernel does it, without a word."""

    def handle(message: Message) -> None:
        if message.value == b"deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        say(f"done {message.offset} {message.attempt}")

    with (
        penstock.open(store) as opened,
        opened.topic(ORDERS).reader(consumer="c", retry=POLICY, kind=kind, follow=False) as reader,
    ):
        if how == "process":
            reader.process(handle, follow=False)
        while how == "receive" and (message := reader.receive()) is not None:
            handle(message)
            reader.commit(message)
        while how == "batch" and (batch := reader.receive_batch(timeout=0)):
            for message in batch:
                handle(message)
            reader.commit(batch)


def die_settling(store: str, calls: str, kind: Literal["stream", "queue"] = "stream") -> None:
    """Retry one message, reject another, retry a third again; killed by its own hand at a given file call."""
    files = Deadly(int(calls))
    with penstock.open(store, files=files) as opened:
        reader = opened.topic(ORDERS).reader(consumer="c", retry=POLICY, kind=kind)
        batch = reader.receive_batch(timeout=5)
        say("begun")
        files.armed = True
        reader.retry(batch[0], error="one")
        reader.reject(batch[1], "no")
        again = reader.receive(timeout=5)
        assert again is not None
        reader.retry(again, error="two")
        say("settled")
        os.kill(os.getpid(), signal.SIGKILL)


def delay(store: str, count: str) -> None:
    """Write delayed messages, say which are promised, and append what is due, until killed."""
    with penstock.open(store) as opened:
        topic = opened.topic(ORDERS)
        for number in range(int(count)):
            topic.write(f"{os.getpid()}-{number}", delay=0.01 * (1 + number % 5))
            say(f"{os.getpid()}-{number}")
        signal.pause()


def die_delaying(store: str, calls: str) -> None:
    """A transaction that writes one message and delays another, killed at a given file call of its commit."""
    files = Deadly(int(calls))
    with penstock.open(store, files=files) as opened:
        tx = opened.transaction()
        tx.write(ORDERS, b"now")
        tx.write(ORDERS, b"later", deliver_at=time.time_ns() + 10**8)
        say("begun")
        files.armed = True
        tx.commit()
        say("settled")
        os.kill(os.getpid(), signal.SIGKILL)


def die_publishing(store: str, calls: str) -> None:
    """Append what is due, killed at a given file call."""
    files = Deadly(int(calls))
    files.armed = True
    with penstock.open(store, files=files) as opened:
        say("begun")
        topic = opened.topic(ORDERS)
        while not len(topic.read()):
            opened.flush_housekeeping()
        opened.flush_housekeeping()  # waits for the thread that may be at it, and finishes
        say("settled")
        os.kill(os.getpid(), signal.SIGKILL)


def open_sessions(store: str) -> None:
    """Open sessions, one of them durable, hold one that is due, and wait to be killed."""
    with penstock.open(store) as opened:
        (held,) = opened.sessions.due("mail", timeout=10)
        durable = opened.sessions.open("mail", data=b"a", durable=True)
        durable.append(b"b")
        opened.sessions.open("mail", data=b"c", durable=True).finish()
        lost = opened.sessions.open("mail", data=b"lost")
        say(f"{held.id} {durable.id} {lost.id}")
        signal.pause()


_ALL = (process, interruptible, deadly, die_settling, delay, die_delaying, die_publishing, open_sessions)
JOBS = {job.__name__: job for job in _ALL}

if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
