"""Exactly once: producers, seqnos given and automatic, duplicates, takeovers (S001-04, 05, 39, 41 to 47)."""

import logging
import os
import threading
from contextlib import suppress

import pytest

import penstock
from tests.contract.disks import Disk
from tests.kit.logs import Log, Pair, ProducerTable, producers_module, seal_segment
from tests.kit.topics import inside


@pytest.fixture
def topic(store):
    return store.create_topic("orders")


def partitions_of(topic):
    """The open topic behind either interface."""
    inner = getattr(topic, "_target", topic)
    return inside(getattr(inner, "blocking", inner))


def log_of(topic, partition: int = 0) -> Log:
    return partitions_of(topic).log(partition)


def seqnos(topic, producer: str = "shop") -> list[int]:
    return [m.seqno for m in topic.read(limit=10_000) if m.producer_id == producer]


def send(topic, numbers, producer="shop", **options):
    """Write messages with these seqnos by a new writer; the receipts."""
    with topic.writer(producer_id=producer, **options) as writer:
        for number in numbers:
            writer.write(f"{producer}:{number}", seqno=number)
        return list(writer.flush())


def end(writer):
    """Close a writer that has failed; some say so once more."""
    with suppress(penstock.PenstockError):
        writer.close()


# Duplicates.


def test_what_is_sent_again_is_skipped_and_counted(topic):
    """S001-04, S001-45, B001-10: an ack says whether the message was written or skipped."""
    send(topic, [1, 2, 3])
    with topic.writer(producer_id="shop") as writer:
        for number in (2, 3, 4, 5):
            writer.write(f"shop:{number}", seqno=number)
        receipts = writer.flush()
        assert (writer.written, writer.skipped) == (2, 2)
    assert [(r.duplicate, r.offset) for r in receipts] == [(True, -1), (True, -1), (False, 3), (False, 4)]
    assert [m.text for m in topic.read()] == [f"shop:{n}" for n in (1, 2, 3, 4, 5)]


def test_everything_sent_again_writes_nothing(topic):
    send(topic, [1, 2, 3])
    before = topic.stats().bytes
    receipts = send(topic, [1, 2, 3])
    assert all(r.duplicate for r in receipts)
    assert topic.stats().bytes == before


def test_messages_carry_who_wrote_them(topic):
    send(topic, [7], group="eu")
    topic.write(b"nobody")
    first, second = topic.read()
    assert (first.producer_id, first.group, first.seqno) == ("shop", "eu", 7)
    assert (second.producer_id, second.group, second.seqno) == (None, None, None)


def test_gaps_are_fine(topic):
    """S001-46; file offsets are natural seqnos (S001-47)."""
    send(topic, [0, 17, 4096, 2**63 - 1])
    assert seqnos(topic) == [0, 17, 4096, 2**63 - 1]
    assert [r.duplicate for r in send(topic, [5, 4096, 5000])] == [True] * 3


def test_seqnos_belong_to_a_producer_and_a_group(topic):
    """S001-33, S001-46."""
    send(topic, [1, 2], "a")
    send(topic, [1, 2], "b")
    send(topic, [1, 2], "a", group="g")
    with topic.writer(producer_id="a") as writer:
        writer.write(b"v", seqno=2, group="g")
        writer.write(b"v", seqno=3, group="h")
        assert [r.duplicate for r in writer.flush()] == [True, False]
    assert len(topic.read()) == 7


def test_write_many_with_seqnos(topic):
    with topic.writer(producer_id="shop") as writer:
        writer.write_many([b"a", b"b", b"c"], seqnos=[1, 5, 6])
        writer.write_many([b"c", b"d"], keys=["k", "k"], seqnos=range(6, 8))
        receipts = writer.flush()
        assert [r.duplicate for r in receipts] == [False] * 4 + [True]
        assert (writer.written, writer.skipped) == (4, 1)
    assert seqnos(topic) == [1, 5, 6, 7]
    with topic.writer(producer_id="shop") as writer:
        writer.write_many([b"x"] * 9, seqnos=range(1, 10))
        assert [r.duplicate for r in writer.flush()] == [True] * 7 + [False] * 2


