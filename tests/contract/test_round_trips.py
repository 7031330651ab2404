"""What is written is read back as it was."""

from datetime import UTC, datetime

import pytest

import penstock
from tests.require import module

DISTINCT = [(None, None), (None, b""), (b"", None), (b"", b""), (b"k", None), (None, b"v"), (b"k", b"v")]


def write_one_by_one(topic, pairs):
    for key, value in pairs:
        topic.write(value, key=key)


def write_together(topic, pairs):
    topic.write_many([value for _, value in pairs], keys=[key for key, _ in pairs])


def write_buffered(topic, pairs):
    with topic.writer() as writer:
        for key, value in pairs:
            writer.write(value, key=key)


def write_many_buffered(topic, pairs):
    with topic.writer() as writer:
        writer.write_many([value for _, value in pairs], keys=[key for key, _ in pairs])


WAYS = [write_one_by_one, write_together, write_buffered, write_many_buffered]


@pytest.fixture
def topic(store):
    return store.create_topic("orders", sync="os")


@pytest.mark.parametrize("write", WAYS)
def test_absent_and_empty_keys_and_values_stay_apart(topic, write):
    """S001-08, and W004-04: an empty value is a value, not the end."""
    write(topic, DISTINCT)
    assert [(m.key, m.value) for m in topic.read()] == DISTINCT
    with topic.reader(follow=False) as reader:
        assert [(m.key, m.value) for m in reader] == DISTINCT


@pytest.mark.parametrize("write", WAYS)
def test_order_and_offsets_are_those_of_the_writes(topic, write):
    """S001-02, S001-17."""
    pairs = [(b"k", b"%d" % i) for i in range(500)]
    write(topic, pairs)
    messages = list(topic.read())
    assert [m.value for m in messages] == [value for _, value in pairs]
    assert [m.offset for m in messages] == list(range(500))


def test_a_message_carries_where_and_when(topic, clock):
    """S001-07."""
    topic.write(b"paid", key="customer-7")
    (message,) = topic.read()
    assert (message.topic, message.partition, message.offset) == ("orders", 0, 0)
    assert message.timestamp == message.written_at == clock.now_ns()
    assert (message.producer_id, message.group, message.seqno, message.attempt) == (None, None, None, 1)


def test_text_is_stored_as_utf8(topic):
    topic.write("zażółć", key="größe")
    (message,) = topic.read()
    assert (message.key.decode(), message.text) == ("größe", "zażółć")


def test_headers_keep_their_order_and_whether_they_are_text(topic):
    """S001-09."""
    headers = {"source": "shop", "digest": b"\0\xff", "empty": "", "none": b"", "ключ": "значение"}
    topic.write(b"v", headers=headers)
    topic.write(b"v")
    first, second = topic.read()
    assert list(first.headers.items()) == list(headers.items())
    assert dict(second.headers) == {}


def test_headers_of_many_are_one_for_all_or_one_each(topic):
    topic.write_many([b"1", b"2"], headers={"a": "all"})
    topic.write_many([b"3", b"4"], headers=[{"a": "third"}, None])
    assert [dict(m.headers) for m in topic.read()] == [{"a": "all"}, {"a": "all"}, {"a": "third"}, {}]


def test_a_writers_headers_go_with_every_message_and_yield_to_its_own(topic):
    """S001-11: attributes of the session; here a message may add to them."""
    with topic.writer(headers={"source": "shop", "level": "info"}) as writer:
        writer.write(b"1")
        writer.write(b"2", headers={"level": "error"})
        writer.write_many([b"3"], headers=[{"extra": "x"}])
    assert [dict(m.headers) for m in topic.read()] == [
        {"source": "shop", "level": "info"},
        {"source": "shop", "level": "error"},
        {"source": "shop", "level": "info", "extra": "x"},
    ]


MOON = datetime(1968, 12, 24, 9, 30, tzinfo=UTC)


def test_a_timestamp_before_1970_is_fine(topic):
    topic.write(b"1", timestamp=MOON)
    topic.write(b"2", timestamp=-1)
    topic.write_many([b"3", b"4"], timestamps=[MOON, -(2**63)])
    with topic.writer() as writer:
        writer.write(b"5", timestamp=MOON)
    messages = list(topic.read())
    assert [messages[i].time for i in (0, 2, 4)] == [MOON] * 3
    assert [messages[i].timestamp for i in (1, 3)] == [-1, -(2**63)]


def test_the_producers_time_differs_from_the_logs(topic, clock):
    """B001-11."""
    topic.write(b"late", timestamp=5)
    (message,) = topic.read()
    assert (message.timestamp, message.written_at) == (5, clock.now_ns())


