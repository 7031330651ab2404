"""`store.stream()`: the eight functions of MiniToolStream, as they are documented and without their bugs."""

import threading
import time

import pytest

import penstock
from penstock.testing import BEGIN

BEGAN = int(BEGIN.timestamp())


def sequences(found):
    return [each[0] if isinstance(each, tuple) else each.sequence for each in found]


# The eight functions.


def test_the_first_sequence_is_one_and_all_subjects_share_the_counter(stream):
    """S000-02, S000-16."""
    assert [stream.publish_message(subject, "o") for subject in ("orders", "images", "orders")] == [1, 2, 3]


def test_a_message_is_the_tuple_of_the_original(stream):
    """S000-03…07, S000-17."""
    headers = {"content-type": "application/json", "source": "api", "size": "17"}
    stream.publish_message("orders", "minio/orders/2024/11/18/12345.json", headers)
    stream.publish_message("orders", "b")
    assert stream.get_message_by_sequence(1) == (
        1, headers, "minio/orders/2024/11/18/12345.json", "orders", BEGAN,
    )  # fmt: skip
    assert stream.get_message_by_sequence(2) == (2, {}, "b", "orders", BEGAN)
    assert stream.get_message_by_sequence(3) is None
    assert stream.get_message_by_sequence(2**63 - 1) is None
    assert stream.get_message_by_sequence_decoded(2) == {
        "sequence": 2, "headers": {}, "object_name": "b", "subject": "orders", "create_at": BEGAN,
    }  # fmt: skip
    assert stream.get_message_by_sequence_decoded(3) is None


def test_messages_of_a_subject_begin_with_the_sequence_asked_for(stream):
    """S000-18."""
    for number in range(12):
        stream.publish_message(("orders", "images")[number % 2], f"o{number}")
    found = stream.get_messages_by_subject("orders", 3, 3)
    assert sequences(found) == [3, 5, 7]
    assert [row[2] for row in found] == ["o2", "o4", "o6"]
    assert {row[3] for row in found} == {"orders"}
    assert sequences(stream.get_messages_by_subject("orders", 4, 2)) == [5, 7]
    assert sequences(stream.get_messages_by_subject("orders", 0, 100)) == [1, 3, 5, 7, 9, 11]
    assert stream.get_messages_by_subject("orders", 12, 10) == []
    assert stream.get_messages_by_subject("unknown", 1, 10) == []
    assert stream.get_messages_by_subject("order", 1, 10) == []


def test_the_latest_sequence_of_a_subject_is_zero_when_it_has_none(stream):
    """S000-19, S000-34."""
    assert (stream.get_latest_sequence_for_subject("orders"), stream.get_latest_sequence()) == (0, 0)
    for subject in ("orders", "images", "orders", "images.cats"):
        stream.publish_message(subject, "o")
    assert stream.get_latest_sequence_for_subject("orders") == 3
    assert stream.get_latest_sequence_for_subject("images") == 2
    assert stream.get_latest_sequence_for_subject("unknown") == 0
    assert stream.get_latest_sequence() == 4


def test_a_position_is_the_last_sequence_read_and_is_set_freely(streams, stream):
    """S000-12, S000-13, S000-20…22."""
    assert stream.get_consumer_position("billing", "orders") == 0
    assert stream.update_consumer_position("billing", "orders", 3) is True
    assert stream.get_consumer_position("billing", "orders") == 3
    assert stream.update_consumer_position("billing", "orders", 1) is True
    assert stream.get_consumer_position("billing", "orders") == 1
    assert stream.update_consumer_position("billing", "orders", 0) is True
    assert stream.get_consumer_position("billing", "orders") == 0
    stream.update_consumer_position("billing", "orders", 5)
    streams.restart()
    assert streams.stream().get_consumer_position("billing", "orders") == 5


