"""Readers of one consumer share its partitions; what one loses, another reads (S001-37, B001-14, B001-15)."""

import gc
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import penstock
from tests.kit.consumers import membership_module
from tests.kit.patience import PATIENCE_S

#: Generous: the promise is 2 s.
SOON_S = PATIENCE_S


@pytest.fixture
def topic(store):
    return store.create_topic("orders", partitions=4, sync="os")


def fill(topic, each=3):
    for partition in range(topic.options.partitions):
        topic.write_many([b"%d" % number for number in range(each)], partition=partition)


def numbers(reader):
    return [partition for _, partition in reader.assigned]


def settle(*readers, shares):
    """Let readers poll until each has as many partitions as it should."""
    deadline = time.monotonic() + SOON_S
    while [len(reader.assigned) for reader in readers] != shares:
        assert time.monotonic() < deadline, [reader.assigned for reader in readers]
        for reader in readers:
            assert reader.receive(timeout=0.01) is None
    held = [key for reader in readers for key in reader.assigned]
    assert len(held) == len(set(held)), "never two on one partition"


def until(reader, wanted):
    """Receive until the reader has `wanted` partitions; nothing may come meanwhile."""
    deadline = time.monotonic() + SOON_S
    while len(reader.assigned) != wanted:
        assert time.monotonic() < deadline, reader.assigned
        assert reader.receive(timeout=0.01) is None


def positions(topic, name="c"):
    return {c.consumer: c.positions for c in topic.consumers()}[name]


def test_a_reader_that_is_alone_has_all_partitions_at_once(topic):
    with topic.reader(consumer="c") as reader:
        assert numbers(reader) == [0, 1, 2, 3]


def test_readers_share_the_partitions_and_take_over_when_one_leaves(topic):
    """⌊P/M⌋ or ⌈P/M⌉ each, none twice."""
    with topic.reader(consumer="c") as first:
        with topic.reader(consumer="c") as second, topic.reader(consumer="c") as third:
            settle(first, second, third, shares=[2, 1, 1])
        settle(first, shares=[4])


def test_a_reader_whose_user_is_busy_lets_the_others_have_their_share(topic):
    """It does not receive, and its partitions go all the same, but for the one it has a message of."""
    fill(topic)
    with topic.reader(consumer="c") as busy:
        message = busy.receive()
        with topic.reader(consumer="c") as other:
            deadline = time.monotonic() + SOON_S
            came = set()
            while len(came) < 2 * 3:
                assert time.monotonic() < deadline
                if (got := other.receive(timeout=0.1)) is not None:
                    came.add((got.partition, got.offset))
            assert message.partition not in {partition for partition, _ in came}
            busy.commit(message)
            assert positions(topic)[message.partition] == 1
            assert message.partition in numbers(busy)


def test_what_was_only_fetched_goes_to_the_member_that_gets_the_partition(store):
    """A hand-over waits for what the user has, not for what the reader fetched ahead."""
    topic = store.create_topic("single", partitions=1, sync="os")
    topic.write_many([b"%d" % number for number in range(10)])
    with topic.reader(consumer="c", handover="1h") as first:
        first.commit(first.receive())
        first.close()
        with topic.reader(consumer="c", handover="1h") as second:
            assert second.receive(timeout=SOON_S).offset == 1


def test_a_joining_member_gets_its_share_once_what_was_delivered_is_committed(topic):
    fill(topic)
    with topic.reader(consumer="c", handover="1h") as first:
        batches = [first.receive_batch() for _ in range(4)]
        with topic.reader(consumer="c", handover="1h") as second:
            for _ in range(5):
                assert second.receive(timeout=0.1) is None
                assert first.receive(timeout=0) is None
            assert second.assigned == []
            assert len(first.assigned) == 2, "two are on their way"
            for batch in batches:
                first.commit(batch)
            settle(first, second, shares=[2, 2])
            topic.write_many([b"more"] * 8, keys=[b"%d" % number for number in range(8)])
        assert positions(topic) == dict.fromkeys(range(4), 3)


