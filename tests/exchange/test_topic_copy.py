"""`topic copy`: the same messages at the same offsets in another store."""

import pytest

import penstock
from penstock.errors import AlreadyExists, InvalidOption, PartitionInactive
from tests.exchange.killed_import import run_until_killed
from tests.kit.values import copy_topic


def rows(topic, partition):
    return [
        (m.offset, m.key, m.value, m.timestamp, dict(m.headers), m.codec)
        for m in topic.read(partition=partition, limit=10**6)
    ]


def filled(store, name="orders", **options):
    topic = store.create_topic(name, partitions=2, segment_bytes="64KiB", **options)
    for begin in range(0, 3000, 500):
        topic.write_many(
            [b"%050d" % n for n in range(begin, begin + 500)], keys=[b"k%d" % (n % 9) for n in range(500)]
        )
    with topic.writer(codec="gzip", headers={"h": "1"}) as writer:
        for n in range(100):
            writer.write(b"packed %d" % n, key=f"k{n}", timestamp=n)
    topic.write(None, key="gone")
    return topic


def test_a_copy_has_every_message_at_its_offset(tmp_path):
    with penstock.open(tmp_path / "a") as a, penstock.open(tmp_path / "b") as b:
        source = filled(a, retention="7d", partitioner="kafka")
        source.delete_before({0: 700, 1: 3})
        source.add_consumer("billing", start={0: 900, 1: 10}, important=True)
        done = copy_topic(source, b, "copy")
        assert [rows(done.topic, n) for n in (0, 1)] == [rows(source, n) for n in (0, 1)]
        assert done.topic.options == source.options
        assert done.topic.stats().partitions[0].start == 700
        assert done.topic.consumers() == []
        assert done.consumers == ()
        end = source.stats().partitions[0].end
        assert done.topic.write(b"next", partition=0).offset == end


def test_consumers_come_along_if_asked(tmp_path):
    with penstock.open(tmp_path / "a") as a, penstock.open(tmp_path / "b") as b:
        source = filled(a)
        source.add_consumer("billing", start={0: 900, 1: 10}, important=True, read_from=5)
        (copied,) = copy_topic(source, b, "copy", consumers=True).topic.consumers()
        (there,) = source.consumers()
        assert (copied.consumer, copied.positions, copied.important, copied.read_from_ns) == (
            there.consumer, {0: 900, 1: 10}, True, 5,
        )  # fmt: skip


def grown(store):
    """A topic whose producers wrote before and after partitions were added, and whose first messages went."""
    topic = store.create_topic("orders", segment_bytes="64KiB")
    with topic.writer(producer_id="early", group="g") as writer:
        for n in range(300):
            writer.write(b"%0500d" % n, seqno=n)
    with topic.writer(producer_id="shop") as writer:
        for n in range(40):
            writer.write(b"%d" % n, key=b"k%d" % n, seqno=n)
    topic.delete_before({0: 320})
    topic.alter(partitions=3)
    with topic.writer(producer_id="shop") as writer:
        for n in range(40, 90):
            writer.write(b"%d" % n, key=b"k%d" % (n % 40), seqno=n)
    return topic


def test_partitions_that_were_added_open_in_the_copy_as_in_the_source(tmp_path):  # S001-36
    with penstock.open(tmp_path / "a") as a, penstock.open(tmp_path / "b") as b:
        source = grown(a)
        copy = copy_topic(source, b, "copy").topic
        assert copy.open_topic.tree == source.open_topic.tree
        assert copy.open_topic.tree.gates(1) == {0: 340}
        copy.write(b"later", key="k1")
    with penstock.open(tmp_path / "b") as b, b.topic("copy").reader(consumer="c", follow=False) as reader:
        seen = {}
        for message in reader:
            seen.setdefault(message.key, []).append(message.value)
            reader.commit(message)
        for n in range(20, 40):
            assert seen[b"k%d" % n][:2] == [b"%d" % n, b"%d" % (n + 40)]


def test_producers_go_on_with_the_copy(tmp_path):  # S001-33
    with penstock.open(tmp_path / "a") as a, penstock.open(tmp_path / "b") as b:
        source = grown(a)
        copy_topic(source, b, "copy")
        a.drop_topic("orders")
    for _ in range(2):  # also after the store was opened anew
        with penstock.open(tmp_path / "b") as b:
            copy = b.topic("copy")
            before = sum(each.end for each in copy.stats().partitions)
            with copy.writer(producer_id="early", group="g") as writer:
                assert writer.last_seqno() == 299
                for n in (250, 299):
                    writer.write(b"again", seqno=n)
                assert [each.duplicate for each in writer.flush()] == [True, True]
            with copy.writer(producer_id="shop") as writer:
                for n in range(90):
                    writer.write(b"%d" % n, key=b"k%d" % (n % 40), seqno=n)
                assert {each.duplicate for each in writer.flush()} == {True}
            assert sum(each.end for each in copy.stats().partitions) == before
    with penstock.open(tmp_path / "b") as b, b.topic("copy").writer(producer_id="shop") as writer:
        writer.write(b"90", key=b"k10", seqno=90)
        assert [each.duplicate for each in writer.flush()] == [False]