def test_consumers_are_found_by_subject_and_by_name(stream):
    """S000-14, S000-15, S000-22, S000-33."""
    stream.update_consumer_position("b", "orders", 7)
    stream.update_consumer_position("a", "orders", 5)
    stream.update_consumer_position("a", "images", 2)
    assert list(map(tuple, stream.get_consumers_by_subject("orders"))) == [
        ("a", "orders", 5), ("b", "orders", 7),
    ]  # fmt: skip
    assert stream.get_consumers_by_subject("unknown") == []
    assert stream.get_consumer_position("a", "images") == 2
    assert stream.get_consumer_count() == 3
    assert next(map(tuple, stream.get_consumers())) == ("a", "images", 2)
    assert stream.forget_consumer("a", "images") == 1
    assert stream.forget_consumer("a") == 1
    assert stream.forget_consumer("a") == 0
    assert list(map(tuple, stream.get_consumers())) == [("b", "orders", 7)]


def test_streams_of_one_store_know_nothing_of_each_other(streams):
    if streams.engine.name != "embedded":
        pytest.skip("a Tarantool keeps one stream for each prefix")
    one, other = streams.stream("one"), streams.stream("other")
    one.publish_message("orders", "o")
    one.update_consumer_position("billing", "orders", 1)
    assert other.get_latest_sequence() == 0
    assert other.get_consumer_position("billing", "orders") == 0
    assert other.publish_message("orders", "o") == 1


# Counting.


def test_counts_are_those_of_messages_not_of_sequences(stream):
    """S000-33, B000-02, W000-3: 'latest - position' over a global counter reported 3 for 2 real messages."""
    for subject in ("orders", "images", "orders", "images", "orders"):
        stream.publish_message(subject, "o")
    stream.update_consumer_position("billing", "orders", 1)
    assert stream.get_message_count() == 5
    assert stream.get_subject_message_count("orders") == 3
    assert stream.get_subject_message_count("unknown") == 0
    assert stream.get_new_messages_count("orders", "billing") == 2
    assert stream.get_new_messages_count("orders", since=3) == 1
    assert stream.get_new_messages_count("orders") == 3
    assert stream.check_new_messages("orders", "billing") == {
        "has_new": True, "latest_sequence": 5, "consumer_position": 1, "new_count": 2,
    }  # fmt: skip
    stream.update_consumer_position("billing", "orders", 5)
    assert stream.check_new_messages("orders", "billing") == {
        "has_new": False, "latest_sequence": 5, "consumer_position": 5, "new_count": 0,
    }  # fmt: skip
    with pytest.raises(penstock.InvalidOption):
        stream.get_new_messages_count("orders", "billing", since=3)


def test_subjects_are_listed_with_their_numbers(stream):
    for subject in ("orders", "images.cats", "orders", "images.dogs", "images"):
        stream.publish_message(subject, "o")
    assert list(map(tuple, stream.get_subjects())) == [
        ("images", 1, 5, 5), ("images.cats", 1, 2, 2), ("images.dogs", 1, 4, 4), ("orders", 2, 1, 3),
    ]  # fmt: skip
    assert [facts.subject for facts in stream.get_subjects("images.*")] == ["images.cats", "images.dogs"]
    assert stream.get_subjects("unknown") == []


# Patterns and everything.


def test_a_pattern_takes_the_subjects_that_begin_so(stream):
    """B000-07: `*`, `images.*`, or exactly."""
    for subject in ("images.cats", "images", "imagesque.x", "images.dogs", "orders"):
        stream.publish_message(subject, "o")
    assert sequences(stream.get_messages_by_subject("images.*", 1, 10)) == [1, 4]
    assert sequences(stream.get_messages_by_subject("images*", 1, 10)) == [1, 2, 3, 4]
    assert sequences(stream.get_messages_by_subject("images", 1, 10)) == [2]
    assert sequences(stream.get_messages_by_subject("*", 2, 3)) == [2, 3, 4]
    assert stream.get_latest_sequence_for_subject("images.*") == 4
    assert stream.get_subject_message_count("images.*") == 2
    for pattern in ("images.*.x", "*images", "im*ges", "**"):
        with pytest.raises(penstock.InvalidOption, match="star"):
            stream.get_messages_by_subject(pattern, 1, 10)
    with pytest.raises(penstock.InvalidOption, match="star"):
        stream.publish_message("images.*", "o")


