"""Writers held to `partition_write_speed` (S001-13, S001-18), all together, by time that the test moves."""

import pytest

import penstock

KIB = 1024
SECOND = 1_000_000_000


@pytest.fixture
def limited(store):
    return store.create_topic(
        "orders", partition_write_speed="100KiB", partition_write_burst="10KiB", write_quota=True
    )


def test_without_a_quota_nobody_waits(store, clock):
    topic = store.create_topic("t", partition_write_speed="1KiB")
    before = clock.monotonic()
    assert topic.write(b"x" * 100 * KIB).waited == 0
    assert clock.monotonic() == before


def test_writes_take_the_time_that_the_speed_allows(limited, clock):
    before = clock.monotonic()
    receipts = [limited.write(b"x" * 10 * KIB) for _ in range(50)]
    took = clock.monotonic() - before
    assert took == pytest.approx((500 - 10) / 100, rel=0.02)
    assert receipts[0].waited < 0.01
    assert sum(receipt.waited for receipt in receipts) == pytest.approx(took)
    (stats,) = limited.stats().partitions
    assert stats.waited == pytest.approx(took)


def test_what_was_not_used_is_a_burst_and_no_more(limited, clock):
    limited.write(b"x" * 10 * KIB)
    clock.advance(100)
    assert limited.write(b"x" * 9 * KIB).waited == 0
    assert limited.write(b"x" * 9 * KIB).waited == pytest.approx(0.085, abs=0.02)


def test_each_partition_has_its_own(store, clock):
    topic = store.create_topic("t", partitions=2, partition_write_speed="10KiB", write_quota=True)
    topic.write(b"x" * 9 * KIB, partition=0)
    assert topic.write(b"x" * 9 * KIB, partition=1).waited == 0
    assert topic.write(b"x" * 9 * KIB, partition=0).waited > 0.5


def test_two_stores_share_it(open_store, limited, clock):
    """As two processes do."""
    other = open_store(clock=clock).topic("orders")
    before = clock.monotonic()
    for _ in range(10):
        limited.write(b"x" * 10 * KIB)
        other.write(b"x" * 10 * KIB)
    assert clock.monotonic() - before == pytest.approx((200 - 10) / 100, rel=0.02)


def test_a_writer_waits_and_says_how_long(limited, clock):
    with limited.writer(linger="1h") as writer:
        for _ in range(20):
            writer.write(b"x" * 10 * KIB)
            receipts = writer.flush()
        assert writer.waited == pytest.approx(1.9, rel=0.05)
        assert receipts[0].waited == pytest.approx(0.1, rel=0.1)
    assert limited.stats().messages == 20


def test_a_producers_messages_wait_too(limited):
    with limited.writer(producer_id="p", linger="1h") as writer:
        writer.write_many([b"x" * 10 * KIB] * 10, seqnos=list(range(10)))
        assert writer.flush()[0].waited == 0
        writer.write_many([b"x"] * 3, seqnos=[9, 10, 11])
        assert writer.flush()[1].waited == pytest.approx(0.9, rel=0.05)
        assert writer.waited == pytest.approx(0.9, rel=0.05)


def test_past_the_timeout_the_error_names_the_option_and_nothing_is_lost(limited, clock):
    with limited.writer(timeout="500ms", linger="1h") as writer:
        writer.write(b"x" * 100 * KIB)
        writer.flush()
        writer.write(b"y")
        with pytest.raises(penstock.WriteTimeout, match="partition_write_speed") as refused:
            writer.flush()
        assert refused.value.retryable
        assert limited.stats().messages == 1
        clock.advance(1)
        writer.flush()
        assert limited.stats().messages == 2


def test_a_transaction_is_charged_and_those_behind_it_wait(store, limited, clock):
    before = clock.monotonic()
    with store.transaction() as transaction:
        transaction.write("orders", b"x" * 100 * KIB)
    assert clock.monotonic() == before
    assert limited.write(b"x").waited == pytest.approx(0.9, rel=0.05)


def test_the_quota_is_altered_for_writers_that_are_open(open_store, limited, clock):
    other = open_store(clock=clock).topic("orders")
    other.write(b"x")
    limited.alter(write_quota=False)
    limited.write_many([b"x" * 10 * KIB] * 50)
    assert other.write(b"x" * 100 * KIB).waited == 0
    limited.alter(write_quota=True, partition_write_speed="1KiB", partition_write_burst=None)
    other.write(b"x" * KIB)
    assert other.write(b"x" * KIB).waited == pytest.approx(1, abs=0.2)


def test_after_a_roll_it_goes_on(store, clock):
    topic = store.create_topic("t", segment_bytes="64KiB", partition_write_speed="100KiB", write_quota=True)
    before = clock.monotonic()
    for _ in range(40):
        topic.write(b"x" * 10 * KIB)
    assert clock.monotonic() - before == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize(
    "options",
    [
        {"partition_write_speed": 0}, {"partition_write_speed": -1}, {"partition_write_speed": "fast"},
        {"partition_write_speed": None}, {"partition_write_burst": 0}, {"write_quota": 1},
        {"write_quota": "on"},
    ],
)  # fmt: skip
def test_a_quota_that_makes_no_sense_is_refused(store, options):
    with pytest.raises(penstock.UsageError):
        store.create_topic("t", **options)


def test_partitions_say_how_fast_they_are_written_to(limited, store, clock):
    for _ in range(300):
        limited.write(b"x" * 10 * KIB)
    (part,) = limited.partitions()
    assert part.write_rate == pytest.approx(100 * KIB, rel=0.1)
    assert store.create_topic("free").partitions()[0].write_rate is None