def test_a_message_without_a_timestamp_among_others_gets_the_present_one(topic, clock):
    with topic.writer() as writer:
        writer.write(b"1", timestamp=1)
        writer.write(b"2")
    assert [m.timestamp for m in topic.read()] == [1, clock.now_ns()]


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_receipts_tell_where_and_how_safely(store, sync):
    topic = store.create_topic("safe", sync=sync)
    first, second = topic.write(b"1"), topic.write(b"2")
    assert (first.partition, first.offset, first.sync, first.duplicate) == (0, 0, sync, False)
    assert second.offset == 1


def test_many_receipts_are_in_the_order_of_the_values(store):
    topic = store.create_topic("spread", partitions=4, sync="os")
    values = [b"%d" % i for i in range(100)]
    receipts = topic.write_many(values, keys=values)
    assert len(receipts) == 100
    assert len({receipt.partition for receipt in receipts}) == 4
    for value, receipt in zip(values, receipts, strict=True):
        assert topic.get(receipt.offset, partition=receipt.partition).value == value
    assert receipts[-1] == receipts[99]
    assert [r.offset for r in receipts[:3]] == [receipts[i].offset for i in range(3)]


def test_writing_nothing_is_no_error(topic):
    assert len(topic.write_many([])) == 0
    with topic.writer() as writer:
        writer.write_many([])
        assert len(writer.flush()) == 0
    assert len(topic.read()) == 0


def test_offsets_go_on_after_reopening(store, open_store, clock):
    store.create_topic("orders").write(b"1")
    store.close()
    topic = open_store(clock=clock).topic("orders")
    assert topic.write(b"2").offset == 1
    assert [m.value for m in topic.read()] == [b"1", b"2"]


def test_get_finds_one_message_and_says_why_when_it_cannot(topic):
    """W004-10: beyond the end is "not there", with the end, and never an end-of-file error."""
    topic.write_many([b"%d" % i for i in range(10)])
    assert topic.get(7).value == b"7"
    with pytest.raises(penstock.OffsetAhead) as ahead:
        topic.get(10)
    assert ahead.value.end == 10


def test_read_is_bounded_and_empty_at_the_end(topic):
    topic.write_many([b"%d" % i for i in range(10)])
    assert [m.value for m in topic.read(start=3, limit=2)] == [b"3", b"4"]
    assert [m.value for m in topic.read(start=3, stop=5)] == [b"3", b"4"]
    assert len(topic.read(start=10)) == 0
    assert len(topic.read(start="latest")) == 0
    assert [m.value for m in topic.read(start="last")] == [b"9"]


def test_a_scan_ends_where_the_topic_ended_when_it_was_made(topic):
    topic.write_many([b"1", b"2"])
    scan = topic.scan()
    topic.write(b"3")
    for _ in range(2):
        assert [m.value for batch in scan for m in batch] == [b"1", b"2"]
    assert [m.value for m in scan.messages()] == [b"1", b"2"]
    assert scan.ranges == [(0, 0, 2)]


def test_a_batch_or_a_scan_can_be_written_to_another_topic(store, topic):
    topic.write_many([b"1", None, b""], keys=[b"a", None, b""], headers={"h": "x"}, timestamps=[1, 2, 3])
    copies = [store.create_topic(name, sync="os") for name in ("batch", "scan", "writer")]
    copies[0].write_many(topic.read())
    copies[1].write_many(topic.scan())
    with copies[2].writer() as writer:
        writer.write_many(topic.scan())
    seen = [(m.key, m.value, m.timestamp, dict(m.headers)) for m in topic.read()]
    for copy in copies:
        assert [(m.key, m.value, m.timestamp, dict(m.headers)) for m in copy.read()] == seen


@pytest.fixture
def pa():
    return module("pyarrow")


def test_arrow_goes_in_and_out(topic, pa):
    table = pa.table({"value": [b"1", None], "key": [None, b"k"], "timestamp": pa.array([5, 6], pa.int64())})
    topic.write_many(pa.array([b"0"]))
    topic.write_many(table)
    back = topic.scan().to_arrow()
    assert back["value"].to_pylist() == [b"0", b"1", None]
    assert back["key"].to_pylist() == [None, None, b"k"]
    assert back["timestamp"].cast(pa.int64()).to_pylist()[1:] == [5, 6]
    assert pa.table(topic.scan()).equals(back)
    assert sum(batch.num_rows for batch in topic.scan().record_batches()) == 3


def test_ten_thousand_long_keys_fit_into_frames(topic):
    keys = [b"%04096d" % i for i in range(10_000)]
    assert len(topic.write_many([b""] * 10_000, keys=keys)) == 10_000
    assert topic.get(9_999).key == keys[-1]