def test_everything_is_read_in_the_global_order(stream):
    """S000-29."""
    for number in range(250):
        stream.publish(f"subject-{number % 7}", str(number))
    found = list(stream.messages())
    assert sequences(found) == list(range(1, 251))
    assert [message.text for message in found] == [str(number) for number in range(250)]
    assert sequences(stream.get_all_messages(240, 5)) == [240, 241, 242, 243, 244]
    assert sequences(list(stream.messages("subject-3", 100))) == list(range(102, 251, 7))


# Publishing and bodies.


def test_bodies_come_back_as_they_were_given(stream, tmp_path):
    """S000-26; B000: headers only, empty and null bodies, by the bytes."""
    file = tmp_path / "body.bin"
    pattern = bytes(range(256)) * 400
    file.write_bytes(pattern)
    with file.open("rb") as opened:
        given = [b"bytes", "текст", bytearray(b"array"), memoryview(b"view"), b"", None, file, opened]
        for data in given:
            stream.publish("orders", data, headers={"kind": type(data).__name__})
    found = stream.fetch("reader", "orders", 100)
    assert [message.data for message in found] == [
        b"bytes", "текст".encode(), b"array", b"view", b"", b"", pattern, pattern,
    ]  # fmt: skip
    for message in found:
        with message.open() as body:
            assert body.read() == message.data
    assert found[1].text == "текст"
    assert found[0].headers == {"kind": "bytes"}
    assert found[0].created_at == BEGIN
    assert (found[0].subject, found[0].sequence) == ("orders", 1)


def test_a_body_has_the_name_it_was_given(stream):
    stream.publish("orders", b"paid", object_name="orders/1.json", headers={"a": "b"})
    assert stream.get_message_by_sequence(1) == (1, {"a": "b"}, "orders/1.json", "orders", BEGAN)
    (message,) = stream.fetch("reader", "orders")
    assert (message.object_name, message.data, message.headers) == ("orders/1.json", b"paid", {"a": "b"})


def test_one_message_is_had_with_its_body(stream):
    for data in (b"one", b"two"):
        stream.publish("orders", data)
    assert [stream.get(sequence).data for sequence in (1, 2)] == [b"one", b"two"]
    assert stream.get(3) is None


def test_a_body_without_a_name_gets_one_of_its_own(stream):
    """B000-01."""
    for _ in range(2):
        stream.publish("orders", b"paid")
    names = [row[2] for row in stream.get_messages_by_subject("orders", 1, 10)]
    assert len(set(names)) == 2
    assert all(names)


def test_a_body_that_is_not_there_fails_clearly_and_moves_nothing(stream):
    """B000-06; the messages around it can be read."""
    stream.publish("orders", b"one")
    stream.publish_message("orders", "nowhere/2.json")
    stream.publish("orders", b"three")
    one, two, three = stream.fetch("billing", "orders")
    assert (one.data, three.data) == (b"one", b"three")
    with pytest.raises(penstock.DataError, match=r"nowhere/2\.json"):
        _ = two.data
    with pytest.raises(penstock.DataError, match=r"nowhere/2\.json"):
        two.open().read()
    assert stream.get_consumer_position("billing", "orders") == 0


def test_many_are_published_each_on_its_own(stream):
    """B000-12: results by item."""
    results = stream.publish_many(
        [
            ("orders", b"one"),
            ("", b"no subject"),
            penstock.Publication("images", "two", {"a": "b"}, "x/two"),
            ("orders", 17),
            ("orders", None),
        ]
    )
    assert [result.sequence for result in results] == [1, None, 2, None, 3]
    assert isinstance(results[1].error, penstock.InvalidOption)
    assert isinstance(results[3].error, penstock.WrongType)
    assert results[0].error is None
    assert stream.get_message_by_sequence(2)[:4] == (2, {"a": "b"}, "x/two", "images")
    assert stream.publish_many([]) == []