def test_a_hand_over_that_takes_too_long_happens_all_the_same(topic):
    """What was not committed comes again at the new member; the old one hears of it when it commits."""
    fill(topic)
    with topic.reader(consumer="c", handover="0.2s") as first:
        batches = [first.receive_batch() for _ in range(4)]
        with topic.reader(consumer="c") as second:
            again = []
            deadline = time.monotonic() + SOON_S
            while len(again) < 2:
                assert time.monotonic() < deadline
                again += [batch] if (batch := second.receive_batch(timeout=0.1)) else []
                first.receive(timeout=0)
            lost = {batch[0].partition for batch in again}
            assert lost == set(numbers(second))
            for batch in batches:
                if batch[0].partition in lost:
                    with pytest.raises(penstock.PartitionLost):
                        first.commit(batch)
                else:
                    first.commit(batch)
            for batch in again:
                second.commit(batch)
    assert positions(topic) == dict.fromkeys(range(4), 3)


def test_a_closed_reader_frees_its_partitions_at_once(topic):
    fill(topic)
    first = topic.reader(consumer="c")
    first.receive()
    first.close()
    with topic.reader(consumer="c") as second:
        assert numbers(second) == [0, 1, 2, 3]


def test_a_member_more_than_there_are_partitions_waits_in_reserve(store):
    topic = store.create_topic("single", sync="os")
    with topic.reader(consumer="c") as first, topic.reader(consumer="c") as second:
        settle(first, second, shares=[1, 0])
        first.close()
        until(second, 1)


def test_without_follow_a_reader_with_nothing_to_read_ends(store):
    """Another has the only partition, and keeps it."""
    topic = store.create_topic("single", sync="os")
    fill(topic)
    with topic.reader(consumer="c") as first:
        first.receive()
        with topic.reader(consumer="c", follow=False) as second:
            assert second.receive() is None


def test_without_follow_a_reader_waits_for_its_share(topic):
    fill(topic)
    with topic.reader(consumer="c"), topic.reader(consumer="c", follow=False) as second:
        came = [message.partition for message in second]
    assert len(came) == 6
    assert len(set(came)) == 2


def test_nothing_is_given_to_a_member_that_is_busy(topic, monkeypatch):
    """It would lie idle: what a member took over quota it keeps until the other asks for its share."""
    monkeypatch.setattr(membership_module, "FREE_TOO_LONG_S", 0.0)
    monkeypatch.setattr(membership_module, "_WANTED_S", 0.3)
    with topic.reader(consumer="c") as first, topic.reader(consumer="c") as busy:
        settle(first, busy, shares=[2, 2])
        topic.kick_consumer("c")
        until(first, 4)
        time.sleep(0.4)
        for _ in range(30):
            assert first.receive(timeout=0.05) is None
            assert len(first.assigned) == 4
        settle(first, busy, shares=[2, 2])


# Explicit partitions (B001-17).


def test_chosen_partitions_are_taken_for_good_and_the_others_are_shared(topic):
    with topic.reader(consumer="c", partitions=[1]) as fixed, topic.reader(consumer="c") as first:
        assert numbers(fixed) == [1]
        assert numbers(first) == [0, 2, 3]
        with topic.reader(consumer="c") as second:
            settle(first, second, shares=[2, 1])
            assert numbers(fixed) == [1]


def test_a_chosen_partition_that_another_reads_is_refused_and_names_who(topic):
    with (
        topic.reader(consumer="c", partitions=[0, 1]),
        pytest.raises(penstock.PartitionLost, match=rf"partition 1 .*process {os.getpid()}"),
    ):
        topic.reader(consumer="c", partitions=[1, 2])
    with topic.reader(consumer="c", partitions=[1, 2]) as reader:
        assert numbers(reader) == [1, 2]


# Losing.


def test_a_kicked_reader_cannot_commit_what_it_had_and_joins_again(topic):
    fill(topic)
    with topic.reader(consumer="c") as reader:
        batch = reader.receive_batch()
        assert topic.kick_consumer("c") == [os.getpid()]
        with pytest.raises(penstock.PartitionLost):
            reader.commit(batch)
        again = reader.receive_batch(timeout=SOON_S)
        assert numbers(reader) == [0, 1, 2, 3], "it joined again"
        reader.commit(again)
    assert sorted(positions(topic).values()) == [0, 0, 0, 3]


def test_what_was_fetched_before_a_kick_is_not_delivered_after_it(topic):
    """The other member has it by then."""
    fill(topic, each=50)
    with topic.reader(consumer="c", handover="1h") as first:
        fetched = first.receive()
        topic.kick_consumer("c", os.getpid())
        with topic.reader(consumer="c", handover="1h") as second:
            kept = second.receive()
            time.sleep(0.2)
            came = {first.receive(timeout=SOON_S).partition for _ in range(20)}
            assert kept.partition == fetched.partition
            assert kept.partition not in came


