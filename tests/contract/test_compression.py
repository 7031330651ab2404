"""compress="zstd": batches lie compressed in the log, and nobody can tell from what is read."""

import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import penstock
from tests.kit.frames import COMPRESSED
from tests.kit.frames import frame_module as frame
from tests.kit.logs import SEGMENT_HEADER_BYTES
from tests.kit.patience import PATIENCE_S
from tests.kit.stores import StoreVerifier
from tests.kit.values import zstd_module
from tests.kit.values import zstd_module as zstd
from tests.require import require

COUNT = 3000
VALUES = [
    json.dumps({"id": n, "customer": f"customer-{n % 7}", "paid": n % 2 == 0}).encode() for n in range(COUNT)
]
KEYS = [b"customer-%d" % (n % 7) for n in range(COUNT)]


@pytest.fixture
def topic(store):
    return store.create_topic("orders", compress="zstd")


def data_files(store):
    return sorted(Path(store.path).rglob("*.data"))


def compressed_flags(store):
    """For each frame with messages: whether it lies compressed."""
    found = []
    for path in data_files(store):
        frames = frame.walk(path.read_bytes(), SEGMENT_HEADER_BYTES)
        found += [bool(f.head.flags & COMPRESSED) for _, f in frames if f.head.count]
    return found


def everything(topic):
    return [
        (m.offset, m.key, m.value, dict(m.headers), m.timestamp, m.written_at, m.codec)
        for m in topic.read(limit=100_000)
    ]


def test_batches_take_less_room_and_read_the_same(store, topic):
    plain = store.create_topic("plain")
    for each in (topic, plain):
        each.write_many(VALUES, keys=KEYS, headers={"from": "shop"}, timestamps=list(range(COUNT)))
    assert topic.stats().bytes * 4 < plain.stats().bytes
    assert [row[:5] for row in everything(topic)] == [row[:5] for row in everything(plain)]
    assert compressed_flags(store)[0]


def test_every_way_to_read(topic):
    topic.write_many(VALUES, keys=KEYS)
    assert [m.value for m in topic.read(start=2995)] == VALUES[2995:]
    assert [topic.get(n).value for n in (0, 1, 1500, COUNT - 1)] == [
        VALUES[n] for n in (0, 1, 1500, COUNT - 1)
    ]
    assert [m.value for m in topic.scan().messages()] == VALUES
    with topic.reader(consumer="c", follow=False) as reader:
        got = []
        while len(batch := reader.receive_batch(max_messages=700)):
            got += [m.value for m in batch]
            reader.commit(batch)
    assert got == VALUES
    require("pyarrow")
    table = topic.scan().to_arrow()
    assert table["value"].to_pylist() == VALUES
    assert table["key"].to_pylist() == KEYS
    assert topic.scan(columns=["offset"]).to_arrow()["offset"].to_pylist() == list(range(COUNT))


def test_what_a_read_may_take_is_counted_before_compression(topic):
    """Or a few bytes on disk would become a batch far larger than asked for."""
    topic.write_many([b"x" * 10_000] * 100)
    assert topic.stats().bytes < 10_000
    with topic.reader(follow=False) as reader:
        assert len(reader.receive_batch(max_bytes=50_000)) == 5


def test_a_batch_that_is_read_in_parts_is_unpacked_once(topic, monkeypatch):
    topic.write_many(VALUES)
    calls, unpack = [], zstd.decode
    monkeypatch.setattr(zstd, "decode", lambda *given: calls.append(1) or unpack(*given))
    with topic.reader(follow=False) as reader:
        got = []
        while len(batch := reader.receive_batch(max_messages=100)):
            got += [m.value for m in batch]
    assert got == VALUES
    assert [topic.get(n).value for n in range(50)] == VALUES[:50]
    assert len(calls) <= 3


def test_what_does_not_become_smaller_is_stored_as_it_is(store, topic):
    topic.write(b"tiny")
    topic.write(b"x" * 1000)
    assert compressed_flags(store) == [False, True]
    assert [m.value for m in topic.read()] == [b"tiny", b"x" * 1000]


def test_the_writer_compresses_what_it_gathers(store, topic):
    with topic.writer(linger="1h") as writer:
        for key, value in zip(KEYS, VALUES, strict=True):
            writer.write(value, key=key)
    assert [m.value for m in topic.read(limit=COUNT)] == VALUES
    assert all(compressed_flags(store))


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lzop"])
def test_with_a_codec_of_the_messages(topic, codec):
    with topic.writer(codec=codec) as writer:
        writer.write_many([*VALUES[:100], None, b""])
    assert [(m.value, m.codec) for m in topic.read()] == [(v, codec) for v in [*VALUES[:100], None, b""]]


def test_alter_counts_for_new_batches(store, topic):
    topic.write_many(VALUES)
    topic.alter(compress=None)
    topic.write_many(VALUES)
    topic.alter(compress="zstd")
    topic.write_many(VALUES)
    assert compressed_flags(store) == [True, False, True]
    assert [m.value for m in topic.read(limit=10_000)] == VALUES * 3


