"""Transactions (S001-59…64): writes to many topics become true together, or not at all."""

import os

import pytest

from penstock.errors import (
    AlreadyCommitted,
    Closed,
    InvalidOption,
    MessageTooLarge,
    ReadOnly,
    TopicReplaced,
    UnknownTopic,
    WrongType,
)
from tests.kit.stores import Transactions
from tests.kit.topics import staging_module as staging


@pytest.fixture
def topics(store):
    return store.create_topic("orders", partitions=3), store.create_topic("invoices")


def values(topic, **where):
    return [message.value for message in topic.read(limit=100_000, **where)]


def test_nothing_is_seen_before_the_commit_and_all_after(store, topics):
    """S001-61, S001-62: not by others, and not by the transaction itself."""
    orders, invoices = topics
    with store.transaction() as tx:
        tx.write("orders", b"a", key="k")
        tx.write(invoices, b"b")
        tx.write_many("invoices", [b"c", b"d"])
        assert tx.written == 4
        assert values(orders) == values(invoices) == []
    assert values(orders) == [b"a"]
    assert values(invoices) == [b"b", b"c", b"d"]


def test_offsets_are_consecutive_and_at_the_end(store, topics):
    """S001-61: also when others write meanwhile."""
    _, invoices = topics
    with store.transaction() as tx:
        for number in range(2500):
            tx.write("invoices", b"%d" % number)
            if number % 500 == 0:
                invoices.write(b"other")
    found = invoices.read(limit=10_000)
    mine = [message.offset for message in found if message.value != b"other"]
    assert mine == list(range(5, 2505))
    assert [message.value for message in found][5:] == [b"%d" % number for number in range(2500)]
    (run,) = tx.stored["invoices"]
    assert (run.partition, run.first, run.count) == (0, 5, 2500)


def test_everything_of_a_message_comes_through(store, topics):
    _, invoices = topics
    with store.transaction() as tx:
        tx.write("invoices", None, key="gone")
        tx.write("invoices", b"", key=b"", headers={"a": "1", "b": b"\xff"}, timestamp=-5)
        tx.write("invoices", "text")
        tx.write_many("invoices", ["x", None], keys=[None, "y"], timestamps=[7, 8])
    tombstone, rich, text, *many = invoices.read()
    assert (tombstone.key, tombstone.value) == (b"gone", None)
    assert (rich.key, rich.value, rich.timestamp) == (b"", b"", -5)
    assert dict(rich.headers) == {"a": "1", "b": b"\xff"}
    assert text.value == b"text"
    assert [(m.key, m.value, m.timestamp) for m in many] == [(None, b"x", 7), (b"y", None, 8)]
    assert len({m.written_at for m in invoices.read()}) == 1


def test_keys_choose_the_same_partitions_as_outside(store, topics):
    orders, _ = topics
    keys = [b"k%d" % number for number in range(50)]
    for key in keys:
        orders.write(b"outside", key=key)
    with store.transaction() as tx:
        for key in keys:
            tx.write("orders", b"inside", key=key)
    homes = {}
    for message in orders.read(limit=1000):
        homes.setdefault(message.key, set()).add(message.partition)
    assert all(len(partitions) == 1 for partitions in homes.values())


