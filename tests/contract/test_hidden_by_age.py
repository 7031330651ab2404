"""What has expired by age is not returned, also before it is removed (S001-48, S002-27)."""

import pytest

import penstock
from tests.contract.test_producers import partitions_of
from tests.kit.logs import SEGMENT_HEADER_BYTES, no_housekeeping, seal_segment
from tests.kit.stores import StoreVerifier

HOUR = {"retention": "1h", "sync": "os"}


def texts(topic):
    return [message.text for message in topic.scan().messages()]


@pytest.fixture
def empty(store):
    return store.create_topic("t", index="key", **HOUR)


def write_ten(topic, clock):
    """Ten messages, ten minutes apart; the last was written ten minutes ago. Six are younger than an hour."""
    for number in range(10):
        topic.write(str(number), key=f"k{number % 2}")
        clock.advance("10m")


@pytest.fixture
def topic(empty, clock):
    write_ten(empty, clock)
    return empty


def test_reads_scans_and_numbers_leave_out_what_is_over(topic):
    """S001-48: with nothing removed yet."""
    assert [m.text for m in topic.read()] == ["4", "5", "6", "7", "8", "9"] == texts(topic)
    assert [m.text for m in topic.read(key="k0")] == ["4", "6", "8"]
    assert [m.text for m in topic.read(start="3h")] == ["4", "5", "6", "7", "8", "9"]
    stats = topic.stats()
    assert (stats.messages, stats.partitions[0].start, stats.partitions[0].end) == (6, 4, 10)
    with pytest.raises(penstock.OffsetTrimmed) as raised:
        topic.get(3)
    assert raised.value.first == 4
    with pytest.raises(penstock.OutOfRange):
        topic.read(start=3)
    with pytest.raises(penstock.OutOfRange):
        topic.read(start=3, key="k1")
    assert topic.get(4).text == "4"
    assert partitions_of(topic).log(0).stored().start == 0


def test_a_message_is_over_a_second_after_its_time_at_the_latest(store, clock):
    topic = store.create_topic("t", **HOUR)
    topic.write(b"x")
    clock.advance("1h")
    assert texts(topic) == ["x"]
    clock.advance("1s")
    assert texts(topic) == []
    assert topic.stats().messages == 0
    topic.write(b"y")
    assert texts(topic) == ["y"]


def test_readers_go_on_behind_what_is_over(empty, clock):
    topic = empty
    topic.add_consumer("c", start="earliest")
    write_ten(topic, clock)
    with topic.reader(consumer="c", follow=False) as reader, pytest.raises(penstock.OffsetTrimmed):
        reader.receive()
    with topic.reader(consumer="c", follow=False, on_gap="skip") as reader:
        assert [m.text for m in reader.receive_batch(3)] == ["4", "5", "6"]
        clock.advance("35m")
        assert reader.receive().text == "8"
    with topic.reader(start="earliest", follow=False) as reader:
        assert [m.text for m in reader.receive_batch(10)] == ["8", "9"]


def test_processes_that_only_read_see_the_same(topic, open_store, clock):
    reading = open_store(read_only=True, clock=clock).topic("t")
    assert texts(reading) == ["4", "5", "6", "7", "8", "9"]
    assert reading.stats().messages == 6
    clock.advance("50m")
    assert texts(reading) == ["9"]


def test_important_consumers_see_what_they_have_not_committed(empty, clock):
    """S001-49: what they hold back stays, for everybody."""
    topic = empty
    topic.add_consumer("late", start="earliest", important=True)
    write_ten(topic, clock)
    assert texts(topic) == [str(number) for number in range(10)]
    with topic.reader(consumer="late", follow=False) as reader:
        for _ in range(2):
            reader.commit(reader.receive())
    clock.advance("1s")
    assert texts(topic) == [str(number) for number in range(2, 10)]
    topic.drop_consumer("late")
    clock.advance("1s")
    assert texts(topic) == ["5", "6", "7", "8", "9"]


def test_a_period_of_availability_holds_as_long_as_it_lasts(empty, clock):
    topic = empty
    topic.add_consumer("late", start="earliest", availability_period="80m")
    write_ten(topic, clock)
    assert texts(topic) == ["2", "3", "4", "5", "6", "7", "8", "9"]


def test_a_changed_retention_counts_at_once(topic, open_store, clock):
    other = open_store(clock=clock).topic("t")
    assert len(texts(other)) == 6
    topic.alter(retention="25m")
    assert texts(topic) == ["8", "9"]
    topic.alter(retention=None)
    assert len(texts(topic)) == 10
    topic.alter(retention="2h")
    assert len(texts(topic)) == 10


def test_a_vacuum_removes_and_counts_what_was_hidden(topic):
    assert len(texts(topic)) == 6
    report = topic.vacuum()
    assert (report.messages, report.partitions[0].start_before) == (4, 0)
    assert len(texts(topic)) == 6


def test_streams_name_what_was_hidden_before_it_left(store, clock):
    """S000-24: what nobody could read any more is named when it goes."""
    stream = store.stream("s")
    for number in range(3):
        stream.publish("a", str(number).encode())
    clock.advance("8d")
    assert stream.get_messages_by_subject("a", 1, 10) == []
    count, left = stream.delete_old_messages(8 * 86400)
    assert (count, len(left)) == (3, 3)


def damaged(path, clock):
    verifier = StoreVerifier(path, clock=clock)
    return [(found.severity, found.first) for found in verifier.findings() if "damaged frame" in found.what]


def test_damage_in_what_is_over_is_no_damage_any_more(store, clock):
    """S001-48: `verify` sees what readers see."""
    topic = store.create_topic("t", **HOUR)
    log = partitions_of(topic).log(0)
    for number in range(10):
        topic.write(str(number))
        seal_segment(log)
        clock.advance("5m")
    for offset in (1, 6):
        with open(log.folder.segment_path(offset), "r+b") as file:
            file.seek(SEGMENT_HEADER_BYTES)
            file.write(b"\xff")
    assert damaged(store.path, clock) == [("damage", 1), ("damage", 6)]
    with no_housekeeping(log):
        clock.advance("30m")
        assert damaged(store.path, clock) == [("note", 1), ("damage", 6)]
        assert log.stored().start == 0
