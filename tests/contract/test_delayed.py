"""Messages written now that enter their topic later (C19)."""

from datetime import UTC, datetime, timedelta

import pytest

import penstock


@pytest.fixture
def topic(store):
    return store.create_topic("orders", partitions=2)


def test_a_delayed_message_enters_the_topic_when_it_is_due(store, topic, clock):
    receipt = topic.write(b"x", key="k", headers={"a": b"1"}, partition=1, delay="1h")
    assert (receipt.partition, receipt.offset) == (-1, -1)
    assert receipt.due_at == clock.now_ns() + 3600 * 10**9
    begin = clock.now_ns()
    clock.advance("59m")
    store.flush_housekeeping()
    assert len(topic.read()) == 0
    clock.advance("1m")
    store.flush_housekeeping()
    (message,) = topic.read()
    assert (message.partition, message.key, message.value) == (1, b"k", b"x")
    assert dict(message.headers) == {"a": b"1"}
    assert (message.timestamp, message.written_at) == (begin, clock.now_ns())
    clock.advance("1d")
    store.flush_housekeeping()
    assert len(topic.read()) == 1


def test_deliver_at_takes_a_moment_and_the_past_is_now(store, topic, clock):
    now = datetime(2030, 1, 1, tzinfo=UTC)
    topic.write("later", deliver_at=now + timedelta(hours=1), partition=0)
    assert topic.write("now", deliver_at=now - timedelta(hours=1), partition=0).offset == 0
    clock.advance("1h")
    store.flush_housekeeping()
    assert [message.text for message in topic.read()] == ["now", "later"]


def test_they_enter_in_the_order_of_their_times(store, topic, clock):
    for number in (3, 1, 2, 0):
        topic.write(str(number), partition=0, delay=f"{number + 1}m", timestamp=number)
    clock.advance("1h")
    store.flush_housekeeping()
    assert [message.text for message in topic.read()] == ["0", "1", "2", "3"]
    assert [message.timestamp for message in topic.read()] == [0, 1, 2, 3]


def test_groups_keep_to_their_partition(store, topic, clock):
    for _ in range(4):
        topic.write("x", group="g", delay="1s")
    clock.advance("1s")
    store.flush_housekeeping()
    assert len({message.partition for message in topic.read()}) == 1


def test_a_writer_delays_messages_among_others(store, topic, clock):
    with topic.writer(headers={"by": "w"}, codec="gzip", group="g") as writer:
        writer.write(b"later", delay="1h", key="k", headers={"a": "1"})
        writer.write(b"now", timestamp=5)
        writer.write(b"past", deliver_at=1)
        receipts = writer.flush()
        assert (len(receipts), writer.written) == (2, 3)
        assert [message.value for message in topic.read()] == [b"now", b"past"]
    clock.advance("1h")
    store.flush_housekeeping()
    last = topic.read()[-1]
    assert (last.value, last.key, last.codec, dict(last.headers)) == (
        b"later", b"k", "gzip", {"by": "w", "a": "1"},
    )  # fmt: skip
    assert len({message.partition for message in topic.read()}) == 1


def test_what_a_writer_delayed_is_stored_when_it_or_its_store_is_closed(open_store, clock):
    store = open_store(clock=clock)
    writer = store.create_topic("orders").writer(linger="1h")
    writer.write(b"x", delay="1h")
    store.close()
    clock.advance("1h")
    store = open_store(clock=clock)
    store.flush_housekeeping()
    assert [message.value for message in store.topic("orders").read()] == [b"x"]


def test_what_lingered_long_enough_is_stored_without_a_flush(open_store):
    store = open_store()
    topic = store.create_topic("orders")
    with topic.writer() as writer, topic.reader() as reader:
        writer.write(b"x", delay="20ms")
        assert reader.receive(timeout=30).value == b"x"


def test_a_producers_messages_cannot_wait(topic):
    """It would come behind higher numbers, be taken for a duplicate, and be lost."""
    with topic.writer(producer_id="p") as writer:
        for seqno in (None, 1):
            with pytest.raises(penstock.InvalidOption, match="none can wait"):
                writer.write(b"x", delay="1s", seqno=seqno)
        with pytest.raises(penstock.InvalidOption, match="none can wait"):
            writer.write(b"x", deliver_at=10**18)


def test_a_writer_refuses_waits_that_make_no_sense(topic):
    with topic.writer() as writer:
        for options in ({"delay": 0}, {"delay": "3650d"}, {"delay": 1, "deliver_at": 5}):
            with pytest.raises(penstock.InvalidOption):
                writer.write(b"x", **options)
    assert len(topic.read()) == 0


