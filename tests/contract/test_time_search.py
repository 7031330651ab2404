"""Seeking by time: the first message written at or after a moment, in every position of the log."""

from datetime import UTC, datetime, timedelta

import pytest

SECOND = 1_000_000_000


def found(topic, clock, seconds):
    """Where reading begins from `seconds` after the clock began."""
    moment = datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    batch = topic.read(start=moment, limit=1)
    return batch[0].offset if batch else None


LAYOUTS = {
    # segment_bytes, frames: lists of (second, messages)
    "one message": [(10, 1)],
    "one frame": [(10, 5)],
    "a frame a second": [(second, 1) for second in range(10, 20)],
    "several in a second": [(10, 3), (10, 2), (11, 1), (13, 4)],
}


@pytest.fixture(params=LAYOUTS, ids=lambda name: name.replace(" ", "-"))
def frames(request):
    return LAYOUTS[request.param]


@pytest.fixture(params=["active", "sealed", "repacked", "rolled"])
def topic(request, store, clock, frames):
    """The frames written at their seconds; in an active segment, a sealed one, or one each (W004-10)."""
    each = request.param == "rolled"
    pad = 2500 if each else 1
    topic = store.create_topic("events", sync="os", segment_bytes="4KiB", segment_age="1h")
    now = 0
    for second, count in frames:
        clock.advance(second - now)
        now = second
        topic.write_many([b"x" * (pad // count)] * count)
    if request.param in ("sealed", "repacked"):
        clock.advance("2h")
        topic.write(b"much later")
    if request.param == "repacked":
        topic.vacuum()
    return topic


def test_the_first_message_at_or_after_a_moment_is_found(topic, clock, frames):
    """B004-12 and its edge cases: before the first, equal to oldest, between, equal to newest, beyond."""
    seconds = [second for second, count in frames for _ in range(count)]
    later = topic.stats().messages > len(seconds)
    for asked in [0, *{s for second in seconds for s in (second - 0.5, second, second + 0.5)}]:
        offsets = [offset for offset, second in enumerate(seconds) if second >= asked]
        expected = offsets[0] if offsets else len(seconds) if later else None
        assert found(topic, clock, asked) == expected, f"asked for second {asked}"
    assert found(topic, clock, 10_000_000) is None


def test_an_empty_topic_has_no_moment(store, clock):
    topic = store.create_topic("empty")
    assert found(topic, clock, 0) is None
    assert topic.seek_consumer("c", "1h") == {0: 0}


def test_a_time_before_what_retention_left_is_the_first_message_left(store, clock):
    topic = store.create_topic("short", retention="10s", sync="os")
    for _ in range(5):
        topic.write(b"x")
        clock.advance("4s")
    topic.vacuum()
    assert found(topic, clock, 0) == topic.stats().partitions[0].start == 3


def test_messages_of_one_frame_written_at_different_times_are_told_apart_after_repacking(store, clock):
    topic = store.create_topic("events", sync="os", segment_bytes="4KiB", segment_age="1h")
    for _ in range(10):
        topic.write(b"x")
        clock.advance("1s")
    clock.advance("2h")
    topic.write(b"later")
    topic.vacuum()
    assert [found(topic, clock, second) for second in range(10)] == list(range(10))
    assert [m.written_at % (60 * SECOND) // SECOND for m in topic.read(stop=10)] == list(range(10))