# Durable consumers.


def test_a_fetch_never_moves_the_position_and_an_ack_does(stream):
    """B000-06."""
    for number in range(5):
        stream.publish("orders", str(number))
    for _ in range(2):
        assert sequences(stream.fetch("billing", "orders", 2)) == [1, 2]
    assert stream.get_consumer_position("billing", "orders") == 0
    assert stream.ack("billing", "orders", 2) is True
    assert sequences(stream.fetch("billing", "orders", batch=2)) == [3, 4]
    assert sequences(stream.fetch("other", "orders")) == [1, 2, 3, 4, 5]


def test_an_ack_never_goes_back_nor_beyond_the_end(stream):
    """W000-4: the original took 3 to 1 and 100 without a word."""
    for _ in range(3):
        stream.publish("orders")
    assert stream.ack("billing", "orders", 3) is True
    assert stream.ack("billing", "orders", 1) is False
    assert stream.ack("billing", "orders", 3) is False
    assert stream.get_consumer_position("billing", "orders") == 3
    with pytest.raises(penstock.OffsetAhead, match=r"100 .* never given: the last one is 3"):
        stream.ack("billing", "orders", 100)
    assert stream.get_consumer_position("billing", "orders") == 3


def test_a_pattern_has_a_position_of_its_own(stream):
    for subject in ("images.cats", "orders", "images.dogs"):
        stream.publish(subject)
    assert sequences(stream.fetch("viewer", "images.*")) == [1, 3]
    stream.ack("viewer", "images.*", 1)
    assert sequences(stream.fetch("viewer", "images.*")) == [3]
    assert sequences(stream.fetch("viewer", "images.cats")) == [1]


def test_each_of_ten_durable_consumers_gets_all_hundred_messages(streams, stream):
    """B000: 100 messages, 10 consumers."""
    assert all(each.error is None for each in stream.publish_many([("orders", str(n)) for n in range(100)]))
    for number in range(10):
        durable, got = f"consumer-{number}", []
        while batch := stream.fetch(durable, "orders", 1 + number * 7):
            got += [message.text for message in batch]
            stream.ack(durable, "orders", batch[-1].sequence)
        assert got == list(map(str, range(100)))
    streams.restart()
    stream = streams.stream()
    assert [position for _, _, position in stream.get_consumers_by_subject("orders")] == [100] * 10


# Following.


def test_a_subscriber_gets_the_whole_burst_however_large(stream):
    """W000-7: a burst of 25 left 15 unread until the next notification."""
    for number in range(25):
        stream.publish("orders", str(number))
    got = [message.text for message in stream.subscribe("billing", "orders", timeout=0)]
    assert got == list(map(str, range(25)))
    assert stream.get_consumer_position("billing", "orders") == 0


def test_a_subscriber_begins_behind_its_position_or_further(stream):
    """B000-05."""
    for _ in range(6):
        stream.publish("orders")
    stream.ack("billing", "orders", 3)

    def got(**options):
        return sequences(list(stream.subscribe("billing", "orders", timeout=0, **options)))

    assert got() == [4, 5, 6]
    assert got(start_sequence=2) == [4, 5, 6]
    assert got(start_sequence=6) == [6]
    assert got(start_sequence=100) == []


def test_a_subscriber_is_woken_by_what_is_published_and_misses_nothing(stream):
    got, begun = [], threading.Event()

    def listen():
        for message in stream.subscribe("billing", "orders", timeout=30):
            got.append(message.sequence)
            begun.set()
            if len(got) == 40:
                return

    listener = threading.Thread(target=listen)
    listener.start()
    stream.publish("orders")
    assert begun.wait(30)
    for number in range(2 * 39):
        stream.publish(("orders", "images")[number % 2])
    listener.join(30)
    assert got == [1, *range(2, 80, 2)]