def test_kicking_a_pid_that_is_not_there_does_nothing(topic):
    with topic.reader(consumer="c") as reader:
        assert topic.kick_consumer("c", 2**22 + 1) == []
        assert topic.consumers()[0].members[0].kicked is False
        assert numbers(reader) == [0, 1, 2, 3]
    assert topic.kick_consumer("c") == []
    with pytest.raises(penstock.UnknownConsumer):
        topic.kick_consumer("nobody")


def test_after_a_lost_partition_a_reader_goes_on_with_the_others(topic):
    """PartitionLost is raised once, for what was delivered before."""
    fill(topic)
    with topic.reader(consumer="c") as reader:
        batches = {(batch := reader.receive_batch())[0].partition: batch for _ in range(4)}
        assert topic.seek_consumer("c", {2: 0}) == {2: 0}
        with pytest.raises(penstock.PartitionLost):
            reader.commit(batches[2])
        for partition in (0, 1, 3):
            reader.commit(batches[partition])
        again = reader.receive_batch(timeout=SOON_S)
        assert again[0].partition == 2
        reader.commit(again)
    assert positions(topic) == dict.fromkeys(range(4), 3)


def test_a_reader_at_the_end_goes_on_where_its_consumer_is_moved(topic):
    """B001-16: a commit from outside; it had nothing that could be lost."""
    fill(topic)
    with topic.reader(consumer="c") as reader:
        for _ in range(4):
            reader.commit(reader.receive_batch())
        topic.seek_consumer("c", {0: 1})
        message = reader.receive(timeout=SOON_S)
        assert (message.partition, message.offset) == (0, 1)
        reader.commit(message)


def test_a_message_that_was_done_when_its_partition_went_is_still_done(topic):
    fill(topic)
    with topic.reader(consumer="c") as first:
        batches = [first.receive_batch() for _ in range(4)]
        for batch in batches:
            first.commit(batch)
        with topic.reader(consumer="c") as second:
            settle(first, second, shares=[2, 2])
            for batch in batches:
                first.commit(batch)
    assert positions(topic) == dict.fromkeys(range(4), 3)


def test_a_message_of_another_reader_cannot_be_committed(topic):
    fill(topic)
    with topic.reader(consumer="c") as first, topic.reader(consumer="c") as second:
        deadline = time.monotonic() + SOON_S
        theirs = None
        while theirs is None:
            assert time.monotonic() < deadline
            theirs = second.receive(timeout=0.1)
        with pytest.raises(penstock.InvalidOption):
            first.commit(theirs)


def test_a_dropped_consumer_is_told_to_its_readers(topic):
    fill(topic)
    with topic.reader(consumer="c") as reader:
        message = reader.receive()
        topic.drop_consumer("c")
        with pytest.raises(penstock.UnknownConsumer, match="dropped"):
            reader.commit(message)
        with pytest.raises(penstock.UnknownConsumer):
            list(reader)


def test_a_consumer_that_was_dropped_and_made_anew_is_another_one(topic):
    """The old reader can commit nothing in its name."""
    fill(topic)
    with topic.reader(consumer="c") as old:
        batch = old.receive_batch()
        topic.drop_consumer("c")
        with topic.reader(consumer="c") as new:
            fresh = new.receive_batch(timeout=SOON_S)
            assert fresh[0].offset == 0
            with pytest.raises(penstock.PartitionLost):
                old.commit(batch)
            new.commit(fresh)
    assert sorted(positions(topic).values()) == [0, 0, 0, 3]


# Order, and partitions that come later.


def test_all_messages_of_one_key_reach_one_member_at_a_time(topic):
    """S001-37: account balances need no coordination."""
    keys = [b"account-%d" % number for number in range(40)]
    for number in range(5):
        topic.write_many([b"%d" % number] * len(keys), keys=keys)
    seen, owners = {key: [] for key in keys}, {key: set() for key in keys}
    with topic.reader(consumer="c") as first, topic.reader(consumer="c") as second:
        deadline = time.monotonic() + PATIENCE_S
        while sum(map(len, seen.values())) < 5 * len(keys):
            assert time.monotonic() < deadline
            for name, reader in (("first", first), ("second", second)):
                batch = reader.receive_batch(max_messages=7, timeout=0.05)
                for message in batch:
                    seen[message.key].append(int(message.value))
                    owners[message.key].add(name)
                reader.commit(batch)
    assert seen == {key: [0, 1, 2, 3, 4] for key in keys}
    assert set().union(*owners.values()) == {"first", "second"}