def test_bodies_outside_the_log_come_along(tmp_path):
    with penstock.open(tmp_path / "a") as a, penstock.open(tmp_path / "b") as b:
        source = a.create_topic("t", payloads="files")
        bodies = [bytes([n]) * 100_000 for n in range(5)] + [b"small"]
        for body in bodies:
            source.write(body)
        copy = copy_topic(source, b, "t").topic
        a.drop_topic("t")
        assert [m.value for m in copy.read()] == bodies


def test_what_cannot_be_is_refused(tmp_path):
    with penstock.open(tmp_path / "a") as a:
        source = filled(a)
        with pytest.raises(InvalidOption, match="copied into itself"):
            copy_topic(source, a, "orders")
        a.create_topic("there")
        with pytest.raises(AlreadyExists, match="is there already"):
            copy_topic(source, a, "there")
        assert copy_topic(source, a, "again").messages == 3101


@pytest.mark.parametrize("make", [filled, grown])
def test_a_copy_killed_again_and_again_is_whole_at_last(tmp_path, make):
    with penstock.open(tmp_path / "a") as a:
        make(a)
    kills, length = 0, 5
    while run_until_killed("copy", tmp_path / "a", tmp_path / "b", length):
        kills += 1
        length *= 2
    assert kills >= 3
    with penstock.open(tmp_path / "a") as a, penstock.open(tmp_path / "b") as b:
        source, copy = a.topic("orders"), b.topic("orders")
        assert [rows(copy, n) for n in (0, 1)] == [rows(source, n) for n in (0, 1)]
        assert copy.open_topic.tree == source.open_topic.tree
        with source.writer(producer_id="shop") as theirs, copy.writer(producer_id="shop") as ours:
            assert ours.last_seqno() == theirs.last_seqno()


def test_a_topic_whose_partitions_grew_is_copied_with_its_tree(tmp_path):
    """Every message at its offset, and the next ones go where they would have gone (S001-20)."""
    keys = [f"key-{number}" for number in range(40)]
    with penstock.open(tmp_path / "a") as store, penstock.open(tmp_path / "b") as other:
        topic = store.create_topic("orders", autopartitioning="paused")
        topic.write_many([b"1"] * 40, keys=keys)
        topic.split(0)
        topic.alter(partitions=3)
        topic.write_many([b"2"] * 40, keys=keys)
        made = copy_topic(topic, other, "orders").topic
        assert [(m.partition, m.offset, m.key, m.value) for m in made.scan().messages()] == [
            (m.partition, m.offset, m.key, m.value) for m in topic.scan().messages()
        ]
        rows = [(each.partition, each.state, each.low, each.gates) for each in topic.partitions()]
        assert [(each.partition, each.state, each.low, each.gates) for each in made.partitions()] == rows
        after = [receipt.partition for receipt in topic.write_many([b"3"] * 40, keys=keys)]
        assert [receipt.partition for receipt in made.write_many([b"3"] * 40, keys=keys)] == after


def test_split_partitions_are_copied_with_their_tree(tmp_path, clock):
    """S001-22: a parent comes over as one that is only read, and one that is gone stays gone."""
    with penstock.open(tmp_path / "a", clock=clock) as a, penstock.open(tmp_path / "b", clock=clock) as b:
        source = a.create_topic("orders", retention="1h", autopartitioning="paused")
        source.write_many([b"%d" % n for n in range(50)], keys=[b"k%d" % n for n in range(50)])
        source.add_consumer("c", start={0: 10})
        source.split(0)
        clock.advance("50m")
        source.write_many([b"%d" % n for n in range(50)], keys=[b"k%d" % n for n in range(50)])
        whole = copy_topic(source, b, "whole", consumers=True).topic
        assert [rows(whole, n) for n in (0, 1, 2)] == [rows(source, n) for n in (0, 1, 2)]
        assert whole.open_topic.tree == source.open_topic.tree
        with pytest.raises(PartitionInactive):
            whole.write(b"late", partition=0)
        for key in (b"k1", b"k2", b"k3"):
            assert whole.write(b"more", key=key).partition == source.write(b"more", key=key).partition
        clock.advance("20m")
        assert source.vacuum().removed == (0,)
        rest = copy_topic(source, b, "rest", consumers=True).topic
        assert [rows(rest, n) for n in (1, 2)] == [rows(source, n) for n in (1, 2)]
        with rest.reader(consumer="c", on_gap="skip", follow=False) as reader:
            assert len(list(reader)) == 53
            assert [gap[:4] for gap in reader.gaps] == [("rest", 0, 10, 50)]
