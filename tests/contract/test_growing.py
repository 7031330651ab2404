"""Partitions that split themselves where they are written to too fast (S001-19, S001-25, S001-26)."""

import pytest

from tests.kit.patience import wait_until
from tests.kit.trees import HASHES, PartitionRow, split_point

WINDOW_S, SPEED = 100, 1024
KEYS = [f"key-{number}" for number in range(64)]


def grow(store, name="orders", **options):
    wanted = {"partition_write_speed": SPEED, "stabilization_window": f"{WINDOW_S}s", "sync": "os"}
    return store.create_topic(name, **{"autopartitioning": "up", **wanted, **options})


def write_fast(topic, clock, *, tenths=12, keys=KEYS, idle=()):
    """Write at more than the speed for so many tenths of the window, but in those of `idle`."""
    for tenth in range(tenths):
        if tenth not in idle:
            topic.write_many([b"." * 400] * len(keys), keys=keys)
        clock.advance(WINDOW_S / 10)
    topic.write_many([b"last"] * len(keys), keys=keys)


def active(topic):
    return [each.partition for each in topic.partitions() if each.state == "active"]


def test_a_partition_that_is_written_to_too_fast_is_split(store, clock):
    """S001-26: at the median of what was written last, so that each child gets half of it."""
    topic = grow(store)
    write_fast(topic, clock)
    wait_until(lambda: active(topic) == [1, 2], "it was not split")
    before = [each.messages for each in topic.partitions()[1:]]
    topic.write_many([b"after"] * len(KEYS), keys=KEYS)
    got = [each.messages - was for each, was in zip(topic.partitions()[1:], before, strict=True)]
    assert sum(got) == len(KEYS)
    assert abs(got[0] - got[1]) <= 8, got


@pytest.mark.parametrize(
    "options", [{"autopartitioning": "paused"}, {"autopartitioning": "disabled"}, {"max_partitions": 1}]
)
def test_it_is_not_split_where_it_must_not_be(store, clock, options):
    """S001-24, S001-28."""
    topic = grow(store, **options)
    write_fast(topic, clock, tenths=30)
    what_was_noticed_is_done(store, clock)
    assert active(topic) == [0]


def test_a_burst_does_not_split(store, clock):
    topic = grow(store)
    for _ in range(3):
        topic.write_many([b"." * 4000] * 100, keys=(KEYS * 2)[:100])
        clock.advance(WINDOW_S / 10)
    clock.advance(WINDOW_S * 0.7)
    topic.write(b"last", key="a")
    what_was_noticed_is_done(store, clock)
    assert active(topic) == [0]


def test_one_idle_tenth_is_forgiven(store, clock):
    topic = grow(store)
    write_fast(topic, clock, tenths=14, idle={6})
    wait_until(lambda: len(active(topic)) > 1, "it was not split")


def test_a_mode_that_another_process_changed_counts_with_the_next_append(store, open_store, clock):
    """S001-29."""
    topic = grow(store, autopartitioning="paused")
    other = open_store(clock=clock).topic("orders")
    other.write(b"first", key="a")
    topic.alter(autopartitioning="up")
    write_fast(other, clock)
    wait_until(lambda: len(active(topic)) > 1, "the other process did not hear of it")


def test_one_key_alone_is_not_split(store, clock):
    topic = grow(store)
    write_fast(topic, clock, keys=["one"] * 64, tenths=20)
    what_was_noticed_is_done(store, clock)
    assert active(topic) == [0]


def what_was_noticed_is_done(store, clock):
    """One thread splits, in the order of what was noticed: what is noticed now is done last."""
    other = grow(store, "other")
    write_fast(other, clock)
    wait_until(lambda: len(active(other)) > 1, "nothing was split")


# The point at which it is divided.


ROW = PartitionRow(0, "active", 100, HASHES)


@pytest.mark.parametrize(
    ("hashes", "point"),
    [
        ([], 100 + (HASHES - 100) // 2),
        ([200, 300], 300),
        ([200, 200, 300, 400], 300),
        ([200, 300, 300, 300], 300),
        ([200] * 9 + [300], None),
        ([200] * 89 + [300] * 11, 300),
        ([5, 6, 7], 100 + (HASHES - 100) // 2),
        ([200], None),
    ],
)
def test_half_of_what_came_last_goes_to_each_side(hashes, point):
    assert split_point(hashes, ROW) == point
