"""Retention: the oldest goes, exactly; the newest never; offsets are never given twice."""

import os
from pathlib import Path

import pytest

import penstock

SMALL = {"sync": "os", "segment_bytes": "4KiB"}


def offsets(topic):
    return [message.offset for message in topic.scan().messages()]


def files_of(store, topic, ending):
    return sorted((Path(store.path) / "topics" / topic.name / "parts" / "000000").glob(f"*{ending}"))


def test_age_is_exact_for_each_message(store, clock):
    """W004-05, S001-48: fresh messages stay though they share a segment and a frame with old ones."""
    topic = store.create_topic("t", retention="1h", sync="os")
    for _ in range(10):
        topic.write(b"x")
        clock.advance("10m")
    report = topic.vacuum()
    assert offsets(topic) == [4, 5, 6, 7, 8, 9]
    assert (report.topic, report.messages, report.segments) == ("t", 4, 0)
    (partition,) = report.partitions
    assert (partition.partition, partition.start_before, partition.start, partition.held_by) == (0, 0, 4, ())
    assert topic.stats().messages == 6
    with pytest.raises(penstock.OffsetTrimmed):
        topic.get(3)


def test_age_is_exact_within_a_repacked_frame(store, clock):
    topic = store.create_topic("t", retention="1h", segment_age="100m", **SMALL)
    for _ in range(12):
        topic.write(b"x")
        clock.advance("10m")
    assert store.flush_housekeeping()
    assert topic.stats().partitions[0].segments == 2
    topic.vacuum()
    assert offsets(topic) == [6, 7, 8, 9, 10, 11]


def test_a_message_exactly_as_old_as_the_retention_stays(store, clock):
    topic = store.create_topic("t", retention="1h", sync="os")
    topic.write(b"x")
    clock.advance("1h")
    topic.vacuum()
    assert offsets(topic) == [0]
    clock.advance("1ms")
    topic.vacuum()
    assert offsets(topic) == []


def test_the_producers_time_does_not_matter(store, clock):
    topic = store.create_topic("t", retention="1h", sync="os")
    topic.write(b"x", timestamp=-1)
    assert topic.vacuum().messages == 0


def test_whole_segments_are_removed_and_their_bytes_reported(store, clock):
    topic = store.create_topic("t", retention="1h", **SMALL)
    for _ in range(20):
        topic.write(b"x" * 1000)
    assert store.flush_housekeeping()
    before = topic.stats()
    clock.advance("2h")
    topic.write(b"fresh")
    report = topic.vacuum()
    after = topic.stats()
    assert report.messages == 20
    assert report.segments == before.partitions[0].segments - after.partitions[0].segments
    assert report.bytes > 15_000
    assert after.bytes < before.bytes - 15_000
    assert offsets(topic) == [20]


def test_removed_segments_stay_readable_for_a_minute_then_go(store, clock):
    topic = store.create_topic("t", retention="1h", **SMALL)
    for _ in range(20):
        topic.write(b"x" * 1000)
    clock.advance("2h")
    topic.vacuum()
    assert files_of(store, topic, ".deleted")
    clock.advance("59s")
    topic.vacuum()
    assert files_of(store, topic, ".deleted")
    clock.advance("2s")
    topic.vacuum()
    assert files_of(store, topic, ".deleted") == []


def test_size_is_kept_and_the_newest_never_goes(store):
    """S004-05, B004-14."""
    topic = store.create_topic("t", max_bytes="256KiB", sync="os")
    for number in range(1000):
        topic.write(b"%04d" % number + b"x" * 1000)
    assert store.flush_housekeeping()
    topic.vacuum()
    stats = topic.stats()
    assert stats.bytes <= 256 * 1024
    assert stats.messages >= 64
    assert offsets(topic) == list(range(1000 - stats.messages, 1000))
    topic.alter(max_bytes=1)
    topic.vacuum()
    assert offsets(topic)[-1] == 999


def test_age_and_size_hold_together(store, clock):
    topic = store.create_topic("t", max_bytes="256KiB", retention="1h", sync="os")
    topic.write_many([b"old"] * 10)
    clock.advance("2h")
    topic.write_many([b"fresh"] * 10)
    topic.vacuum()
    assert offsets(topic) == list(range(10, 20))


