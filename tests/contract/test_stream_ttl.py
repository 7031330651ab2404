"""How long messages of a stream live: deleted by age, exactly; by subject; sequences go on."""

import threading

from tests.contract.streams import sequences
from tests.kit.patience import PATIENCE_S, wait_until

# Deleting.


def test_what_is_exactly_as_old_goes_and_what_is_younger_stays(streams, stream):
    """S000-23, S000-24, W000-6."""
    stream.publish_message("orders", "o1")
    streams.clock.advance(10)
    stream.publish_message("images", "o2")
    streams.clock.advance(5)
    stream.publish_message("orders", "o3")
    assert stream.delete_old_messages(16) == (0, [])
    assert stream.delete_old_messages(15) == (1, [{"sequence": 1, "subject": "orders", "object_name": "o1"}])
    assert stream.delete_old_messages(15) == (0, [])
    assert stream.get_message_by_sequence(1) is stream.get(1) is None
    assert stream.get_message_count() == 2
    assert sequences(stream.get_messages_by_subject("orders", 1, 10)) == [3]
    streams.clock.advance(1)
    count, deleted = stream.delete_old_messages(0)
    assert (count, [each["sequence"] for each in deleted]) == (2, [2, 3])
    assert stream.get_latest_sequence_for_subject("orders") == 0
    assert stream.get_subjects() == []


def test_a_ttl_of_nothing_takes_what_was_published_this_very_moment(stream):
    """W000-6: strictly less at the resolution of a second took nothing."""
    stream.publish_message("orders", "o1")
    assert stream.delete_old_messages(0)[0] == 1


def test_sequences_go_on_when_everything_expired_and_the_store_was_restarted(streams, stream):
    """W000-2, S000-30."""
    for _ in range(7):
        stream.publish("orders", b"x")
    stream.ack("billing", "orders", 7)
    streams.clock.advance(100)
    assert stream.delete_old_messages(50)[0] == 7
    streams.restart()
    stream = streams.stream()
    assert (stream.get_latest_sequence(), stream.get_message_count()) == (7, 0)
    streams.restart()
    stream = streams.stream()
    assert stream.publish("orders", b"y") == 8
    assert sequences(stream.fetch("billing", "orders")) == [8]


def test_a_consumer_whose_next_messages_expired_goes_on_with_what_is_left(streams, stream):
    stream.publish("orders", b"1")
    stream.ack("billing", "orders", 1)
    stream.publish("orders", b"2")
    streams.clock.advance(100)
    stream.publish("orders", b"3")
    stream.delete_old_messages(50)
    assert sequences(stream.fetch("billing", "orders")) == [3]
    assert stream.get_new_messages_count("orders", "billing") == 1


# How long messages live.


def test_subjects_live_as_long_as_their_channel_says(streams, stream):
    """B000-03: a default, and subjects that differ from it, shorter and longer."""
    stream.configure_ttl(
        enabled=True, default_ttl="1h", channels={"progress.*": "1m", "orders": "1d", "progress.kept": "2h"}
    )
    for subject in ("progress.a", "orders", "images", "progress.kept"):
        stream.publish(subject, b"x")
    streams.clock.advance("2m")
    count, deleted = stream.delete_expired()
    assert (count, [each["subject"] for each in deleted]) == (1, ["progress.a"])
    assert stream.delete_expired() == (0, [])
    assert [facts.subject for facts in stream.get_subjects()] == ["images", "orders", "progress.kept"]
    streams.clock.advance("1h")
    assert [each["subject"] for each in stream.delete_expired()[1]] == ["images"]
    assert sequences(stream.get_all_messages(1, 10)) == [2, 4]
    assert stream.get_message_by_sequence(1) is None
    assert stream.get_message_count() == 2
    streams.clock.advance("2h")
    assert [each["subject"] for each in stream.delete_expired()[1]] == ["progress.kept"]
    streams.clock.advance("1d")
    assert [each["subject"] for each in stream.delete_expired()[1]] == ["orders"]
    assert stream.publish("orders") == 5


def test_a_channel_is_not_its_namesake(streams, stream):
    """W000-5: the rule for `test_` also hit `test_other`; TTLs under a day became none."""
    stream.configure_ttl(enabled=True, default_ttl="30d", channels={"test": "10s"})
    for subject in ("test", "test_other"):
        stream.publish(subject)
    streams.clock.advance("11s")
    assert [each["subject"] for each in stream.delete_expired()[1]] == ["test"]


def test_the_ttl_is_kept_with_the_stream(streams, stream):
    assert stream.get_ttl_status() == {
        "enabled": False, "default_ttl": 86400.0, "check_interval": 3600.0, "fiber_running": False,
        "channels": {}, "last_error": "",
    }  # fmt: skip
    stream.configure_ttl(enabled=True, default_ttl=60, channels={"orders": "2m"})
    stream.configure_ttl(check_interval="10s")
    streams.restart()
    assert streams.stream().get_ttl_status() == {
        "enabled": True, "default_ttl": 60.0, "check_interval": 10.0, "fiber_running": False,
        "channels": {"orders": 120.0}, "last_error": "",
    }  # fmt: skip


def test_nothing_expires_while_the_ttl_is_not_enabled(streams, stream):
    stream.configure_ttl(default_ttl="1s", channels={"orders": "1s"})
    stream.publish("orders")
    streams.clock.advance("1h")
    assert stream.delete_expired() == (0, [])
    assert stream.get_message_count() == 1


def test_the_cleanup_runs_in_the_background_until_it_is_stopped(streams, stream):
    """B000-03, S000-28."""
    stream.configure_ttl(enabled=True, default_ttl="1m", check_interval="5ms")
    stream.publish_message("orders", "bodies/1")
    streams.clock.advance("2m")
    told = []
    assert stream.start_ttl_cleanup(on_deleted=told.extend) is True
    assert stream.start_ttl_cleanup() is False
    assert stream.get_ttl_status()["fiber_running"] is True
    wait_until(lambda: told)
    assert told == [{"sequence": 1, "subject": "orders", "object_name": "bodies/1"}]
    stream.publish_message("orders", "bodies/2")
    streams.clock.advance("2m")
    wait_until(lambda: len(told) == 2)  # also if the store's own vacuum was quicker (S000-28)
    assert stream.stop_ttl_cleanup() is True
    assert stream.stop_ttl_cleanup() is False
    assert stream.get_ttl_status()["fiber_running"] is False


def test_what_the_callers_function_failed_for_is_given_to_it_again(streams, stream):
    stream.configure_ttl(enabled=True, default_ttl="1m", check_interval="5ms")
    stream.publish_message("orders", "bodies/1")
    streams.clock.advance("2m")
    calls, looked = [], threading.Event()

    def fail_once(deleted):
        calls.append([each["object_name"] for each in deleted])
        if len(calls) == 1:
            raise RuntimeError("the bucket is away")
        looked.wait(PATIENCE_S)  # else the error would be forgotten before anybody saw it

    stream.start_ttl_cleanup(on_deleted=fail_once)
    wait_until(lambda: stream.get_ttl_status()["last_error"])
    assert stream.get_ttl_status()["last_error"] == "RuntimeError: the bucket is away"
    looked.set()
    wait_until(lambda: len(calls) >= 2)
    assert calls[1] == ["bodies/1"]
    stream.stop_ttl_cleanup()
