"""Repacking: small frames become large ones, and nobody can tell from what is read."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.patience import PATIENCE_S

FOLLOWER = """
import sys, penstock
with penstock.open(sys.argv[1], read_only=True) as store:
    topic = store.topic("events")
    with topic.reader() as reader:
        got = reader.receive_batch(max_messages=10).messages()
        print("began", flush=True)
        sys.stdin.readline()
        while len(got) < int(sys.argv[2]):
            batch = reader.receive_batch(max_messages=100, timeout=10)
            assert len(batch), f"only {len(got)} came"
            got += batch.messages()
    print(all(m.offset == i and m.value == b"%d" % i for i, m in enumerate(got)))
"""

COUNT = 1500


@pytest.fixture
def topic(store, clock):
    """Single messages of every shape, in a segment that is about to be sealed."""
    topic = store.create_topic("events", sync="os", segment_age="1h", partitioner="diskq")
    for number in range(COUNT):
        if number % 5 == 0:
            topic.write(b"%d" % number, headers={"n": str(number), "raw": b"\0"})
        elif number % 5 == 1:
            topic.write(b"%d" % number, key=f"key-{number % 7}", timestamp=-number)
        elif number % 5 == 2:
            topic.write(b"%d" % number, key=b"")
        else:
            topic.write(b"%d" % number)
        if number % 100 == 0:
            clock.advance("1s")
    return topic


def data_files(store):
    return sorted((Path(store.path) / "topics" / "events").rglob("*.data"))


def everything(topic):
    return [
        (m.offset, m.key, m.value, dict(m.headers), m.timestamp, m.written_at, m.codec)
        for m in topic.read(limit=10_000)
    ]


def seal(store, topic, clock):
    clock.advance("2h")
    topic.write(b"%d" % COUNT)
    assert store.flush_housekeeping()


def test_repacking_keeps_everything(store, topic, clock, open_store):
    before, size = everything(topic), data_files(store)[0].stat().st_size
    seal(store, topic, clock)
    assert data_files(store)[0].stat().st_size < size / 2
    assert everything(topic)[:-1] == before
    for number in (0, 1, 749, COUNT - 1):
        assert topic.get(number).offset == number
    store.close()
    assert everything(open_store(clock=clock).topic("events"))[:-1] == before


def test_open_readers_go_on_through_a_repacking(store, topic, clock):
    with topic.reader(consumer="c", follow=False) as reader:
        batch = reader.receive_batch(max_messages=10)
        held = topic.read(limit=10_000)
        seal(store, topic, clock)
        assert [int(m.value) for m in held] == list(range(COUNT))
        reader.commit(batch)
        rest = [int(message.value) for message in reader]
    assert rest == list(range(10, COUNT + 1))


def test_readers_of_other_processes_are_unharmed(store, topic, clock):
    process = subprocess.Popen(
        [sys.executable, "-c", FOLLOWER, store.path, str(COUNT + 1)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "began\n"
    seal(store, topic, clock)
    answer, _ = process.communicate("go on\n", timeout=PATIENCE_S)
    assert answer == "True\n"
