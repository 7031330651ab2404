"""What is sent again is stored once: by groups, elsewhere, after idle weeks; and FIFO per source."""

import pytest

import penstock
from tests.contract.test_producers import partitions_of
from tests.kit.topics import PARTITIONERS


@pytest.fixture
def topic(store):
    return store.create_topic("orders", partitions=3, sync="os")


def everything(topic) -> list[tuple[int, str]]:
    """(partition, text) of all messages, sorted by text."""
    return sorted(((m.partition, m.text) for m in topic.read(limit=10_000)), key=lambda each: each[1])


def send(topic, numbers, producer="shop", *, at=None, **options):
    """Messages of these seqnos by a new writer, to a partition if it is given; which were duplicates."""
    with topic.writer(producer_id=producer, **options) as writer:
        for number in numbers:
            writer.write(str(number), seqno=number, partition=at)
        return [r.duplicate for r in writer.flush()]


# Groups.


def test_one_writer_numbers_each_of_its_groups_apart(topic):
    """S001-33, S001-45: a seqno belongs to a producer and a group; another group's is another message."""
    with topic.writer(producer_id="shop", group="own") as writer:
        writer.write("a7", group="a", seqno=7)
        writer.write("b7", group="b", seqno=7)
        writer.write("b3?", seqno=3)
        writer.write("a8", group="a", seqno=8)
        writer.write("own again", group="own", seqno=3)
        receipts = writer.flush()
        assert (writer.written, writer.skipped) == (4, 1)
        with pytest.raises(penstock.InvalidOption, match="seqno 6 after 7"):
            writer.write("b6", group="b", seqno=6)
        with pytest.raises(penstock.InvalidOption, match="seqno 2 after 3"):
            writer.write("own", group="own", seqno=2)
    assert len(receipts) == 5
    assert [text for _, text in everything(topic)] == ["a7", "a8", "b3?", "b7"]
    found = {m.text: (m.group, m.seqno) for m in topic.read()}
    assert found == {"a7": ("a", 7), "b7": ("b", 7), "b3?": ("own", 3), "a8": ("a", 8)}


