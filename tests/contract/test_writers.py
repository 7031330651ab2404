"""Buffered writers: company, limits, waiting, and failures that are never silent."""

import threading
import time

import pytest

import penstock
from tests.contract.disks import Disk
from tests.kit.patience import wait_until


@pytest.fixture
def disk():
    disk = Disk()
    yield disk
    disk.is_full = disk.sync_fails = False
    disk.go_on_syncing()


@pytest.fixture
def topic(open_store, disk):
    topic = open_store(files=disk).create_topic("orders")
    topic.read()  # its files are made when they are first needed
    return topic


def accepted_until(error, writer):
    """Write until a call raises what failed in the background; what was accepted before that."""
    accepted = []
    try:
        while True:
            writer.write(value := b"accepted %d" % len(accepted))
            accepted.append(value)
            time.sleep(0.002)
    except error:
        return accepted


def stored(topic):
    return [message.value for message in topic.scan().messages()]


def test_a_message_is_stored_by_itself_after_the_linger_time(topic):
    with topic.writer(linger="5ms") as writer:
        writer.write(b"1")
        wait_until(lambda: writer.written == 1)
        assert stored(topic) == [b"1"]


def test_messages_wait_for_company_until_flush(topic, disk):
    topic.write(b"0")  # which makes the partition's first segment
    with topic.writer(linger="1h") as writer:
        before = disk.syncs
        for number in range(1, 101):
            writer.write(b"%d" % number)
        assert (writer.written, stored(topic)) == (0, [b"0"])
        receipts = writer.flush()
        assert disk.syncs - before <= 2
        assert (writer.written, writer.skipped, len(receipts)) == (100, 0, 100)
    assert stored(topic) == [b"%d" % number for number in range(101)]


def test_flush_tells_where_what_was_written_since_the_last_one_went(topic):
    with topic.writer() as writer:
        writer.write_many([b"0", b"1"])
        writer.write(b"2")
        first = writer.flush()
        writer.write(b"3")
        second = writer.flush()
        assert len(writer.flush()) == 0
    assert [(r.partition, r.offset, r.sync) for r in first] == [(0, n, "disk") for n in range(3)]
    assert [r.offset for r in second] == [3]


def test_a_large_message_goes_without_waiting_for_company(topic):
    with topic.writer(linger="1h") as writer:
        for _ in range(3):
            writer.write(b"x" * 600_000)
        wait_until(lambda: writer.written >= 2)


def test_leaving_the_with_stores_everything(topic):
    with topic.writer(linger="1h") as writer:
        writer.write(b"1")
    assert stored(topic) == [b"1"]
    assert writer.written == 1


def test_a_writer_may_be_less_safe_than_its_topic(topic):
    """`sync="os"` acknowledges early; readers see it soon, and close makes it durable."""
    with topic.writer(sync="os") as writer:
        writer.write(b"1")
        (receipt,) = writer.flush()
        assert receipt.sync == "os"
        wait_until(lambda: stored(topic) == [b"1"])
        writer.write(b"2")
    assert stored(topic) == [b"1", b"2"]


def test_a_slow_disk_makes_writers_wait_and_memory_stays_bounded(topic, disk):
    """B001-22, and the message that timed out was not accepted: writing it again is no duplicate."""
    accepted, refused = [], []
    with topic.writer(buffer="64KiB", timeout=0.1) as writer:
        disk.stop_syncing()
        number = 0
        while len(refused) < 2 and number < 40:
            try:
                writer.write(b"%03d" % number + b"x" * 500_000)
                accepted.append(number)
            except penstock.WriteTimeout as error:
                refused.append(error)
            number += 1
        disk.go_on_syncing()
        writer.write(b"999" + b"x" * 500_000)
    assert [error.retryable for error in refused] == [True, True]
    assert len(accepted) <= 12, "only a few frames may be on their way"
    assert [int(value[:3]) for value in stored(topic)] == [*accepted, 999]


