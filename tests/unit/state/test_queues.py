"""Who has which messages of a queue."""

import pytest

from penstock.files import Files
from penstock.state.consumers import ConsumerOptions, Consumers
from penstock.state.database import Database
from penstock.state.queues import Lease, QueuePlace

ONE, TWO = 1, 2
PLACE = QueuePlace("c", 7, 0)


@pytest.fixture
def consumers(tmp_path):
    database = Database(str(tmp_path / "state.db"), Files(), create=True, read_only=False)
    consumers = Consumers(database)
    consumers.add("c", 7, ConsumerOptions(), {0: 5}, 0)
    yield consumers
    database.close()


@pytest.fixture
def queues(consumers):
    consumers.queues.begin(PLACE)
    return consumers.queues


def position(consumers):
    return consumers.positions(7, "c")[0].position


def test_a_queue_begins_where_its_consumer_stands(queues):
    assert queues.next(PLACE) == 5
    assert queues.is_queue("c", 7)
    assert not queues.is_queue("c", 8)
    assert queues.next(QueuePlace("nobody", 7, 0)) is None


def test_of_two_that_take_at_once_one_gets_it(queues):
    assert queues.take_new(PLACE, [(5, 9)], 9, 5, ONE, 100)
    assert not queues.take_new(PLACE, [(5, 9)], 9, 5, TWO, 100)
    assert queues.next(PLACE) == 9


def test_a_range_is_settled_in_parts_and_holes_belong_to_nobody(consumers, queues):
    queues.take_new(PLACE, [(5, 8), (10, 15)], 15, 5, ONE, 100)
    assert queues.done(PLACE, 11, 13, ONE) == 2
    assert queues.done(PLACE, 11, 13, ONE) == 0
    assert queues.done(PLACE, 5, 8, TWO) == 0
    assert position(consumers) == 5
    assert queues.done(PLACE, 5, 11, ONE) == 4
    assert position(consumers) == 13
    assert queues.take_free(PLACE, 10, TWO, 100, 200) == [Lease(13, 15, 2, None, True)]
    assert queues.done(PLACE, 13, 15, TWO) == 2
    assert position(consumers) == 15


def test_no_more_is_taken_back_than_asked_for(queues):
    queues.take_new(PLACE, [(5, 15)], 15, 5, ONE, 100)
    assert queues.take_free(PLACE, 3, TWO, 99, 200) == []
    assert queues.take_free(PLACE, 3, TWO, 100, 200) == [Lease(5, 8, 2, None, True)]
    assert queues.has(PLACE, 7, TWO)
    assert queues.has(PLACE, 8, ONE)
    assert queues.next_free_ms(PLACE) == 100


def test_what_was_not_delivered_is_given_back_uncounted(queues):
    queues.take_new(PLACE, [(5, 8)], 8, 5, ONE, 100)
    queues.give_back(PLACE, ONE, undelivered=[6])
    found = {lease.first: lease for lease in queues.take_free(PLACE, 10, TWO, 0, 200)}
    assert {first: lease.attempts for first, lease in found.items()} == {5: 2, 6: 1, 7: 2}
    assert not any(lease.ran_out for lease in found.values())


def test_one_that_falls_due_while_its_retry_is_not_done_is_not_lost(consumers, queues):
    """It is stored, it is due at once, and only then its reader says that the first one is done."""
    queues.take_new(PLACE, [(5, 8)], 8, 5, ONE, 100)
    queues.add_due(PLACE, [(5, 1, b"five")], durable=False)
    assert queues.done(PLACE, 5, 6, ONE) == 0
    assert position(consumers) == 6, "its message waits elsewhere"
    assert queues.take_free(PLACE, 10, TWO, 50, 200) == [Lease(5, 6, 2, b"five")]
    assert queues.done(PLACE, 6, 8, ONE) == 2
    queues.add_due(PLACE, [(5, 2, b"again")], durable=False)
    assert queues.done(PLACE, 5, 6, TWO) == 0
    assert queues.take_free(PLACE, 10, ONE, 50, 200) == [Lease(5, 6, 3, b"again")]


def test_a_second_record_of_what_is_out_changes_nothing(queues):
    queues.take_new(PLACE, [(5, 6)], 6, 5, ONE, 100)
    queues.add_due(PLACE, [(5, 1, b"x")], durable=False)
    queues.take_free(PLACE, 10, TWO, 50, 200)
    queues.add_due(PLACE, [(5, 1, b"x")], durable=False)
    assert queues.has(PLACE, 5, TWO)
    assert queues.done(PLACE, 5, 6, TWO) == 1
    assert queues.take_free(PLACE, 10, ONE, 10_000, 0) == []


def test_a_reader_that_is_gone_has_nothing(queues):
    queues.take_new(PLACE, [(5, 6)], 6, 5, ONE, 10_000)
    assert queues.members(PLACE) == {ONE}
    queues.end(PLACE, ONE)
    assert queues.take_free(PLACE, 10, TWO, 0, 200) == [Lease(5, 6, 2, None, True, died=True)]


def leases(queues):
    rows = queues._database.rows("SELECT first, stop FROM leases ORDER BY first")
    return [tuple(row) for row in rows]


def test_what_falls_due_in_the_middle_of_a_lease_is_cut_out_of_it(queues):
    """Leases never overlap, or the next one to settle meets two that begin alike, for ever."""
    queues.take_new(PLACE, [(5, 105)], 105, 5, ONE, 10_000)
    queues.add_due(PLACE, [(55, 1, b"data")], durable=False)
    assert leases(queues) == [(5, 55), (55, 56), (56, 105)]
    queues.end(PLACE, ONE)
    taken = []
    while found := queues.take_free(PLACE, 10, TWO, 0, 200):
        taken += [offset for each in found for offset in range(each.first, each.stop)]
        for each in found:
            assert queues.done(PLACE, each.first, each.stop, TWO) == each.stop - each.first
    assert sorted(taken) == list(range(5, 105))
    assert leases(queues) == []


def test_what_waits_is_delivered_by_the_log_when_the_consumer_was_moved_before_it(consumers, queues):
    queues.take_new(PLACE, [(5, 15)], 15, 5, ONE, 10_000)
    queues.add_due(PLACE, [(8, 1, b"data"), (12, 1, b"data")], durable=False)
    consumers.seek("c", 7, {0: 10}, 0)
    assert leases(queues) == [(8, 9)]
    queues.add_due(PLACE, [(13, 1, b"data")], durable=False)
    assert queues.take_new(PLACE, [(10, 15)], 15, 10, ONE, 10_000)
    assert leases(queues) == [(8, 9), (10, 15)]
    assert position(consumers) == 10


def test_leases_that_overlap_since_an_earlier_version_are_cut_apart(queues):
    queues.take_new(PLACE, [(5, 15)], 15, 5, ONE, 10_000)
    row = (*PLACE, 8, 9, 0, 0, 2, b"data")
    queues._database.quick("INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    queues.begin(PLACE)
    assert leases(queues) == [(5, 8), (8, 9)]


def test_what_a_reader_had_that_died_comes_one_by_one(queues):
    queues.take_new(PLACE, [(5, 8)], 8, 5, ONE, 10_000)
    queues.end(PLACE, ONE)
    for offset in (5, 6, 7):
        assert queues.take_free(PLACE, 10, TWO, 0, 200) == [
            Lease(offset, offset + 1, 2, None, True, died=True)
        ]
