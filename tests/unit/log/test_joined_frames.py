"""Several frames as one Arrow record batch: what each frame gives by itself, one behind the other."""

from __future__ import annotations

import random

import pytest

import penstock
from penstock.log.rows import FrameRows, MessageRows
from tests.require import module

pa = module("pyarrow")


@pytest.fixture
def topic(tmp_path):
    with penstock.open(tmp_path / "store") as store:
        yield store.create_topic("orders", sync="os")


def _plain(topic, tag):
    topic.write_many([b"%s-%d" % (tag, i) for i in range(20)])


def _keyed(topic, tag):
    topic.write_many([b"%s-%d" % (tag, i) for i in range(20)], keys=[b"k%d" % (i % 3) for i in range(20)])


def _odd(topic, tag):
    """Keys and values that are missing, headers on some, times of their own."""
    for i in range(5):
        with topic.writer() as writer:
            writer.write(None, key=tag)
            writer.write(tag, timestamp=1_700_000_000_000_000_000 + i, headers={"n": str(i), "raw": b"\xff"})
            writer.write(b"", key=None if i % 2 else b"")


def _produced(topic, tag):
    with topic.writer(producer_id=f"p-{tag.decode()}", group="g") as writer:
        for i in range(6):
            writer.write(b"%s %d" % (tag, i), key=b"k")


def _packed(topic, tag):
    with topic.writer(codec="gzip") as writer:
        for _ in range(8):
            writer.write(tag * 50)


def _one(topic, tag):
    for _ in range(4):
        topic.write(tag, key=b"alone")


KINDS = (_plain, _keyed, _odd, _produced, _packed, _one)


def _check(batch):
    whole, apart = batch.to_arrow(), [rows.record_batch() for rows in batch.rows]
    assert whole.equals(pa.concat_batches(apart))
    whole.validate(full=True)
    offsets = [message.offset for message in batch]
    assert whole["offset"].to_pylist() == offsets
    assert whole["value"].to_pylist() == [message.value for message in batch]
    assert whole["timestamp"].cast(pa.int64()).to_pylist() == [message.timestamp for message in batch]


@pytest.mark.parametrize("seed", range(12))
def test_frames_of_any_kinds_are_joined_as_they_are(topic, seed):
    chance = random.Random(seed)
    for number in range(chance.randrange(2, 9)):
        chance.choice(KINDS)(topic, b"%d" % number)
    for start in (0, 7):
        _check(topic.read(start=start, limit=chance.randrange(30, 200)))


@pytest.mark.parametrize("kind", KINDS)
def test_frames_of_one_kind_are_joined_as_they_are(topic, kind):
    for number in range(3):
        kind(topic, b"%d" % number)
    for start in range(3):
        _check(topic.read(start=start))


def test_frames_of_several_partitions_are_joined_in_their_order(tmp_path):
    with penstock.open(tmp_path / "store") as store:
        topic = store.create_topic("orders", sync="os", partitions=3)
        for number in range(4):
            _keyed(topic, b"%d" % number)
        batch = topic.read()
        _check(batch)
        assert set(batch.to_arrow()["partition"].to_pylist()) == {m.partition for m in batch}


def test_many_rows_are_joined_with_their_offsets(topic):
    """More than the columns that are kept, and over the end of a ramp of offsets."""
    for _ in range(70):
        topic.write_many([b"x"] * 1000)
    _check(topic.read(start=60_000, limit=9_000))
    assert topic.read(limit=70_000).to_arrow()["offset"].to_pylist() == list(range(70_000))


def test_a_frame_that_is_left_out_leaves_a_gap_in_the_offsets(topic):
    for number in range(3):
        _plain(topic, b"%d" % number)
    rows = topic.read().rows
    assert len(rows) == 3
    joined = rows[0].joined(rows[2:])
    assert joined["offset"].to_pylist() == [*range(20), *range(40, 60)]


def test_frames_and_messages_are_joined_together(topic):
    _keyed(topic, b"a")
    _one(topic, b"b")
    _keyed(topic, b"c")
    rows = topic.read().rows
    assert {type(each) for each in rows} == {FrameRows, MessageRows}
    assert rows[1].joined(rows[2:]).num_rows == 24
    _check(topic.read())


def test_a_value_that_cannot_be_unpacked_is_named(topic):
    _plain(topic, b"a")
    with topic.writer(codec="gzip") as writer:
        writer.write(b"sound")
    _plain(topic, b"b")
    rows = topic.read().rows
    stored = bytearray(rows[1].frame.body)
    stored[rows[1].frame.layout.values] ^= 0xFF  # the magic of gzip
    rows[1].frame.body = bytes(stored)
    with pytest.raises(penstock.Undecodable, match="offset 20"):
        rows[0].joined(rows[1:])


def test_a_batch_of_nothing_has_no_rows(topic):
    assert topic.read().to_arrow().num_rows == 0