def test_the_same_seqno_twice_is_a_duplicate(topic):
    with topic.writer(producer_id="shop") as writer:
        writer.write(b"a", seqno=1)
        writer.write(b"a", seqno=1)
        writer.write(b"b", seqno=2)
        writer.write_many([b"b", b"c", b"c"], seqnos=[2, 3, 3])
        receipts = writer.flush()
        assert sum(r.duplicate for r in receipts) == 3 == writer.skipped
        assert len(receipts) == 6
    assert seqnos(topic) == [1, 2, 3]


def test_two_writers_with_explicit_seqnos_may_write_at_once(topic):
    with topic.writer(producer_id="shop") as one, topic.writer(producer_id="shop") as other:
        for number in range(1, 20):
            for writer in (one, other):
                writer.write(str(number), seqno=number)
                writer.flush()
        assert one.written + other.written == 19 == one.skipped + other.skipped
    assert seqnos(topic) == list(range(1, 20))


def test_duplicates_are_known_after_a_restart(open_store, clock):
    topic = (first := open_store(clock=clock)).create_topic("orders")
    send(topic, range(1, 100))
    first.close()
    topic = open_store(clock=clock).topic("orders")
    assert sum(r.duplicate for r in send(topic, range(50, 150))) == 50
    assert seqnos(topic) == list(range(1, 150))


def test_duplicates_are_known_after_retention_took_every_message(open_store, clock):
    """S001-45: facts outlive messages."""
    topic = (first := open_store(clock=clock)).create_topic("orders", retention="1h", segment_bytes=4096)
    send(topic, range(1, 200))
    clock.advance("2h")
    topic.vacuum()
    assert topic.stats().messages == 0
    assert [r.duplicate for r in send(topic, range(1, 200))] == [True] * 199
    first.close()
    topic = open_store(clock=clock).topic("orders")
    assert [r.duplicate for r in send(topic, [199, 200])] == [True, False]


def test_repacked_frames_tell_the_same(open_store, clock):
    topic = (first := open_store(clock=clock)).create_topic("orders")
    for number in range(1, 60):
        send(topic, [number], f"p{number % 3}")
    topic.write(b"nobody", group="g")
    with topic.writer(producer_id="counting") as writer:
        writer.write(b"x")
    seal_segment(log_of(topic))
    topic.vacuum()
    for path in partitions_of(topic).files.listdir(log_of(topic).folder.path):
        if path.endswith(".producers"):
            partitions_of(topic).files.unlink(log_of(topic).folder.name(path))
    first.close()
    topic = open_store(clock=clock).topic("orders")
    assert log_of(topic).segments.sealed(0).generation == 1
    facts = {
        pair: (seqno, epoch) for pair, seqno, epoch, _ in log_of(topic).appender.producers.load().items()
    }
    assert facts == {
        Pair("p0", ""): (57, 0), Pair("p1", ""): (58, 0), Pair("p2", ""): (59, 0),
        Pair("counting", ""): (1, 1),
    }  # fmt: skip
    group_only = next(m for m in topic.read() if m.group == "g")
    assert (group_only.producer_id, group_only.seqno) == (None, None)
    assert topic.read().to_arrow().column("producer_id").null_count == 1


def test_a_duplicate_is_acknowledged_when_the_first_is_on_disk(open_store, clock):
    """A skipped ack waits for durability like a written one."""
    disk = Disk()
    topic = open_store(clock=clock, files=disk).create_topic("orders")
    topic.write(b"begun")
    acked = []
    with topic.writer(producer_id="shop", sync="os") as first, topic.writer(producer_id="shop") as second:
        disk.stop_syncing()
        try:
            first.write(b"a", seqno=1)
            first.flush()
            second.write(b"a", seqno=1)
            waiting = threading.Thread(target=lambda: acked.extend(second.flush()))
            waiting.start()
            waiting.join(0.2)
            assert not acked
        finally:
            disk.go_on_syncing()
        waiting.join()
    assert [r.duplicate for r in acked] == [True]


def test_what_a_failed_sync_took_is_stored_when_sent_again(open_store, clock):
    disk = Disk()
    topic = open_store(clock=clock, files=disk).create_topic("orders")
    send(topic, [1, 2])
    writer = topic.writer(producer_id="shop")
    writer.write(b"3", seqno=3)
    disk.sync_fails = True
    with pytest.raises(penstock.NotDurable):
        writer.flush()
    disk.sync_fails = False
    end(writer)
    receipts = send(topic, [1, 2, 3, 4])
    assert [r.duplicate for r in receipts] == [True, True, False, False]
    assert seqnos(topic) == [1, 2, 3, 4]