def test_an_exception_leaves_nothing_behind(store, topics, tmp_path):
    orders, invoices = topics

    def fail():
        with store.transaction() as tx:
            tx.write("orders", b"a")
            tx.write_many("invoices", [os.urandom(1000) for _ in range(500)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert values(orders) == values(invoices) == []
    assert not list(tmp_path.rglob("*.staged"))
    invoices.write(b"next")
    assert invoices.read()[0].offset == 0


def test_rollback_by_hand_and_commit_by_hand(store, topics):
    _, invoices = topics
    tx = store.transaction()
    tx.write("invoices", b"no")
    tx.rollback()
    tx.rollback()
    with pytest.raises(Closed, match="rolled back"):
        tx.write("invoices", b"late")
    tx = store.transaction()
    tx.write("invoices", b"yes")
    tx.commit()
    with pytest.raises(Closed, match="committed"):
        tx.commit()
    assert values(invoices) == [b"yes"]


def test_an_empty_transaction_is_fine(store):
    with store.transaction() as tx:
        pass
    assert tx.written == 0


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_a_large_one_becomes_segments(store, tmp_path, sync):
    """S001-63: large volumes; staged files are taken as segments, and nothing stays behind."""
    big = store.create_topic("big", partitions=2, segment_bytes="20MiB", sync=sync)
    big.write(b"before", partition=0)
    block = [os.urandom(100_000) for _ in range(20)]
    with store.transaction() as tx:
        for _ in range(25):
            tx.write_many("big", block, partition=0)
        tx.write("big", b"small", partition=1)
    assert big.read(partition=0, start=1, limit=1)[0].value == block[0]
    offsets = [message.offset for batch in big.scan(partition=0) for message in batch]
    assert offsets == list(range(501))
    assert values(big, partition=1) == [b"small"]
    assert big.stats().partitions[0].segments >= 3
    assert not list(tmp_path.rglob("*.staged"))
    big.write(b"after", partition=0)
    assert big.read(partition=0, start=501)[0].value == b"after"


def test_memory_stays_the_same_however_large(store):
    """S001-63: what is staged lies in files; a topic's share in memory is a frame."""
    big = store.create_topic("big")
    tx = store.transaction()
    for _ in range(40):
        tx.write_many("big", [os.urandom(10_000) for _ in range(100)])
    blocking = getattr(tx, "blocking", tx)
    (staged,) = blocking._staging.values()
    (area,) = staged._areas.values()
    kept = sum(map(len, area._growing._frames)) + sum(map(len, area._growing._heads))
    assert kept + staged.buffer.weight < 100_000
    tx.commit()
    assert big.stats().messages == 4000


def test_a_name_is_committed_once(open_store):
    store = open_store()
    topic = store.create_topic("orders")
    with store.transaction(name="batch 7") as tx:
        tx.write("orders", b"once")
    store.close()
    store = open_store()
    topic = store.topic("orders")
    with pytest.raises(AlreadyCommitted, match="batch 7"), store.transaction(name="batch 7") as tx:
        tx.write("orders", b"twice")
    assert values(topic) == [b"once"]
    with store.transaction(name="batch 8") as tx:
        tx.write("orders", b"next")
    assert values(topic) == [b"once", b"next"]


def test_partitions_added_meanwhile_get_their_keys(store):
    """The tree changed since the messages were routed: they are routed again, by key."""
    topic = store.create_topic("orders", partitions=1)
    tx = store.transaction()
    for number in range(100):
        tx.write("orders", b"%d" % number, key=b"k%d" % number)
    tx.write("orders", b"fixed", partition=0)
    topic.alter(partitions=4)
    tx.commit()
    for number in range(100):
        topic.write(b"later", key=b"k%d" % number)
    homes = {}
    for message in topic.read(limit=1000):
        homes.setdefault(message.key, []).append(message.partition)
    assert len({homes[b"k%d" % number][0] for number in range(100)}) == 4
    assert all(len(set(homes[b"k%d" % number])) == 1 for number in range(100))
    assert homes[None] == [0]


def test_a_topic_dropped_meanwhile_fails_the_whole(store, topics):
    _, invoices = topics
    tx = store.transaction()
    tx.write("orders", b"a")
    tx.write("invoices", b"b")
    store.drop_topic("orders")
    with pytest.raises(TopicReplaced):
        tx.commit()
    assert values(invoices) == []
    invoices.write(b"goes on")


def test_others_may_have_transactions_at_the_same_time(open_store):
    one, other = open_store(), open_store()
    topic = one.create_topic("orders", partitions=2)
    first, second = one.transaction(), other.transaction()
    for number in range(10):
        first.write("orders", b"1", partition=number % 2)
        second.write("orders", b"2", partition=number % 2)
    second.commit()
    first.commit()
    assert values(topic, partition=0) == [b"2"] * 5 + [b"1"] * 5


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda tx: tx.write("nothing", b"x"), UnknownTopic),
        (lambda tx: tx.write("orders", 5), WrongType),
        (lambda tx: tx.write("orders", b"x", partition=9), InvalidOption),
        (lambda tx: tx.write("orders", b"x" * (1 << 20) + b"x"), MessageTooLarge),
        (lambda tx: tx.write_many("orders", [b"x"], keys=[]), InvalidOption),
        (lambda tx: tx.write("orders", b"x", headers={1: "a"}), WrongType),
    ],
)
def test_bad_input_is_refused_at_once_and_the_transaction_goes_on(store, topics, call, error):
    orders, _ = topics
    with store.transaction() as tx:
        tx.write("orders", b"good", partition=0)
        with pytest.raises(error):
            call(tx)
    assert values(orders) == [b"good"]