def test_notifications_say_how_much_is_new_and_only_when_there_is_more(stream):
    """B000-05: Subscribe only notifies."""
    assert list(stream.notifications("billing", "orders", timeout=0)) == []
    for subject in ("orders", "images", "orders", "images"):
        stream.publish(subject)
    assert list(map(tuple, stream.notifications("billing", "orders", timeout=0))) == [("orders", 3, 2)]
    stream.ack("billing", "orders", 3)
    assert list(stream.notifications("billing", "orders", timeout=0)) == []
    told = iter(stream.notifications("billing", "orders", timeout=30))
    stream.publish("orders")
    assert tuple(next(told)) == ("orders", 5, 1)
    stream.publish("orders")
    assert tuple(next(told)) == ("orders", 6, 2)


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
    wait_until(lambda: len(told) == 2)
    assert stream.stop_ttl_cleanup() is True
    assert stream.stop_ttl_cleanup() is False
    assert stream.get_ttl_status()["fiber_running"] is False


def test_what_the_callers_function_failed_for_is_given_to_it_again(streams, stream):
    stream.configure_ttl(enabled=True, default_ttl="1m", check_interval="5ms")
    stream.publish_message("orders", "bodies/1")
    streams.clock.advance("2m")
    calls = []

    def fail_once(deleted):
        calls.append([each["object_name"] for each in deleted])
        if len(calls) == 1:
            raise RuntimeError("the bucket is away")

    stream.start_ttl_cleanup(on_deleted=fail_once)
    wait_until(lambda: len(calls) == 1 and stream.get_ttl_status()["last_error"])
    assert stream.get_ttl_status()["last_error"] == "RuntimeError: the bucket is away"
    wait_until(lambda: len(calls) >= 2)
    assert calls[1] == ["bodies/1"]
    stream.stop_ttl_cleanup()


def wait_until(is_so):
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


# Bad input.


@pytest.mark.parametrize("subject", ["orders-1", "orders_1", "a.b.c", "a/b/c", "-_./", "x" * 1000, "тема"])
def test_subjects_are_free_text(stream, subject):
    sequence = stream.publish(subject, b"x")
    assert sequences(stream.get_messages_by_subject(subject, 1, 10)) == [sequence]
    assert stream.get_latest_sequence_for_subject(subject) == sequence
    assert stream.update_consumer_position("billing", subject, 1)
    assert stream.get_consumers_by_subject(subject)[0][1] == subject