# Wrong calls.


def test_seqnos_that_go_back_are_refused_at_once(topic):
    """B001-22: nothing of such a call is accepted."""
    with topic.writer(producer_id="shop") as writer:
        writer.write(b"a", seqno=5)
        with pytest.raises(penstock.InvalidOption, match="4 after 5"):
            writer.write(b"b", seqno=4)
        with pytest.raises(penstock.InvalidOption):
            writer.write_many([b"b", b"c"], seqnos=[3, 9])
        with pytest.raises(penstock.InvalidOption, match="go back"):
            writer.write_many([b"b", b"c"], seqnos=[9, 8])
        writer.write(b"d", seqno=6)
    assert seqnos(topic) == [5, 6]


@pytest.mark.parametrize("seqno", [-1, 2**63])
def test_seqnos_have_63_bits(topic, seqno):
    with topic.writer(producer_id="shop") as writer:
        with pytest.raises(penstock.InvalidOption):
            writer.write(b"v", seqno=seqno)
        with pytest.raises(penstock.InvalidOption):
            writer.write_many([b"v"], seqnos=[seqno])
    assert topic.stats().messages == 0


@pytest.mark.parametrize("seqno", ["1", 1.0, True])
def test_seqnos_are_integers(topic, seqno):
    with topic.writer(producer_id="shop") as writer:
        with pytest.raises(penstock.WrongType):
            writer.write(b"v", seqno=seqno)
        with pytest.raises(penstock.WrongType):
            writer.write_many([b"v", b"w"], seqnos=[0, seqno])
    assert topic.stats().messages == 0


def test_a_seqno_for_each_value(topic):
    with (
        topic.writer(producer_id="shop") as writer,
        pytest.raises(penstock.InvalidOption, match="2 seqnos for 1"),
    ):
        writer.write_many([b"v"], seqnos=[1, 2])


def test_seqnos_need_a_producer(topic):
    """S001-39, S001-47: without a producer id there are no seqnos."""
    with topic.writer() as writer:
        with pytest.raises(penstock.InvalidOption, match="producer"):
            writer.write(b"v", seqno=1)
        with pytest.raises(penstock.InvalidOption, match="producer"):
            writer.write_many([b"v"], seqnos=[1])
        with pytest.raises(penstock.InvalidOption, match="producer"):
            writer.last_seqno()
    assert topic.stats().messages == 0


def test_given_and_automatic_seqnos_do_not_mix(topic):
    """B001-22."""
    with topic.writer(producer_id="given") as writer:
        writer.write(b"a", seqno=1)
        for wrong in (lambda: writer.write(b"b"), lambda: writer.write_many([b"b"])):
            with pytest.raises(penstock.InvalidOption, match="for all"):
                wrong()
    with topic.writer(producer_id="automatic") as writer:
        writer.write(b"a")
        for wrong in (lambda: writer.write(b"b", seqno=9), lambda: writer.write_many([b"b"], seqnos=[9])):
            with pytest.raises(penstock.InvalidOption, match="for all"):
                wrong()
    assert topic.stats().messages == 2


def test_ids_have_up_to_2048_characters(topic):
    """S001-41, S001-42: characters, not bytes."""
    name = "🙂" * 2048
    send(topic, [1], name, group=name)
    assert (topic.read()[0].producer_id, topic.read()[0].group) == (name, name)
    assert send(topic, [1], name, group=name)[0].duplicate
    for wrong in ("", "x" * 2049, "\ud800"):
        with pytest.raises(penstock.InvalidOption):
            topic.writer(producer_id=wrong)
        with pytest.raises(penstock.InvalidOption):
            topic.writer(group=wrong)
        with pytest.raises(penstock.InvalidOption):
            topic.write(b"v", group=wrong)
    with pytest.raises(penstock.WrongType):
        topic.writer(producer_id=7)


# Automatic seqnos and takeovers.