def test_sealed_segments_are_repacked_into_compressed_batches(store, clock, open_store):
    topic = store.create_topic("orders", sync="os", segment_age="1h", compress="zstd")
    for n in range(600):
        topic.write(VALUES[n], key=KEYS[n] if n % 3 else None, headers={"n": str(n)} if n % 5 == 0 else None)
        if n % 100 == 0:
            clock.advance("1s")
    before, size = everything(topic), topic.stats().bytes
    clock.advance("2h")
    topic.write(b"next")
    assert store.flush_housekeeping()
    assert topic.stats().bytes < size / 4
    assert compressed_flags(store)[0]
    assert everything(topic)[:-1] == before
    for row in (before[0], before[101], before[350], before[599]):
        assert topic.get(row[0]).value == row[2]
        moment = row[5]
        assert topic.read(start=moment_of(moment)).messages()[0].offset == next(
            each[0] for each in before if each[5] >= moment
        )
    store.close()
    again = open_store(clock=clock)
    assert everything(again.topic("orders"))[:-1] == before


def moment_of(nanoseconds):
    return datetime.fromtimestamp(nanoseconds // 10**9, tz=UTC)


def test_a_store_without_records_and_indexes_is_found_again(store, topic, open_store, clock):
    """Recovery goes by the frames alone, compressed or not."""
    for _ in range(5):
        topic.write_many(VALUES)
    store.close()
    for path in Path(store.path).rglob("*"):
        if path.name in ("append", "tail") or path.suffix in (".index", ".timeindex"):
            path.unlink()
    again = open_store(clock=clock)
    assert [m.value for m in again.topic("orders").read(limit=10**6)] == VALUES * 5


DIES = """
import os, sys, penstock
from penstock.files import Files

class Dies(Files):
    def pwritev(self, fd, parts, at):
        super().pwritev(fd, parts, at)
        os._exit(9)

with penstock.open(sys.argv[1], files=Dies()) as store:
    store.topic("orders").write_many([b"written by the dead " * 20] * 100)
"""


def test_batches_of_a_writer_that_died_are_adopted(store, topic):
    topic.write_many(VALUES[:10])
    assert (
        subprocess.run([sys.executable, "-c", DIES, store.path], timeout=PATIENCE_S, check=False).returncode
        == 9
    )
    topic.write(b"next")
    assert [m.value for m in topic.read()] == [*VALUES[:10], *[b"written by the dead " * 20] * 100, b"next"]
    assert store.topic("orders").stats().messages == 111


def test_damage_costs_the_batch_it_hit(store, topic, open_store, clock, tmp_path):
    for _ in range(3):
        topic.write_many(VALUES)
    path = data_files(store)[0]
    frames = list(frame.walk(path.read_bytes(), SEGMENT_HEADER_BYTES))
    at, second = frames[1]
    store.close()
    copy = tmp_path / "copy"
    shutil.copytree(store.path, copy)
    (damaged,) = copy.rglob("*.data")
    data = bytearray(damaged.read_bytes())
    data[at + second.head.header_length + 5] ^= 1
    damaged.write_bytes(data)
    again = open_store(copy, clock=clock).topic("orders")
    with pytest.raises(penstock.Corrupt) as found:
        again.read(start=COUNT)
    assert (found.value.first, found.value.stop) == (COUNT, 2 * COUNT)
    with again.reader(follow=False, on_gap="skip") as reader:
        assert [m.offset for m in reader] == [*range(COUNT), *range(2 * COUNT, 3 * COUNT)]


def test_verify_finds_nothing_wrong(store, clock):
    topic = store.create_topic("orders", segment_age="1h", compress="zstd")
    for value in VALUES[:200]:
        topic.write(value * 3)
    clock.advance("2h")
    topic.write_many(VALUES)
    assert store.flush_housekeeping()  # the first segment is repacked and indexed
    store.close()
    verifier = StoreVerifier(store.path)
    assert list(verifier.findings()) == []
    assert verifier.checked.messages == 200 + COUNT


def test_a_missing_library_is_said_when_the_option_is_asked_for(store, monkeypatch):
    def missing():
        raise penstock.MissingExtra("zstd", "codecs")

    monkeypatch.setattr(zstd_module, "_contexts", missing)
    with pytest.raises(penstock.MissingExtra, match=r"penstock\[codecs\]"):
        store.create_topic("orders", compress="zstd")
    assert store.topics() == []


def test_reading_without_the_library_says_so_and_loses_nothing(topic, monkeypatch):
    def missing():
        raise penstock.MissingExtra("zstd", "codecs")

    topic.write_many(VALUES)
    with topic.reader(consumer="c", follow=False) as reader:
        with monkeypatch.context() as patched:
            patched.setattr(zstd, "library", missing)
            for _ in range(2):
                with pytest.raises(penstock.MissingExtra, match=r"penstock\[codecs\]"):
                    reader.receive()
        assert [m.value for m in reader] == VALUES