def test_a_transaction_left_open_is_rolled_back_at_close(open_store, caplog):
    store = open_store()
    store.create_topic("orders")
    tx = store.transaction()
    tx.write("orders", b"forgotten")
    store.close()
    assert "left open" in caplog.text
    with pytest.raises(Closed):
        tx.commit()
    assert values(open_store().topic("orders")) == []


def test_a_store_that_is_only_read_has_none(open_store):
    store = open_store()
    store.create_topic("orders")
    store.close()
    with pytest.raises(ReadOnly):
        open_store(read_only=True).transaction()


@pytest.mark.parametrize("name", ["", "x" * 2049, "\ud800"])
def test_a_name_that_cannot_be_stored(store, name):
    with pytest.raises(InvalidOption):
        store.transaction(name=name)


def test_what_a_dead_process_staged_goes_after_a_day(open_store, tmp_path, clock):
    store = open_store(clock=clock)
    topic = store.create_topic("orders")
    left = tmp_path / "store/topics/orders/parts/000000/00ab-0-0.staged"
    left.write_bytes(b"half")
    os.utime(left, ns=(clock.now_ns(), clock.now_ns()))
    clock.advance("23h")
    topic.vacuum()
    assert left.exists()
    clock.advance("2h")
    topic.vacuum()
    assert not left.exists()


def test_a_file_that_goes_while_others_are_collected_is_none_of_their_business(
    open_store, tmp_path, monkeypatch
):
    """A transaction commits and renames its file just when a vacuum looks for abandoned ones."""
    store = open_store()
    topic = store.create_topic("orders")
    left = tmp_path / "store/topics/orders/parts/000000/00ab-0-0.staged"
    left.write_bytes(b"half")
    collect = Transactions.collect

    def too_late(self, remove):
        left.unlink()
        collect(self, remove)

    monkeypatch.setattr(Transactions, "collect", too_late)
    topic.vacuum()
    assert not left.exists()


def test_a_transaction_open_for_longer_than_staging_lives(open_store, clock):
    store = open_store(clock=clock)
    topic = store.create_topic("orders")
    tx = store.transaction()
    tx.write_many("orders", [os.urandom(10_000) for _ in range(100)])
    clock.advance(f"{2 * staging.ABANDONED_NS // 10**9 + 10**9}s")
    topic.vacuum()
    with pytest.raises(Closed, match="removed"):
        tx.commit()
    assert values(topic) == []
    topic.write(b"goes on")


def test_a_topics_own_limit_holds_for_small_messages_too(store):
    topic = store.create_topic("short", max_message_bytes=10)
    with store.transaction() as tx:
        for _ in range(2):
            tx.write(topic, b"x" * 10)
            with pytest.raises(MessageTooLarge):
                tx.write(topic, b"x" * 11)
    assert len(values(topic)) == 2