def test_groups_of_one_writer_sent_again_write_nothing(topic):
    def sent():
        with topic.writer(producer_id="shop", linger=60) as writer:
            for number in range(30):
                writer.write(f"{number}", group=f"g{number % 4}", seqno=number // 4)
            writer.flush()
            return writer.written, writer.skipped

    assert sent() == (30, 0)
    assert sent() == (0, 30)


def test_one_seqno_for_two_keys_is_refused(topic):
    """S001-44: the second would count as a duplicate of the first, and be lost."""
    with topic.writer(producer_id="shop") as writer:
        writer.write("a", key="k0", seqno=7)
        with pytest.raises(penstock.InvalidOption, match="seqno 7 twice") as raised:
            writer.write("b", key="k1", seqno=7)
        assert "group" in raised.value.hint
        writer.write("a", key="k0", seqno=7)
        with pytest.raises(penstock.InvalidOption, match="seqno 8 twice"):
            writer.write_many(["c", "d"], keys=["k0", "k1"], seqnos=[8, 8])
        with pytest.raises(penstock.InvalidOption, match="seqno 7 twice"):
            writer.write_many(["c"], keys=["k1"], seqnos=[7])
        writer.write_many(["a", "c"], keys=["k0", "k1"], seqnos=[7, 8])
        writer.flush()
        assert (writer.written, writer.skipped) == (2, 2)


# Partitions that the caller chooses.


def test_a_resend_to_another_partition_is_a_duplicate(topic):
    """S001-04, S001-45."""
    assert send(topic, range(11), at=0) == [False] * 11
    assert send(topic, range(11), at=1) == [True] * 11
    assert send(topic, range(5, 13), at=2) == [True] * 6 + [False] * 2
    assert send(topic, range(13), at=1) == [True] * 13
    assert [partition for partition, _ in everything(topic)].count(2) == 2
    assert len(everything(topic)) == 13


def test_a_partition_that_was_not_reached_gets_what_others_numbered_higher(topic):
    """A crash between two partitions of one flush: what was not stored is, when it is sent again."""
    with topic.writer(producer_id="shop") as writer:
        writer.write("2", seqno=2, partition=0)
        writer.write("4", seqno=4, partition=0)
    with topic.writer(producer_id="shop", linger=60) as writer:
        for number in (1, 2, 3, 4, 5):
            writer.write(str(number), seqno=number, partition=number % 2 if number < 5 else 2)
        assert sorted(r.duplicate for r in writer.flush()) == [False] * 3 + [True] * 2
    assert everything(topic) == [(1, "1"), (0, "2"), (1, "3"), (0, "4"), (2, "5")]


def test_a_resend_elsewhere_is_found_in_sealed_and_repacked_segments(open_store, clock):
    store = open_store(clock=clock)
    topic = store.create_topic("orders", partitions=2, sync="os", segment_bytes=4096)
    for start in range(0, 200, 20):
        send(topic, range(start, start + 20, 2), at=0)
    topic.vacuum()
    assert set(send(topic, range(0, 200, 2), at=1)) == {True}
    assert send(topic, [200], at=1) == [False]


# Keys that go elsewhere since partitions were added.


@pytest.mark.parametrize(
    ("partitioner", "before", "after"), [("kafka", 2, 3), ("diskq", 2, 3), ("range", 3, 4), ("own", 2, 3)]
)
def test_a_key_that_moved_is_not_lost_behind_others_of_its_new_partition(store, partitioner, before, after):
    """S001-04: what a crash kept from one partition is stored when it is sent again, and only once.

    The key moves to a partition in which the producer has a higher seqno, of another key.
    """
    own = (lambda key, count: key[-1] % count) if partitioner == "own" else None
    choose = own or PARTITIONERS[partitioner]
    topic = store.create_topic(
        "grown", partitions=before, sync="os", partitioner="range" if own else partitioner
    )
    keys = [b"key-%d" % number for number in range(500)]
    moved, staying = next(
        (a, b) for a in keys for b in keys
        if choose(a, after) == choose(b, after) == choose(b, before) != choose(a, before)
    )  # fmt: skip

    def sent(*messages):
        with topic.writer(producer_id="shop", linger=60, partitioner=own) as writer:
            for key, seqno in messages:
                writer.write(f"{seqno}", key=key, seqno=seqno)
            writer.flush()
            return writer.written, writer.skipped

    assert sent((staying, 2), (staying, 4)) == (2, 0)
    topic.alter(partitions=after)
    everything_sent = [(moved, 1), (staying, 2), (moved, 3), (staying, 4), (moved, 5)]
    assert sent(*everything_sent) == (3, 2)
    assert sent(*everything_sent, (staying, 6)) == (1, 5)
    assert sorted(m.text for m in topic.read()) == ["1", "2", "3", "4", "5", "6"]
    assert [m.seqno for m in topic.read() if m.key == moved] == [1, 3, 5]


@pytest.mark.parametrize("grow", ["split", "alter"])
def test_a_message_sent_to_a_new_partition_by_its_number_is_not_lost_behind_what_that_inherited(store, grow):
    """S001-04: the new partition knows the highest seqno of the one it came from, not which are stored."""
    topic = store.create_topic("grown", sync="os", autopartitioning="paused")

    def sent(*seqnos, partition):
        with topic.writer(producer_id="shop", linger=60) as writer:
            for seqno in seqnos:
                writer.write(f"{seqno}", seqno=seqno, partition=partition)
            writer.flush()
            return writer.written, writer.skipped

    assert sent(2, 4, partition=0) == (2, 0)
    if grow == "split":
        topic.split(0)
    else:
        topic.alter(partitions=2)
    assert sent(1, 2, 3, 4, 5, partition=1) == (3, 2)
    assert sent(1, 2, 3, 4, 5, 6, partition=1) == (1, 5)
    assert sorted(m.text for m in topic.read()) == ["1", "2", "3", "4", "5", "6"]


# Idle weeks.


def test_a_producer_that_was_silent_for_weeks_comes_back_to_its_messages(open_store, clock):
    """S001-04, S001-35: the binding is forgotten, what was stored is not."""
    topic = open_store(clock=clock).create_topic("orders", partitions=3, sync="os", retention=None)
    send(topic, [1, 2], "other")
    assert send(topic, [1, 2, 3]) == [False] * 3
    [before] = {m.partition for m in topic.read() if m.producer_id == "shop"}
    clock.advance("15d")
    topic = open_store(clock=clock).topic("orders")
    send(topic, [1], "third")
    assert send(topic, [2, 3, 4]) == [True, True, False]
    assert {m.partition for m in topic.read() if m.producer_id == "shop"} == {before}


def test_a_swept_binding_is_made_where_the_facts_are(open_store, clock):
    """S001-35, with messages of the producer under keys in other partitions."""
    store = open_store(clock=clock)
    topic = store.create_topic("orders", partitions=3, sync="os", retention=None)
    send(topic, [1, 2, 3])
    with topic.writer(producer_id="shop") as writer:
        for number in range(10, 40):
            writer.write(str(number), key=f"key-{number}", seqno=number)
    clock.advance("15d")
    database_of(store).quick("DELETE FROM bindings", ())
    topic = open_store(clock=clock).topic("orders")
    assert send(topic, [1, 2, 3]) == [True] * 3
    assert len(topic.read()) == 33


def test_a_binding_lasts_as_long_as_its_producer_writes(open_store, clock):
    """S001-35: the silence of the producer counts, not that of one of its groups."""
    store = open_store(clock=clock)
    topic = store.create_topic("orders", partitions=3, sync="os")
    bindings = partitions_of(topic).topics.bindings(partitions_of(topic).record.id)

    def bound(group):
        return bindings.partition("shop", group, range(3), clock.now_ns(), lambda earlier: None)

    first, second = bound("a"), bound("b")
    for _ in range(4):
        clock.advance("10d")
        assert bound("b") == second
    assert bound("a") == first
    clock.advance("14d")
    assert bound("a") != first or bound("b") != second  # in turn


def test_bindings_of_silent_producers_are_swept_and_others_stay(open_store, clock):
    store = open_store(clock=clock)
    topic = store.create_topic("orders", partitions=3, sync="os")
    bindings = partitions_of(topic).topics.bindings(partitions_of(topic).record.id)
    for group in ("a", "b"):
        bindings.partition("alive", group, range(3), clock.now_ns(), lambda earlier: None)
        bindings.partition("silent", group, range(3), clock.now_ns(), lambda earlier: None)
    clock.advance("10d")
    bindings.partition("alive", "b", range(3), clock.now_ns(), lambda earlier: None)
    clock.advance("5d")
    bindings.sweep(clock.now_ns())
    rows = database_of(store).rows("SELECT producer, message_group FROM bindings ORDER BY 1, 2")
    assert rows == [("alive", "a"), ("alive", "b")]


def database_of(store):
    inner = getattr(store, "_target", store)
    return getattr(inner, "blocking", inner)._database


# FIFO per source.


def test_a_producer_keeps_its_order_over_all_keys(topic):
    """S001-05: with route="producer" all of a source's messages go to one partition, whatever their keys."""
    for producer in ("north", "south"):
        with topic.writer(producer_id=producer, route="producer") as writer:
            for number in range(20):
                writer.write(f"{producer} {number}", key=f"key-{number % 7}", seqno=number)
            writer.write_many(["x", "y"], keys=["p", "q"], seqnos=[20, 21])
    for producer in ("north", "south"):
        messages = [m for m in topic.read() if m.producer_id == producer]
        assert len({m.partition for m in messages}) == 1
        assert [m.seqno for m in messages] == list(range(22))
        assert messages[3].key == b"key-3"
    with topic.writer(producer_id="north", route="producer") as writer:
        writer.write("again", key="p", seqno=20)
        assert writer.flush()[0].duplicate


def test_route_needs_a_producer_and_no_partitioner(topic):
    with pytest.raises(penstock.InvalidOption, match="route"):
        topic.writer(route="producer")
    with pytest.raises(penstock.InvalidOption, match="partitioner"):
        topic.writer(producer_id="p", route="producer", partitioner=lambda key, count: 0)
    with pytest.raises(penstock.InvalidOption, match="route"):
        topic.writer(producer_id="p", route="random")
