"""Ctrl-C at any moment of a buffered writer: nothing that was accepted is lost, and nothing is stored twice.

A timer stands for the user: it interrupts as SIGINT does, at random moments, hundreds of times while a writer
writes and flushes. The program goes on each time, as it would in a notebook.
"""

import os
import random
import signal
import time
from collections import Counter

import pytest

import penstock

#: Enough to meet every step of a flush several times; with PENSTOCK_INTERRUPTS more.
INTERRUPTS = int(os.environ.get("PENSTOCK_INTERRUPTS", "60"))


class Interrupts:
    """Interrupts this thread at a random moment after each `arm`, as SIGINT would."""

    def __init__(self, seed):
        self._source = random.Random(seed)
        self.is_armed = False
        self.count = 0

    def arm(self):
        self.is_armed = True
        signal.setitimer(signal.ITIMER_REAL, self._source.uniform(0.0002, 0.004))

    def _handle(self, number, frame):
        if self.is_armed:
            self.is_armed = False
            self.count += 1
            raise KeyboardInterrupt

    def __enter__(self):
        self._before = signal.signal(signal.SIGALRM, self._handle)
        return self

    def __exit__(self, *error):
        self.is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)


def write_all(writer, interrupts, *, numbered=False, **options):
    """Write through the interrupts; the numbers that were accepted, and those that may have been.

    With seqnos the caller writes again what may not have been accepted.
    """
    accepted, unsure, number = [], [], 1
    while interrupts.count < INTERRUPTS:
        try:
            interrupts.arm()
            while interrupts.is_armed:  # or a destructor met the interrupt, which Python ignores
                seqno = {"seqno": number} if numbered else {}
                writer.write(b"%d" % number, key=b"k%d" % (number % 7), **seqno, **options)
                accepted.append(number)
                number += 1
                if not number % 997:
                    writer.flush()
        except KeyboardInterrupt:
            if accepted and accepted[-1] == number:
                number += 1
            elif not numbered:
                unsure.append(number)
                number += 1
    return accepted, [*unsure, number]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # some destructors meet it
@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("producer", ["", "counts", "gives"])
def test_an_interrupted_writer_stores_everything_once(tmp_path, partitions, producer):
    with penstock.open(tmp_path / "store") as store:
        topic = store.create_topic("orders", partitions=partitions, sync="os")
        writer = topic.writer(producer_id=producer or None, linger="1ms")
        writer.write(b"0", key=b"k0", **({"seqno": 0} if producer == "gives" else {}))
        with Interrupts(partitions) as interrupts:
            accepted, unsure = write_all(writer, interrupts, numbered=producer == "gives")
        writer.close()
        stored = Counter()
        for partition in range(partitions):
            numbers = [int(m.value) for m in topic.read(partition=partition, limit=10**8)]
            stored.update(numbers)
            for key in range(7):  # the order of a key is the order of its calls
                own = [number for number in numbers if number % 7 == key]
                assert own == sorted(own)
    assert [number for number, count in stored.items() if count > 1] == []
    assert [number for number in accepted if number not in stored] == []
    assert set(stored) <= {0, *accepted, *unsure}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_writer_stores_delayed_messages_once(tmp_path):
    with penstock.open(tmp_path / "store") as store:
        topic = store.create_topic("orders", partitions=4, sync="os")
        writer = topic.writer(linger="1ms")
        writer.write(b"0", delay="1ms")
        with Interrupts(4) as interrupts:
            accepted, unsure = write_all(writer, interrupts, delay="1ms")
        writer.close()
        stored, deadline = Counter(), time.monotonic() + 120
        with topic.reader() as reader:
            while stored.total() < writer.written and time.monotonic() < deadline:
                stored.update(int(message.value) for message in reader.receive_batch(10_000, timeout=5))
            stored.update(int(message.value) for message in reader.receive_batch(timeout=0.3))
    assert [number for number, count in stored.items() if count > 1] == []
    assert [number for number in accepted if number not in stored] == []
    assert set(stored) <= {0, *accepted, *unsure}
    assert stored.total() == writer.written
