"""Publishing into a stream, and reading it by name: fetch, ack, subscribe; nothing is left out."""

import threading

import pytest

import penstock
from penstock.testing import BEGIN
from tests.contract.streams import sequences

BEGAN = int(BEGIN.timestamp())

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
