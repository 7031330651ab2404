"""Positions in transactions (S001-60): what was read is committed with what was written, or comes again."""

import dataclasses
import errno

import pytest

from penstock import Files
from penstock.errors import Closed, InvalidOption, PartitionLost, UsageError, WrongType


@pytest.fixture
def topics(store):
    orders, invoices = store.create_topic("orders", partitions=2), store.create_topic("invoices")
    for number in range(10):
        orders.write(b"%d" % number, partition=number % 2)
    return orders, invoices


def values(topic, **where):
    return [message.value for message in topic.read(limit=100_000, **where)]


def positions(topic, name="billing"):
    (found,) = [each for each in topic.consumers() if each.consumer == name]
    return found.positions


def copy_all(store, reader, batch_size=2):
    """Move everything to `invoices`, a transaction for each batch; the values, in order."""
    seen = []
    while True:
        with store.transaction() as tx:
            batch = reader.receive_batch(batch_size, tx=tx)
            for message in batch:
                tx.write("invoices", message.value)
                seen.append(message.value)
        if not batch:
            return seen


def test_reading_commits_with_the_transaction(store, topics):
    orders, invoices = topics
    with orders.reader(consumer="billing", follow=False) as reader:
        with store.transaction() as tx:
            batch = reader.receive_batch(3, tx=tx)
            tx.write_many("invoices", [message.value for message in batch])
            assert positions(orders) == {0: 0, 1: 0}, "reading itself commits nothing"
        assert positions(orders)[batch[0].partition] == 3
        copy_all(store, reader)
    assert sorted(values(invoices)) == sorted(values(orders))
    assert positions(orders) == {0: 5, 1: 5}


def test_rolled_back_the_reader_delivers_the_same_messages_again(store, topics):
    orders, invoices = topics
    with orders.reader(consumer="billing", follow=False) as reader:
        tx = store.transaction()
        first = [m.value for m in reader.receive_batch(3, tx=tx)]
        other = [m.value for m in reader.receive_batch(3, tx=tx)]
        tx.write("invoices", b"no")
        tx.rollback()
        assert sorted(copy_all(store, reader)) == sorted(values(orders))
        assert first
        assert other
    assert sorted(values(invoices)) == sorted(values(orders))


def test_an_error_in_the_body_brings_the_messages_back(store, topics):
    orders, _ = topics
    with orders.reader(consumer="billing", follow=False) as reader:

        def fail():
            with store.transaction() as tx:
                reader.receive_batch(2, tx=tx)
                raise ZeroDivisionError

        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                fail()
        assert len(copy_all(store, reader)) == 10


def test_single_messages_by_commit(store, topics):
    orders, invoices = topics
    with orders.reader(consumer="billing", follow=False) as reader:
        for message in reader:
            with store.transaction() as tx:
                tx.write("invoices", message.value)
                reader.commit(message, tx=tx)
    assert len(values(invoices)) == 10
    assert positions(orders) == {0: 5, 1: 5}


def test_messages_of_a_rolled_back_commit_come_again(store, topics):
    orders, _ = topics
    with orders.reader(consumer="billing", follow=False, partitions=[0]) as reader:
        message = reader.receive()
        tx = store.transaction()
        reader.commit(message, tx=tx)
        tx.rollback()
        again = [m.value for m in reader]
        assert again == values(orders, partition=0)


def test_a_consumer_moved_meanwhile_fails_the_whole_loudly(store, topics):
    """U07: not a silent stall. Nothing is written, and the reader goes on."""
    orders, invoices = topics
    with orders.reader(consumer="billing", follow=False) as reader:
        tx = store.transaction()
        reader.receive_batch(2, tx=tx)
        tx.write("invoices", b"never")
        orders.seek_consumer("billing", "earliest")
        with pytest.raises(PartitionLost):
            tx.commit()
        assert values(invoices) == []
        assert sorted(copy_all(store, reader)) == sorted(values(orders))


def test_what_was_delivered_before_must_be_committed_first(store, topics):
    orders, invoices = topics
    with orders.reader(consumer="billing", follow=False, partitions=[0]) as reader:
        early = reader.receive_batch(2)
        tx = store.transaction()
        late = reader.receive_batch(2, tx=tx)
        tx.write("invoices", b"x")
        with pytest.raises(UsageError, match="offset 0 was delivered before"):
            tx.commit()
        assert values(invoices) == []
        again = reader.receive_batch(2)
        assert [m.offset for m in again] == [m.offset for m in late]
        reader.commit(early)
        with store.transaction() as tx:
            reader.commit(again, tx=tx)
    assert positions(orders)[0] == 4


def test_several_readers_and_topics_in_one_transaction(store, topics):
    """S001-63: several consumers."""
    orders, invoices = topics
    other = store.create_topic("payments")
    other.write(b"paid")
    with (
        orders.reader(consumer="billing", follow=False) as one,
        store.reader(["payments", "invoices"], consumer="audit", follow=False) as two,
        store.transaction() as tx,
    ):
        got = [len(one.receive_batch(1, tx=tx)), len(two.receive_batch(1, tx=tx))]
        tx.write(invoices, b"both")
    assert got == [1, 1]
    assert positions(other, "audit") == {0: 1}
    assert sum(positions(orders).values()) == 1