def test_a_writer_that_waits_goes_on_when_there_is_room(topic, disk):
    with topic.writer(buffer="64KiB", timeout="30s") as writer:
        disk.stop_syncing()
        timer = threading.Timer(0.1, disk.go_on_syncing)
        timer.start()
        began = time.monotonic()
        for _ in range(12):
            writer.write(b"x" * 600_000)
        assert time.monotonic() - began > 0.05
        timer.join()
    assert len(stored(topic)) == 12


def test_writers_that_wait_go_on_as_there_is_room_and_not_before(topic, disk):
    """B001: two wait; neither is let in while the disk keeps what came before, both are in the end."""
    with topic.writer(buffer="64KiB", timeout=None) as writer:
        disk.stop_syncing()
        done = []

        def fill(name):
            for _ in range(12):
                writer.write(b"x" * 600_000)
                done.append(name)

        threads = [threading.Thread(target=fill, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        assert len(done) <= 12, "only a few frames may be on their way"
        disk.go_on_syncing()
        for thread in threads:
            thread.join()
    assert sorted(done) == ["a"] * 12 + ["b"] * 12
    assert len(stored(topic)) == 24


def test_a_full_disk_refuses_and_a_later_try_stores_each_message_once(topic, disk):
    topic.write(b"before")
    disk.is_full = True
    for refused in (lambda: topic.write(b"never"), lambda: topic.write_many([b"never"] * 3)):
        with pytest.raises(penstock.DiskFull):
            refused()
    assert stored(topic) == [b"before"]
    with topic.writer(linger="1h") as writer:
        writer.write(b"1")
        writer.write(b"2")
        with pytest.raises(penstock.DiskFull) as full:
            writer.flush()
        assert full.value.retryable
        disk.is_full = False
        writer.write(b"3")
        assert len(writer.flush()) == 3
    assert stored(topic) == [b"before", b"1", b"2", b"3"]


def test_what_fails_in_the_background_is_raised_by_the_next_call(topic, disk):
    with topic.writer(linger="1ms") as writer:
        disk.is_full = True
        writer.write(b"1")
        accepted = accepted_until(penstock.DiskFull, writer)
        disk.is_full = False
        writer.write(b"2")
        writer.flush()
    assert stored(topic) == [b"1", *accepted, b"2"]


def test_a_full_disk_never_makes_the_buffer_grow_without_end(topic, disk):
    accepted = 0
    with topic.writer(linger="1h") as writer:
        disk.is_full = True
        refusals = 0
        for _ in range(200):
            try:
                writer.write(b"x" * 100_000)
                accepted += 1
            except penstock.DiskFull:
                refusals += 1
        assert refusals > 100
        assert accepted < 60
        disk.is_full = False
    assert len(stored(topic)) == accepted


def test_a_failed_sync_is_raised_ends_the_writer_and_loses_nothing_acknowledged(topic, disk):
    """Never tried again: the kernel may have dropped the pages. Who wrote must write it again."""
    topic.write(b"acknowledged")
    writer = topic.writer(linger="1ms")
    disk.sync_fails = True
    writer.write(b"lost")
    accepted_until(penstock.NotDurable, writer)
    disk.sync_fails = False
    for call in (lambda: writer.write(b"x"), writer.flush, lambda: writer.write_many([b"x"])):
        with pytest.raises(penstock.Closed):
            call()
    writer.close()
    assert stored(topic) == [b"acknowledged"]
    topic.write(b"again")
    assert stored(topic) == [b"acknowledged", b"again"]


def test_a_failed_sync_of_a_single_write_is_raised_and_the_topic_goes_on(topic, disk):
    topic.write(b"1")
    disk.sync_fails = True
    with pytest.raises(penstock.NotDurable):
        topic.write(b"2")
    disk.sync_fails = False
    receipt = topic.write(b"3")
    assert receipt.offset > 1, "an offset that was given out is not given again"
    assert stored(topic) == [b"1", b"3"]


def test_flush_raises_what_could_not_be_stored(topic, disk):
    topic.write(b"0")  # which makes the partition's first segment
    writer = topic.writer(linger="1h")
    writer.write(b"1")
    disk.sync_fails = True
    with pytest.raises(penstock.NotDurable):
        writer.flush()
    disk.sync_fails = False
    with pytest.raises(penstock.Closed):
        writer.flush()
    writer.close()


def test_leaving_the_with_raises_what_could_not_be_stored(topic, disk):
    def leave():
        with topic.writer(linger="1h") as writer:
            writer.write(b"1")
            disk.sync_fails = True

    with pytest.raises(penstock.NotDurable):
        leave()


def test_an_error_inside_the_with_is_not_masked(topic, disk):
    """B001 tests; what was accepted before it is stored all the same."""

    def fail():
        with topic.writer(linger="1h") as writer:
            writer.write(b"1")
            disk.sync_fails = disk_fails
            raise KeyError("mine")

    disk_fails = False
    with pytest.raises(KeyError, match="mine") as mine:
        fail()
    assert stored(topic) == [b"1"]
    assert not hasattr(mine.value, "__notes__")
    disk_fails = True
    with pytest.raises(KeyError, match="mine") as mine:
        fail()
    assert "closing the writer failed too" in mine.value.__notes__[0]


def test_a_closed_writer_says_so(topic):
    writer = topic.writer()
    writer.write(b"1")
    writer.close()
    writer.close()
    for call in (lambda: writer.write(b"2"), lambda: writer.write_many([b"2"]), writer.flush):
        with pytest.raises(penstock.Closed, match="closed"):
            call()
    assert stored(topic) == [b"1"]


def test_a_writer_checks_a_message_before_it_accepts_it(topic):
    with topic.writer(headers={"a": "x" * 20_000}) as writer:
        for wrong, error in (
            ({"value": 5}, penstock.WrongType),
            ({"value": b"v", "key": 5}, penstock.WrongType),
            ({"value": b"x" * (1 << 20) + b"x"}, penstock.MessageTooLarge),
            ({"value": b"v", "headers": {"b": "x" * 20_000}}, penstock.MessageTooLarge),
            ({"value": b"v", "timestamp": 2**63}, penstock.InvalidOption),
            ({"value": b"v", "partition": 1}, penstock.InvalidOption),
        ):
            with pytest.raises(error):
                writer.write(wrong.pop("value"), **wrong)
        writer.write(b"fine")
    assert stored(topic) == [b"fine"]


@pytest.mark.parametrize(
    "wrong",
    [{"linger": "soon"}, {"buffer": "much"}, {"timeout": -1}, {"sync": "later"}, {"headers": {"a": 1}}],
)
def test_a_writer_refuses_senseless_options(topic, wrong):
    with pytest.raises((penstock.InvalidOption, penstock.WrongType)):
        topic.writer(**wrong)


def test_closing_the_store_stores_what_open_writers_hold(open_store, disk):
    store = open_store(files=disk)
    writer = store.create_topic("orders").writer(linger="1h")
    writer.write(b"1")
    store.close()
    with pytest.raises(penstock.Closed):
        writer.write(b"2")
    assert stored(open_store().topic("orders")) == [b"1"]


def test_closing_the_store_raises_what_open_writers_could_not_store(open_store, disk):
    store = open_store(files=disk)
    topic = store.create_topic("orders")
    topic.write(b"acknowledged")
    topic.writer(linger="1h").write(b"kept by nobody")
    writer = topic.writer(linger="1h")
    writer.write(b"1")
    disk.sync_fails = True
    with pytest.raises(penstock.NotDurable):
        store.close()
    disk.sync_fails = False
    assert stored(open_store().topic("orders")) == [b"acknowledged"]