def test_without_retention_nothing_goes(store, clock):
    topic = store.create_topic("t", **SMALL)
    topic.write_many([b"x" * 100] * 100)
    clock.advance("520w")
    assert topic.vacuum().messages == 0
    assert len(offsets(topic)) == 100


def test_writing_rolls_and_removes_by_itself(store, clock):
    topic = store.create_topic("t", retention="1h", **SMALL)
    topic.write_many([b"x" * 1000] * 3)
    clock.advance("2h")
    topic.write(b"x" * 2000)
    assert store.flush_housekeeping()
    assert topic.stats().partitions[0].start == 3


def test_offsets_go_on_when_everything_is_gone_and_the_store_was_reopened(store, open_store, clock):
    """W000-2, W002-1: what a consumer saw as offset 4 is never another message."""
    topic = store.create_topic("t", retention="1h", **SMALL)
    for _ in range(3):
        topic.write_many([b"x"] * 5)
        clock.advance("2h")
        topic.vacuum()
        store.close()
        store = open_store(clock=clock)
        topic = store.topic("t")
    stats = topic.stats().partitions[0]
    assert (stats.start, stats.end, stats.messages) == (15, 15, 0)
    assert topic.write(b"next").offset == 15


def test_an_important_consumer_holds_retention(store, clock):
    topic = store.create_topic("t", retention="1h", sync="os")
    topic.write_many([b"x"] * 10)
    topic.add_consumer("audit", important=True)
    topic.add_consumer("careless")
    clock.advance("2h")
    report = topic.vacuum()
    assert (report.messages, report.partitions[0].held_by) == (0, ("audit",))
    with topic.reader(consumer="audit", follow=False) as reader:
        reader.commit(reader.receive_batch(max_messages=4))
    assert topic.vacuum().messages == 4
    assert offsets(topic) == list(range(4, 10))
    topic.drop_consumer("audit")
    report = topic.vacuum()
    assert (report.messages, report.partitions[0].held_by) == (6, ())


def test_an_availability_period_holds_what_is_not_committed_for_a_time(store, clock):
    """B001-04."""
    topic = store.create_topic("t", retention="1h", sync="os")
    topic.write_many([b"x"] * 10)
    topic.add_consumer("slow", availability_period="6h")
    clock.advance("2h")
    assert topic.vacuum().partitions[0].held_by == ("slow",)
    with topic.reader(consumer="slow", follow=False) as reader:
        reader.commit(reader.receive_batch(max_messages=4))
    assert topic.vacuum().messages == 4
    clock.advance("5h")
    assert topic.vacuum().messages == 6


def test_a_vacuum_beside_an_open_reader_leaves_it_what_it_is_reading(store, clock):
    topic = store.create_topic("t", retention="1h", **SMALL)
    topic.write_many([b"%d" % i for i in range(10)])
    with topic.reader() as reader:
        batch = reader.receive_batch(max_messages=5)
        clock.advance("2h")
        topic.vacuum()
        assert [m.value for m in batch] == [b"%d" % i for i in range(5)]
        with pytest.raises(penstock.OffsetTrimmed):
            reader.receive()


def test_vacuum_treats_every_partition(store, clock):
    topic = store.create_topic("t", partitions=3, retention="1h", sync="os")
    for partition in range(3):
        topic.write_many([b"x"] * (partition + 1), partition=partition)
    clock.advance("2h")
    report = topic.vacuum()
    assert [each.messages for each in report.partitions] == [1, 2, 3]


def test_no_descriptor_leaks_over_a_hundred_vacuums_and_rolls(store, clock):
    """W004-09: it was 3 for each partition and vacuum."""

    def round_():
        topic.write_many([b"x" * 1000] * 5)
        clock.advance("2h")
        topic.vacuum()
        reader = topic.reader(consumer="c", on_gap="skip", follow=False)
        reader.commit(reader.receive_batch())
        reader.close()

    topic = store.create_topic("t", retention="3h", **SMALL)
    for _ in range(10):
        round_()
    assert store.flush_housekeeping()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        round_()
    assert store.flush_housekeeping()
    assert len(os.listdir("/proc/self/fd")) <= before + 3