def test_only_positions(store, topics):
    orders, _ = topics
    with orders.reader(consumer="billing", follow=False) as reader, store.transaction() as tx:
        while reader.receive_batch(100, tx=tx):
            pass
    assert positions(orders) == {0: 5, 1: 5}


def test_the_transaction_of_another_store(store, topics, open_store, tmp_path):
    orders, _ = topics
    other = open_store(tmp_path / "other")
    with orders.reader(consumer="billing", follow=False) as reader, other.transaction() as tx:
        with pytest.raises(UsageError, match="another store"):
            reader.receive_batch(tx=tx)
        with pytest.raises(WrongType):
            reader.receive_batch(tx="tx")


def test_a_reader_without_a_consumer_has_no_part_in_it(store, topics):
    orders, _ = topics
    with orders.reader(follow=False) as reader, store.transaction() as tx:
        with pytest.raises(UsageError, match="without a consumer"):
            reader.receive_batch(tx=tx)


def test_a_message_of_another_reader(store, topics):
    orders, invoices = topics
    invoices.write(b"other")
    (foreign,) = invoices.read()
    with orders.reader(consumer="billing", follow=False) as reader, store.transaction() as tx:
        with pytest.raises(InvalidOption, match="not read by this reader"):
            reader.commit(foreign, tx=tx)
        with pytest.raises(InvalidOption, match="was not delivered"):
            reader.commit(orders.read(partition=0, start=4)[0], tx=tx)
    assert positions(orders) == {0: 0, 1: 0}


def test_a_reader_closed_before_the_commit(store, topics):
    """Loudly: the messages were not committed, and nothing is written."""
    orders, invoices = topics
    tx = store.transaction()
    with orders.reader(consumer="billing", follow=False) as reader:
        reader.receive_batch(2, tx=tx)
        tx.write("invoices", b"x")
    with pytest.raises(Closed):
        tx.commit()
    assert values(invoices) == []
    with orders.reader(consumer="billing", follow=False) as reader:
        assert len(copy_all(store, reader)) == 10


def test_an_ended_transaction_takes_no_reader(store, topics):
    orders, _ = topics
    with store.transaction() as tx:
        pass
    with orders.reader(consumer="billing", follow=False) as reader:
        with pytest.raises(Closed):
            reader.receive_batch(tx=tx)
        assert len(copy_all(store, reader)) == 10


def test_positions_survive_a_restart_with_what_was_written(open_store):
    store = open_store()
    orders, invoices = store.create_topic("orders"), store.create_topic("invoices")
    orders.write_many([b"%d" % n for n in range(100)])
    for _ in range(5):
        with orders.reader(consumer="billing", follow=False) as reader:
            for _ in range(2):
                with store.transaction() as tx:
                    for message in reader.receive_batch(10, tx=tx):
                        tx.write("invoices", message.value)
            reader.receive_batch(7)  # and no commit
        store.close()
        store = open_store()
        orders, invoices = store.topic("orders"), store.topic("invoices")
    assert values(invoices) == values(orders)


@dataclasses.dataclass
class Order:
    amount: int


def test_typed_topics_in_a_transaction(store):
    orders = store.create_topic("typed", type=Order)
    with store.transaction() as tx:
        for amount in range(3):
            tx.write(orders, Order(amount))
        tx.write_many(orders, [Order(3), None])
        with pytest.raises(WrongType):
            tx.write(orders, object())
    assert [m.value for m in orders.read()] == [Order(0), Order(1), Order(2), Order(3), None]


def test_compressed_topics_and_lists_of_codecs_hold_in_transactions(store):
    store.create_topic("small", compress="zstd")
    store.create_topic("packed", codecs=("zstd",))
    with store.transaction() as tx:
        tx.write_many("small", [b"the same again " * 20] * 500)
        with pytest.raises(InvalidOption, match="codec raw"):
            tx.write("packed", b"x")
    assert len(values(store.topic("small"))) == 500
    assert store.topic("small").stats().bytes < 20_000


def test_an_error_at_rollback_is_not_in_the_way(open_store, monkeypatch):
    """B001: what cannot be removed goes later; the body's error comes through, the messages come again."""
    store = open_store()
    store.create_topic("orders").write(b"1")
    store.create_topic("invoices")

    def refuse(self, path):
        raise PermissionError(errno.EPERM, path)

    def fail(reader):
        with store.transaction() as tx:
            assert [m.value for m in reader.receive_batch(tx=tx)] == [b"1"]
            tx.write_many("invoices", [b"x" * 1000] * 200)
            raise ZeroDivisionError

    with store.topic("orders").reader(consumer="c") as reader:
        with monkeypatch.context() as patch:
            patch.setattr(Files, "unlink", refuse)
            with pytest.raises(ZeroDivisionError):
                fail(reader)
        assert reader.receive(timeout=5).value == b"1"
    assert len(store.topic("invoices").read()) == 0


def test_what_was_delivered_outside_of_a_rolled_back_transaction_can_still_be_committed(store, topics):
    orders, _ = topics
    with orders.reader(consumer="billing", follow=False, partitions=[0]) as reader:
        messages = reader.receive_batch(4).messages()
        tx = store.transaction()
        reader.commit(messages[0], tx=tx)
        tx.rollback()
        for message in reversed(messages):
            reader.commit(message)
        assert positions(orders)[0] == 4
        assert [m.offset for m in reader] == [0, 1, 2, 3, 4], "and it is delivered again"
