"""`store.stream()`: the functions of MiniToolStream, as they are documented and without their bugs."""

import pytest

import penstock
from penstock.testing import BEGIN
from tests.contract.streams import sequences

BEGAN = int(BEGIN.timestamp())

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