def test_automatic_seqnos_go_on_where_the_producer_stopped(open_store, clock):
    """B001-08, B001-09, B001-22: from 1, and after a restart behind the last one."""
    topic = (first := open_store(clock=clock)).create_topic("orders")
    with topic.writer(producer_id="shop") as writer:
        assert writer.last_seqno() is None
        for number in range(5):
            writer.write(str(number))
        writer.write_many([b"5", b"6"])
        writer.flush()
        assert writer.last_seqno() == 7
    first.close()
    topic = open_store(clock=clock).topic("orders")
    with topic.writer(producer_id="shop") as writer:
        assert writer.last_seqno() == 7
        writer.write(b"7")
    assert seqnos(topic) == list(range(1, 9))


def test_a_newer_writer_fences_the_older(topic):
    older = topic.writer(producer_id="shop")
    older.write(b"1")
    older.flush()
    with topic.writer(producer_id="shop") as newer:
        newer.write(b"2")
        newer.flush()
        older.write(b"lost")
        with pytest.raises(penstock.ProducerFenced, match="took over"):
            older.flush()
        end(older)
        newer.write(b"3")
    assert [m.text for m in topic.read()] == ["1", "2", "3"]
    assert seqnos(topic) == [1, 2, 3]


def test_a_fence_survives_a_restart(open_store, clock, tmp_path):
    topic = (first := open_store(clock=clock)).create_topic("orders")
    with topic.writer(producer_id="shop") as writer:
        writer.write(b"1")
    seal_segment(log_of(topic))
    with topic.writer(producer_id="shop") as writer:
        writer.write(b"2")
    first.close()
    topic = open_store(clock=clock).topic("orders")
    assert log_of(topic).appender.producers.peek(Pair("shop", "")).epoch == 2


def test_automatic_fences_explicit_writers_too(topic):
    explicit = topic.writer(producer_id="shop")
    explicit.write(b"1", seqno=10)
    explicit.flush()
    with topic.writer(producer_id="shop") as newer:
        newer.write(b"2")
    assert seqnos(topic) == [10, 11]
    explicit.write(b"3", seqno=12)
    with pytest.raises(penstock.ProducerFenced):
        explicit.flush()
    end(explicit)
    send(topic, [12])  # who comes after the takeover takes the present epoch
    assert seqnos(topic) == [10, 11, 12]


def test_an_automatic_writer_never_takes_its_own_messages_for_duplicates(topic):
    """Someone else numbers messages of the same producer: that is an error, not a loss."""
    automatic = topic.writer(producer_id="shop")
    automatic.write(b"1")
    automatic.flush()
    send(topic, [100])
    automatic.write(b"2")
    with pytest.raises(penstock.ProducerFenced, match="another writer"):
        automatic.flush()
    end(automatic)


def test_groups_are_taken_over_one_by_one(topic):
    with topic.writer(producer_id="shop") as writer:
        writer.write(b"a", group="eu")
        writer.write(b"b", group="us")
        writer.write(b"c", group="eu")
        writer.write(b"d")
        writer.flush()
        with topic.writer(producer_id="shop", group="us") as other:
            other.write(b"e")
        writer.write(b"f", group="eu")
        writer.flush()
        writer.write(b"g", group="us")
        with pytest.raises(penstock.ProducerFenced):
            writer.flush()
        end(writer)
    assert [(m.group, m.seqno) for m in topic.read() if m.group == "eu"] == [("eu", 1), ("eu", 3), ("eu", 5)]


def test_a_segment_of_fences_is_not_sealed(topic):
    """It would have the name of the one that follows it."""
    for _ in range(3):
        with topic.writer(producer_id="shop") as writer:
            writer.write_many([])
            writer.write(b"v")
        seal_segment(log_of(topic))
    assert topic.writer(producer_id="other").last_seqno() is None
    log_of(topic).appender.take_over(Pair("shop", ""))
    seal_segment(log_of(topic))
    topic.vacuum()
    assert log_of(topic).appender.producers.peek(Pair("shop", "")).epoch == 4
    assert len(topic.read()) == 3
    with topic.writer(producer_id="shop") as writer:
        writer.write(b"v")
    assert seqnos(topic) == [1, 2, 3, 4]


# Keys and partitions.