def test_what_a_transaction_delays_is_stored_with_its_commit(store, topic, clock):
    store.create_topic("mail", type=dict)
    with store.transaction() as tx:
        tx.write("orders", b"now", partition=0)
        tx.write("orders", b"later", key="k", headers={"a": "1"}, delay="1h", partition=0)
        tx.write(store.topic("mail", type=dict), {"n": 1}, deliver_at=clock.now_ns() + 60 * 10**9)
        tx.write("orders", b"past", deliver_at=1, partition=0)
        assert tx.written == 4
        clock.advance("30m")  # the wait is counted from the write
    assert [message.value for message in topic.read()] == [b"now", b"past"]
    store.flush_housekeeping()
    assert store.topic("mail", type=dict).read()[0].value == {"n": 1}
    clock.advance("30m")
    store.flush_housekeeping()
    last = topic.read()[-1]
    assert (last.value, last.key, dict(last.headers)) == (b"later", b"k", {"a": "1"})


def test_what_a_transaction_delayed_goes_with_its_rollback(store, topic, clock):
    tx = store.transaction()
    tx.write("orders", b"x", delay="1s")
    tx.rollback()
    clock.advance("1h")
    store.flush_housekeeping()
    assert len(topic.read()) == 0


def test_a_named_transaction_that_only_delays_is_committed_once(store, topic, clock):
    for _ in range(2):
        tx = store.transaction(name="once")
        tx.write("orders", b"x", delay="1s")
        try:
            tx.commit()
        except penstock.AlreadyCommitted:
            break
    else:
        raise AssertionError
    clock.advance("1h")
    store.flush_housekeeping()
    assert len(topic.read()) == 1


def test_without_anyone_asking_it_comes_by_itself(open_store):
    store = open_store()
    topic = store.create_topic("orders")
    with topic.reader() as reader:
        topic.write("x", delay="50ms")
        assert reader.receive(timeout=10).value == b"x"


def test_a_store_that_was_closed_meanwhile_is_late_and_loses_nothing(open_store, clock):
    store = open_store(clock=clock)
    store.create_topic("orders").write("x", delay="1m")
    store.close()
    clock.advance("1h")
    store = open_store(clock=clock)
    store.flush_housekeeping()
    assert [message.text for message in store.topic("orders").read()] == ["x"]


def test_those_of_a_dropped_topic_go_with_it(store, topic, clock):
    topic.write("x", delay="1s")
    store.create_topic("other").write("y", delay="1s")
    store.drop_topic("orders")
    clock.advance("1s")
    store.flush_housekeeping()
    assert [message.text for message in store.topic("other").read()] == ["y"]


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 0}, {"delay": -5}, {"delay": "3650d"}, {"delay": "soon"}, {"deliver_at": 2**62},
        {"delay": "1s", "deliver_at": 5},
    ],
)  # fmt: skip
def test_waits_that_make_no_sense_are_refused(topic, options):
    with pytest.raises(penstock.InvalidOption):
        topic.write("x", **options)


def test_what_could_not_be_written_at_once_cannot_be_later(store, topic):
    with pytest.raises(penstock.MessageTooLarge):
        topic.write(b"x" * (2 << 20), delay="1s")
    with pytest.raises(penstock.InvalidOption):
        topic.write(b"x", partition=7, delay="1s")


def chains(folder):
    """The folders of chains that hold what waits."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def test_each_delay_waits_in_files_of_its_own(store, topic, tmp_path):
    """S003-02, S003-04: 30 s, 45 s and 90 s never share a file; a moment waits on the ladder."""
    for delay in ("30s", "45s", 90, "30s"):
        topic.write(b"x", delay=delay)
    with topic.writer() as writer:
        for delay in ("45s", "2m"):
            writer.write(b"x", delay=delay)
    publish = tmp_path / "store" / "delay" / "publish"
    assert chains(publish) == ["120s", "30s", "45s", "90s"]
    topic.write(b"x", deliver_at=datetime(2030, 1, 1, 1, tzinfo=UTC))
    assert chains(publish) == ["120s", "30s", "45s", "90s", "ladder-1800s"]


def test_a_delay_is_as_safe_as_its_topic_promises(store):
    """The receipt tells which: `sync="os"` survives a crash of the process, "disk" a power cut."""
    for sync in ("os", "disk"):
        assert store.create_topic(f"topic-{sync}", sync=sync).write(b"x", delay="1h").sync == sync
