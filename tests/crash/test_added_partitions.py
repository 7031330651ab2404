"""A partition that was added opens to a consumer behind gates in the earlier ones.

A crash must not put a gate where nobody can ever come: the consumer would wait for ever (W004-02).
"""

import os

import penstock
from tests.crash.tracing import FIRST_BOOT, BootFiles
from tests.kit.frames import encode
from tests.kit.topics import inside


def received(topic):
    with topic.reader(consumer="billing", follow=False) as reader:
        found = []
        for message in reader:
            found.append((message.partition, message.value))
            reader.commit(message)
        return found


def test_a_gap_before_the_gate_does_not_close_it_for_ever(scratch):
    """sync="os": after a power cut offsets are left out, so that none is given twice."""
    folder = os.path.join(scratch, "store")
    store = penstock.open(folder, files=BootFiles(FIRST_BOOT))
    topic = store.create_topic("clicks", sync="os")
    topic.write_many([b"a", b"b"])
    with penstock.open(folder, files=BootFiles(FIRST_BOOT + 1)) as rebooted:
        topic = rebooted.topic("clicks")
        assert topic.stats().partitions[0].end > 2, "this test needs a gap"
        topic.alter(partitions=2)
        topic.write(b"new", partition=1)
        assert received(topic) == [(0, b"a"), (0, b"b"), (1, b"new")]


def test_a_gate_lies_where_messages_are_durable(scratch):
    """Messages that were appended and not synced go with the power; a gate behind them would stay shut."""
    folder = os.path.join(scratch, "store")
    store = penstock.open(folder, files=BootFiles(FIRST_BOOT))
    topic = store.create_topic("orders")
    topic.write(b"a")
    log = inside(topic).log(0)
    log.appender.append([encode([b"not synced"], created=0)])
    assert log.bounds().end == 1
    topic.alter(partitions=2)
    assert max(inside(topic).topics.gates(topic.id)[1].values()) <= log.bounds().end


def test_damage_before_the_gate_does_not_close_it_when_it_is_passed_over(scratch):
    folder = os.path.join(scratch, "store")
    with penstock.open(folder, files=BootFiles(FIRST_BOOT)) as store:
        topic = store.create_topic("orders")
        for value in (b"a", b"b", b"c"):
            topic.write(value)
        topic.alter(partitions=2)
        topic.write(b"new", partition=1)
    data = os.path.join(folder, "topics", "orders", "parts", "000000", f"{0:020d}.data")
    with open(data, "r+b") as file:
        place = file.read().rindex(b"c")
        file.seek(place)
        file.write(b"?")
    with penstock.open(folder, files=BootFiles(FIRST_BOOT)) as store:
        with store.topic("orders").reader(consumer="billing", follow=False, on_gap="skip") as reader:
            found = []
            for message in reader:
                found.append(message.value)
                reader.commit(message)
        assert found == [b"a", b"b", b"new"]
        assert len(reader.gaps) == 1


def test_the_gate_is_shut_again_for_the_next_reader_while_something_before_it_is_not_committed(scratch):
    with penstock.open(os.path.join(scratch, "store"), files=BootFiles(FIRST_BOOT)) as store:
        topic = store.create_topic("orders")
        topic.write_many([b"a", b"b"])
        topic.alter(partitions=2)
        topic.write(b"new", partition=1)
        with topic.reader(consumer="billing") as reader:
            messages = [reader.receive(timeout=10), reader.receive(timeout=10)]
            assert [message.value for message in messages] == [b"a", b"b"]
            reader.commit(messages[1])
            assert reader.receive(timeout=10).value == b"new", "this reader has delivered what came before"
        with topic.reader(consumer="billing") as reader:
            again = reader.receive(timeout=10)
            assert again.value == b"a", "not committed: it comes again, before what follows it"
            while again.value != b"new":
                reader.commit(again)
                again = reader.receive(timeout=10)
            reader.commit(again)
        assert received(topic) == []