def test_each_partition_knows_its_own_duplicates(store):
    """A crash between two partitions must not make a resend skip what was not stored."""
    topic = store.create_topic("keyed", partitions=3, sync="os")
    keys = [f"key-{i}" for i in range(30)]
    with topic.writer(producer_id="shop", linger=60) as writer:
        for number, key in enumerate(keys):
            writer.write(str(number), key=key, seqno=number)
        receipts = writer.flush()
        assert len({r.partition for r in receipts}) == 3
    again = topic.writer(producer_id="shop")
    again.write_many([str(n) for n in range(40)], keys=[f"key-{n}" for n in range(40)], seqnos=range(40))
    again.flush()
    assert (again.written, again.skipped) == (10, 30)
    again.close()
    assert sorted(m.seqno for m in topic.read()) == list(range(40))


def test_a_full_disk_at_the_second_partition_loses_and_doubles_nothing(open_store, clock):
    class SecondPartitionFull(Disk):
        def pwritev(self, fd, parts, at):
            self.is_full = self.armed and "000001" in _path(fd)
            return super().pwritev(fd, parts, at)

    disk = SecondPartitionFull()
    disk.armed = False
    topic = open_store(clock=clock, files=disk).create_topic("keyed", partitions=2)
    with topic.writer(producer_id="shop", linger=60) as writer:
        disk.armed = True
        for number in range(20):
            writer.write(str(number), partition=number % 2, seqno=number)
        with pytest.raises(penstock.DiskFull):
            writer.flush()
        disk.armed = disk.is_full = False
        writer.write(b"20", partition=0, seqno=20)
        assert not any(r.duplicate for r in writer.flush())
    found = [(m.partition, m.seqno, m.text) for m in topic.read()]
    assert found == sorted(((n % 2, n, str(n)) for n in range(21)), key=lambda each: (each[0], each[1]))


def _path(fd):
    return os.readlink(f"/proc/self/fd/{fd}")


def test_automatic_seqnos_keep_the_order_of_the_calls(store):
    topic = store.create_topic("keyed", partitions=3, sync="os")
    with topic.writer(producer_id="shop") as writer:
        for number in range(1, 50):
            writer.write(str(number), key=f"key-{number % 7}")
    assert sorted((m.seqno, m.text) for m in topic.read()) == [(n, str(n)) for n in range(1, 50)]
    with topic.writer(producer_id="shop") as writer:
        writer.write(b"50", partition=2)
        writer.flush()
        assert writer.last_seqno() == 50


def test_after_partitions_were_added_the_earlier_owner_of_a_key_is_asked(store):
    """Dedup survives `alter(partitions=…)`, also twice; only what the owner held at that moment counts."""
    topic = store.create_topic("keyed", sync="os")
    keys = [f"key-{i}" for i in range(40)]

    def sent(numbers):
        with topic.writer(producer_id="shop", linger=60) as writer:
            for number in numbers:
                writer.write(str(number), key=keys[number % 40], seqno=number)
            writer.flush()
            return writer.written, writer.skipped

    assert sent(range(20)) == (20, 0)
    topic.alter(partitions=2)
    assert sent(range(40)) == (20, 20)
    topic.alter(partitions=5)
    assert sent(range(60)) == (20, 40)
    topic.alter(partitions=6)
    assert sent(range(60)) == (0, 60)
    assert sorted(m.seqno for m in topic.read()) == list(range(60))


def test_what_the_earlier_owner_got_later_does_not_count(store):
    topic = store.create_topic("keyed", sync="os")
    send(topic, [1, 2])
    topic.alter(partitions=2)
    chosen = {
        partition: key
        for key in ("a", "b", "c", "d", "e")
        for partition in [topic.write(b"", key=key).partition]
    }
    assert set(chosen) == {0, 1}
    with topic.writer(producer_id="shop") as writer:
        writer.write(b"3", key=chosen[0], seqno=10)
    with topic.writer(producer_id="shop") as writer:
        writer.write(b"4", key=chosen[1], seqno=5)  # below partition 0's 10, above what it held at the gate
        assert not writer.flush()[0].duplicate
        writer.write(b"5", key=chosen[1], seqno=6)
    with topic.writer(producer_id="shop") as writer:
        writer.write(b"2", key=chosen[1], seqno=2)
        assert writer.flush()[0].duplicate


# Checkpoints that are damaged or gone.