BAD_CALLS = [
    ("publish_message", ("", "o"), penstock.InvalidOption),
    ("publish_message", (None, "o"), penstock.WrongType),
    ("publish_message", (b"orders", "o"), penstock.WrongType),
    ("publish_message", ("orders", ""), penstock.InvalidOption),
    ("publish_message", ("orders", None), penstock.WrongType),
    ("publish_message", ("orders", "o", {"size": 17}), penstock.WrongType),
    ("publish_message", ("orders", "o", {"size": b"17"}), penstock.WrongType),
    ("publish_message", ("orders", "o", {17: "size"}), penstock.WrongType),
    ("publish_message", ("orders", "o", ["size"]), penstock.WrongType),
    ("publish_message", ("orders", "o", {"penstock-object": "x"}), penstock.InvalidOption),
    ("publish_message", ("x" * 5000, "o"), penstock.MessageTooLarge),
    ("publish_message", ("\ud800", "o"), penstock.InvalidOption),
    ("publish", ("", b"x"), penstock.InvalidOption),
    ("publish", ("orders", 17), penstock.WrongType),
    ("publish", ("orders", {"a": 1}), penstock.WrongType),
    ("get_message_by_sequence", (0,), penstock.InvalidOption),
    ("get_message_by_sequence", (-1,), penstock.InvalidOption),
    ("get_message_by_sequence", (2**63,), penstock.InvalidOption),
    ("get_message_by_sequence", ("1",), penstock.WrongType),
    ("get_message_by_sequence", (True,), penstock.WrongType),
    ("get", (0,), penstock.InvalidOption),
    ("get_messages_by_subject", ("", 1, 10), penstock.InvalidOption),
    ("get_messages_by_subject", ("orders", -1, 10), penstock.InvalidOption),
    ("get_messages_by_subject", ("orders", 2**63, 10), penstock.InvalidOption),
    ("get_messages_by_subject", ("orders", 1, 0), penstock.InvalidOption),
    ("get_messages_by_subject", ("orders", 1, -5), penstock.InvalidOption),
    ("get_messages_by_subject", ("orders", 1, 10**9), penstock.InvalidOption),
    ("get_messages_by_subject", ("orders", 1, 1.5), penstock.WrongType),
    ("get_latest_sequence_for_subject", ("",), penstock.InvalidOption),
    ("update_consumer_position", ("", "orders", 1), penstock.InvalidOption),
    ("update_consumer_position", ("billing", "", 1), penstock.InvalidOption),
    ("update_consumer_position", ("billing", "orders", -1), penstock.InvalidOption),
    ("update_consumer_position", ("billing", "orders", 2**63), penstock.InvalidOption),
    ("update_consumer_position", (None, "orders", 1), penstock.WrongType),
    ("get_consumer_position", ("billing", ""), penstock.InvalidOption),
    ("get_consumer_position", ("", "orders"), penstock.InvalidOption),
    ("get_consumers_by_subject", ("",), penstock.InvalidOption),
    ("delete_old_messages", (-1,), penstock.InvalidOption),
    ("delete_old_messages", (1e300,), penstock.InvalidOption),
    ("delete_old_messages", (float("nan"),), penstock.InvalidOption),
    ("delete_old_messages", ("1d",), penstock.WrongType),
    ("fetch", ("billing", "orders", 0), penstock.InvalidOption),
    ("fetch", ("", "orders"), penstock.InvalidOption),
    ("fetch", ("billing", ""), penstock.InvalidOption),
    ("ack", ("billing", "orders", 0), penstock.InvalidOption),
    ("ack", ("billing", "", 1), penstock.InvalidOption),
    ("ack", ("billing", "orders", 2**63), penstock.InvalidOption),
]


def named(case):
    name, arguments, _ = case
    return f"{name}{arguments!r:.40}".replace("x" * 20, "x")


@pytest.mark.parametrize("case", BAD_CALLS, ids=named)
def test_bad_input_gets_a_clear_error_and_changes_nothing(stream, case):
    name, arguments, error = case
    with pytest.raises(error) as raised:
        getattr(stream, name)(*arguments)
    assert isinstance(raised.value, penstock.UsageError)
    assert (stream.get_latest_sequence(), stream.get_consumer_count()) == (0, 0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"default_ttl": 0}, penstock.InvalidOption),
        ({"default_ttl": -1}, penstock.InvalidOption),
        ({"check_interval": 0}, penstock.InvalidOption),
        ({"channels": {"orders": 0}}, penstock.InvalidOption),
        ({"channels": {"": "1m"}}, penstock.InvalidOption),
        ({"channels": ["orders"]}, penstock.WrongType),
        ({"enabled": "yes"}, penstock.WrongType),
    ],
)
def test_a_ttl_that_lets_nothing_live_is_refused(stream, options, error):
    before = stream.get_ttl_status()
    with pytest.raises(error):
        stream.configure_ttl(**options)
    assert stream.get_ttl_status() == before


def test_a_missing_file_is_no_message(stream, tmp_path):
    with pytest.raises(penstock.PenstockError, match="nothing"):
        stream.publish("orders", tmp_path / "nothing")
    assert stream.get_latest_sequence() == 0


def test_bad_arguments_of_a_subscription_are_said_at_the_call(stream):
    with pytest.raises(penstock.InvalidOption):
        stream.subscribe("billing", "")
    with pytest.raises(penstock.InvalidOption):
        stream.subscribe("billing", "orders", start_sequence=0)
    with pytest.raises(penstock.InvalidOption):
        stream.subscribe("billing", "orders", timeout="soon")
    with pytest.raises(penstock.InvalidOption):
        stream.messages("")
