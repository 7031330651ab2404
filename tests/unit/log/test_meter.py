"""The record R: its bytes, its samples over rolls and processes, and when a partition is hot (S001-26)."""

import os
from itertools import pairwise

import pytest

import penstock
from penstock.log.rate_policy import SAMPLES, RateSample
from penstock.log.rate_record import RATE_BYTES, RateRecord, parse_rate
from tests.kit.topics import inside

KIB = 1024
TENTH_S = 300 / SAMPLES


def meter(topic):
    found = inside(topic).log(0).appender.meter
    assert found is not None
    return found


def samples(topic):
    return meter(topic)._file.read().samples


def test_the_record_comes_back_from_its_bytes():
    record = RateRecord(5, 6, 7, 8, tuple(RateSample(place, 10 * place) for place in range(SAMPLES)))
    data = record.pack(boot=42)
    assert len(data) == RATE_BYTES == 208
    assert parse_rate(data, 42) == record
    assert parse_rate(data, 43) is None, "another boot"
    for at in range(len(data)):
        assert parse_rate(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], 42) is None
    assert parse_rate(b"", 42) is None


def test_golden_bytes():
    """The bytes on disk stay (docs/FORMAT.md)."""
    record = RateRecord(0x0102, 0x0304, 0x0506, 0x0708, (RateSample(0x090A, 0x0B0C),))
    assert record.pack(boot=0x1122).hex() == (
        "3d40e932" "01010000" "2211000000000000" "0201000000000000" "0403000000000000"
        "0605000000000000" "0807000000000000" "0a09000000000000" "0c0b000000000000" + "00" * 144
    )  # fmt: skip


def test_a_topic_that_measures_nothing_has_no_record(store, tmp_path):
    topic = store.create_topic("t")
    topic.write(b"x")
    assert inside(topic).log(0).appender.meter is None
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name == "rate"]


def test_a_sample_is_taken_each_tenth_by_whoever_writes_first(store, clock, tmp_path):
    topic = store.create_topic("t", write_quota=True, partition_write_speed="1MiB")
    with penstock.open(tmp_path / "data", clock=clock) as second:
        other = second.topic("t")
        for _ in range(3):
            topic.write(b"x" * KIB)
            other.write(b"x" * KIB)
            clock.advance(TENTH_S)
        taken = samples(topic)
        assert taken == samples(other)
    assert [round((each.at - taken[0].at) / 1e9 / TENTH_S) for each in taken] == [0, 1, 2]
    assert [each.bytes // KIB - taken[0].bytes // KIB for each in taken] == [0, 2, 4]


def test_no_more_than_ten_samples_are_kept(store, clock):
    topic = store.create_topic("t", write_quota=True)
    for _ in range(15):
        topic.write(b"x")
        clock.advance(TENTH_S)
    assert len(samples(topic)) == SAMPLES


def test_bytes_are_counted_on_over_rolls(store, clock):
    topic = store.create_topic("t", write_quota=True, segment_bytes="64KiB")
    for _ in range(8):
        topic.write_many([b"x" * 10 * KIB] * 5)
        clock.advance(TENTH_S)
    taken = samples(topic)
    steps = [after.bytes - before.bytes for before, after in pairwise(taken)]
    assert all(50 * KIB <= step <= 52 * KIB for step in steps), steps
    assert meter(topic).write_rate() == pytest.approx(50 * KIB / TENTH_S, rel=0.2)


def test_a_partition_written_to_at_its_speed_for_the_window_is_hot(store, clock):
    """S001-26; a pause makes it cold again."""
    topic = store.create_topic("t", write_quota=True, partition_write_speed="10KiB", sync="os")
    hot = []
    for _ in range(12):
        for _ in range(30):
            topic.write(b"x" * 10 * KIB)  # waits for its quota, and so time passes
        hot.append(meter(topic).is_hot)
    assert hot.index(True) in (9, 10)
    assert hot[-1]
    clock.advance(300)
    topic.write(b"x")
    assert not meter(topic).is_hot


def test_a_damaged_record_is_begun_anew(store, tmp_path):
    topic = store.create_topic("t", write_quota=True)
    topic.write(b"x")
    (path,) = tmp_path.rglob("rate")
    path.write_bytes(b"\xff" * 300)
    assert topic.write(b"x").waited == 0
    assert topic.stats().messages == 2


def test_a_log_that_rests_gives_the_record_back_too(store):
    topic = store.create_topic("t", write_quota=True)
    topic.write(b"x")
    before = len(os.listdir("/proc/self/fd"))
    assert inside(topic).log(0).rest()
    assert len(os.listdir("/proc/self/fd")) < before - 3
    assert topic.write(b"x").offset == 1