@pytest.fixture
def trimmed(open_store, clock):
    """A topic whose early messages are gone, and the names of its checkpoints, newest last."""
    store = open_store(clock=clock)
    topic = store.create_topic("orders", retention="1h", segment_bytes=4096)
    send(topic, range(1, 100))
    clock.advance("2h")
    topic.vacuum()
    for first in (100, 200):
        send(topic, range(first, first + 100), "later")
        seal_segment(log_of(topic))
        topic.vacuum()
    folder = log_of(topic).folder
    names = sorted(folder.name(n) for n in folder.files.listdir(folder.path) if n.endswith(".producers"))
    store.close()
    return names


def damage(path):
    with open(path, "r+b") as file:
        file.seek(30)
        file.write(b"\xff\xff")


def test_a_damaged_checkpoint_is_made_up_for_by_an_older_one(trimmed, open_store, clock):
    assert len(trimmed) == 2
    damage(trimmed[-1])
    topic = open_store(clock=clock).topic("orders")
    assert send(topic, [99])[0].duplicate
    topic.vacuum()
    damage(trimmed[0])
    partitions_of(topic)._logs.clear()
    assert send(topic, [99])[0].duplicate


def test_damaged_checkpoints_with_nothing_to_make_up_for_them(trimmed, open_store, clock):
    for path in trimmed:
        damage(path)
    topic = open_store(clock=clock).topic("orders")
    writer = topic.writer(producer_id="shop")
    writer.write(b"v", seqno=99)
    with pytest.raises(penstock.Corrupt, match=r"\.producers") as caught:
        writer.flush()
    assert "removing" in caught.value.hint
    end(writer)
    topic.write(b"others can")
    for path in trimmed:
        partitions_of(topic).files.unlink(path)
    assert not send(topic, [99])[0].duplicate


def test_a_missing_checkpoint_is_made_anew_with_a_warning(trimmed, open_store, clock, caplog):
    store = open_store(clock=clock)
    topic = store.topic("orders")
    for path in trimmed:
        partitions_of(topic).files.unlink(path)
    with caplog.at_level(logging.WARNING):
        receipts = send(topic, [250, 299, 300], "later")
    assert "missing" in caplog.text
    assert [r.duplicate for r in receipts] == [True, True, False]
    topic.vacuum()
    assert partitions_of(topic).files.exists(trimmed[-1])


# Many producers.


def test_too_many_producers_are_warned_of(topic, clock, caplog, monkeypatch):
    """S001-36, S001-40: once for a partition, and only if they came lately."""
    monkeypatch.setattr(producers_module, "MANY", 20)
    monkeypatch.setattr(producers_module, "_COUNT_EVERY", 5)
    log_of(topic).appender.producers._count_at = 21

    def warnings():
        return [r for r in caplog.records if "producers wrote" in r.getMessage()]

    for number in range(15):
        send(topic, [1], f"old-{number}")
    clock.advance("15d")
    for number in range(20):
        send(topic, [1], f"new-{number}")
    assert not warnings()
    for number in range(20, 40):
        send(topic, [1], f"new-{number}")
    assert len(warnings()) == 1
    assert "partition 0 of topic 'orders'" in warnings()[0].getMessage()


def test_facts_only_grow():
    facts = ProducerTable()
    pair = Pair("p", "")
    for seqno, epoch, seen in ((5, 1, 10), (3, 2, 5), (-1, 0, 0)):
        facts.learn(pair, seqno, epoch, seen)
    assert [*facts.items()] == [(pair, 5, 2, 10)]


def test_an_older_writer_does_not_take_an_added_partition_from_a_newer_one(tmp_path):
    """It finds out where it was taken over before it joins a partition that it never wrote to."""
    with penstock.open(tmp_path) as first, penstock.open(tmp_path) as second:
        topic = first.create_topic("orders")
        older = topic.writer(producer_id="shop", linger=60)
        older.write(b"1", key="k")
        older.flush()
        topic.alter(partitions=4)
        newer = second.topic("orders").writer(producer_id="shop", linger=60)
        newer.write(b"2", key="key-1")
        newer.flush()
        older.write(b"3", key="k")
        with pytest.raises(penstock.ProducerFenced):
            older.flush()
        newer.write(b"4", key="k")
        newer.close()
        assert sorted(message.value for message in topic.read()) == [b"1", b"2", b"4"]
        with pytest.raises(penstock.PenstockError):
            older.close()