def test_a_new_partition_opens_when_another_member_committed_what_came_before(store):
    """Its earlier partitions are read by another: the stored positions tell.

    Who has delivered what came before goes on at once; nobody passes what another has not committed.
    """
    topic = store.create_topic("orders", partitions=2, sync="os")
    with topic.reader(consumer="c") as first, topic.reader(consumer="c") as second:
        settle(first, second, shares=[1, 1])
        topic.write(b"before", partition=0)
        topic.write(b"before", partition=1)
        early = [first.receive(timeout=SOON_S), second.receive(timeout=SOON_S)]
        assert [message.partition for message in early] == [0, 1]
        topic.alter(partitions=4)
        topic.write(b"after", partition=2)
        topic.write(b"after", partition=3)
        time.sleep(1.1)
        came = {reader: reader.receive(timeout=0.2) for reader in (first, second)}
        assert came[first] is None or came[first].partition == 2
        assert came[second] is None or came[second].partition == 3
        second.commit(early[1])
        first.commit(early[0])
        found = [message for message in came.values() if message is not None]
        deadline = time.monotonic() + SOON_S
        while len(found) < 2:
            assert time.monotonic() < deadline
            found += [m for reader in (first, second) if (m := reader.receive(timeout=0.1)) is not None]
        assert sorted(message.partition for message in found) == [2, 3]


# Watching.


def test_members_are_told_with_their_pids_and_partitions(topic):
    """B001-19."""
    with topic.reader(consumer="c") as first, topic.reader(consumer="c") as second:
        settle(first, second, shares=[2, 2])
        (consumer,) = topic.consumers()
        assert [member.pid for member in consumer.members] == [os.getpid()] * 2
        assert sorted(p for member in consumer.members for p in member.partitions) == [0, 1, 2, 3]
        assert not any(member.stopped or member.kicked or member.fixed for member in consumer.members)
    assert topic.consumers()[0].members == ()


def test_a_store_opened_for_reading_sees_members_and_disturbs_none(topic, open_store):
    with topic.reader(consumer="c") as reader:
        elsewhere = open_store(read_only=True).topic("orders")
        (member,) = elsewhere.consumers()[0].members
        assert member.partitions == (0, 1, 2, 3)
        with pytest.raises(penstock.ReadOnly):
            elsewhere.kick_consumer("c")
        assert numbers(reader) == [0, 1, 2, 3]


# Ending (U06).


def test_closing_wakes_a_reader_that_waits(topic):
    """U06: close returns at once, and who waits in another thread gets `Closed`."""
    with ThreadPoolExecutor(1) as pool, topic.reader(consumer="c") as reader:
        waiting = pool.submit(reader.receive)
        time.sleep(0.1)
        began = time.monotonic()
        reader.close()
        with pytest.raises(penstock.Closed):
            waiting.result(SOON_S)
        assert time.monotonic() - began < SOON_S


def test_a_dropped_topic_ends_readers_that_wait(store, topic):
    with ThreadPoolExecutor(1) as pool, topic.reader(consumer="c") as reader:
        waiting = pool.submit(reader.receive)
        time.sleep(0.1)
        store.drop_topic("orders")
        with pytest.raises(penstock.TopicReplaced):
            waiting.result(SOON_S)


def test_a_closed_store_frees_partitions_and_ends_readers_that_wait(store, topic, open_store):
    """The reader itself was never closed."""
    elsewhere = open_store().topic("orders")
    with ThreadPoolExecutor(1) as pool:
        reader = topic.reader(consumer="c")
        waiting = pool.submit(reader.receive)
        time.sleep(0.1)
        store.close()
        with pytest.raises(penstock.Closed):
            waiting.result(SOON_S)
        with elsewhere.reader(consumer="c") as other:
            assert numbers(other) == [0, 1, 2, 3]
        reader.close()


def test_a_forgotten_reader_frees_its_partitions(topic):
    reader = topic.reader(consumer="c")
    assert numbers(reader) == [0, 1, 2, 3]
    del reader
    gc.collect()
    with topic.reader(consumer="c") as second:
        until(second, 4)
