"""What leaves a stream is named, whoever removed it: vacuum, roll, size, or a subject's TTL (S000-24, 28)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import penstock

HOURS = 16 * 24


def named(deleted: tuple[int, list]) -> list[str]:
    count, gone = deleted
    assert count == len(gone)
    assert [each["sequence"] for each in gone] == sorted(each["sequence"] for each in gone)
    return [each["object_name"] for each in gone]


@pytest.mark.parametrize("vacuums", [False, True])
@pytest.mark.parametrize("ttl_s", [7 * 86400, 30 * 86400])
def test_an_hourly_message_for_sixteen_days_cleaned_every_six_hours(tmp_path, clock, ttl_s, vacuums):
    """Default options; 43 of 211 went unnamed where retention was quicker than the cleanup."""
    got: Counter[str] = Counter()
    with penstock.open(tmp_path, clock=clock) as store:
        stream = store.stream("shop")
        for hour in range(HOURS):
            stream.publish_message("orders", f"orders/{hour}.json")
            clock.advance("1h")
            if hour % 24 == 23:  # as a roll does, and as each process that writes does now and then
                store.topic("shop").vacuum()
            if hour % 6 == 5:
                if vacuums:
                    store.topic("shop").vacuum()
                got.update(named(stream.delete_old_messages(ttl_s)))
        left = {f"orders/{hour}.json" for hour in range(HOURS)}
        left -= {row[2] for row in stream.get_all_messages(1, HOURS)}
    assert len(left) > 200
    assert got == Counter(left)


def test_what_goes_by_size_is_named(tmp_path, clock):
    with penstock.open(tmp_path, clock=clock) as store:
        stream = store.stream("shop", max_bytes="1MiB", segment_bytes="1MiB")
        for number in range(60):
            stream.publish("orders", b"x" * 60_000, object_name=f"{number}")
        store.flush_housekeeping(30)
        store.topic("shop").vacuum()
        there = {row[2] for row in stream.get_all_messages(1, 100)}
        assert 0 < len(there) < 60
        expected = [str(number) for number in range(60) if str(number) not in there]
        assert named(stream.delete_old_messages(86400)) == expected
        assert stream.delete_old_messages(86400) == (0, [])


def test_what_a_ttl_by_subject_ended_is_named_once_also_when_it_goes_later(tmp_path, clock):
    with penstock.open(tmp_path, clock=clock) as store:
        stream = store.stream("shop", retention="2d")
        stream.configure_ttl(enabled=True, default_ttl="1d", channels={"progress": "1m"})
        for number in range(6):
            stream.publish_message(("orders", "progress")[number % 2], f"{number}")
        clock.advance("2m")
        assert named(stream.delete_old_messages(86400 * 9)) == ["1", "3", "5"]
        assert stream.delete_expired() == (0, [])
        clock.advance("1d")
        store.topic("shop").vacuum()
        assert named(stream.delete_expired()) == ["0", "2", "4"]
        assert stream.delete_old_messages(0) == (0, [])


def test_what_other_rules_end_is_named_once(tmp_path, clock):
    with penstock.open(tmp_path, clock=clock) as store:
        stream = store.stream("shop")
        stream.configure_ttl(enabled=True, default_ttl="1d", channels={"progress": "1m"})
        for number in range(4):
            stream.publish_message(("orders", "progress")[number % 2], f"{number}")
        clock.advance("2m")
        assert named(stream.delete_expired()) == ["1", "3"]
        stream.configure_ttl(channels={"orders": "1m"})  # brings back what still lies there
        assert named(stream.delete_expired()) == ["0", "2"]
        clock.advance("3d")
        assert stream.delete_expired() == (0, [])
        store.topic("shop").vacuum()
        assert stream.delete_old_messages(0) == (0, [])


def test_one_who_cleans_up_is_told_of_what_others_removed_and_each_is_told_once(tmp_path, clock):
    with penstock.open(tmp_path, clock=clock) as one, penstock.open(tmp_path, clock=clock) as other:
        mine, theirs = one.stream("shop"), other.stream("shop")
        mine.publish_message("orders", "a")
        theirs.publish_message("orders", "b")
        one.topic("shop").delete_before(1)
        assert named(theirs.delete_old_messages(86400)) == ["a"]
        assert mine.delete_old_messages(86400) == (0, [])
        assert named(mine.delete_old_messages(0)) == ["b"]
        assert theirs.delete_old_messages(0) == (0, [])


def test_it_is_named_after_a_restart_and_not_again_after_the_next(tmp_path, clock):
    with penstock.open(tmp_path, clock=clock) as store:
        store.stream("shop").publish("orders", b"body")
        clock.advance("8d")
        store.topic("shop").vacuum()
    for expected in (["orders_1"], []):
        with penstock.open(tmp_path, clock=clock) as store:
            stream = store.stream("shop")
            assert named(stream.delete_old_messages(86400)) == expected


def test_a_topic_that_is_no_stream_keeps_no_account(tmp_path, clock):
    with penstock.open(tmp_path, clock=clock) as store:
        topic = store.create_topic("orders", index="key", retention="1h")
        topic.write(b"x", key="a")
        clock.advance("2h")
        topic.vacuum()
        stream = store.stream("orders")
        assert stream.delete_old_messages(0) == (0, [])
        topic.write(b"y", key="b")
        clock.advance("2h")
        topic.vacuum()
        assert named(stream.delete_old_messages(86400)) == ["b_2"]


def test_a_folder_that_was_read_only_needs_no_account(tmp_path: Path, clock):
    with penstock.open(tmp_path, clock=clock) as store:
        store.stream("shop").publish("orders", b"x")
    with penstock.open(tmp_path, read_only=True, clock=clock) as store:
        assert store.stream("shop").get_message_count() == 1
