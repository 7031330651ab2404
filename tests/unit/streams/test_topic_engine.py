"""Streams in a topic of the store: what is particular to keeping them there."""

import threading

import pytest

import penstock
from penstock.payloads.open import open_bodies
from penstock.state import streams
from tests.unit.store.older import make_older


def test_the_topic_is_made_at_first_use_and_is_as_any_other(store):
    stream = store.stream("orders")
    options = store.topic("orders").options
    assert (options.index, options.partitions, options.retention_s, options.sync) == (
        "key",
        1,
        604800,
        "disk",
    )
    assert options.payloads.place == "files"
    stream.publish_message("paid", "o/1", {"source": "shop"})
    stream.publish("paid", b"body", object_name="o/2")
    one, two = store.topic("orders").read()
    assert (one.key, one.value, one.offset) == (b"paid", b"", 0)
    assert dict(one.headers) == {"source": "shop", "penstock-elsewhere": "o/1"}
    assert (two.value, dict(two.headers)) == (b"body", {"penstock-object": "o/2"})


def test_what_other_means_write_into_the_topic_is_of_the_stream_if_it_has_a_key(store):
    stream = store.stream("orders")
    topic = store.topic("orders")
    topic.write(b"plain", key="paid", headers={"raw": b"\xff", "text": "t"})
    topic.write(b"no key")
    topic.write(None, key="paid")
    assert stream.get_message_by_sequence(1)[1:4] == ({"raw": "\udcff", "text": "t"}, "paid_1", "paid")
    assert stream.get_message_by_sequence(2) is None
    assert [row[0] for row in stream.get_all_messages(1, 10)] == [1, 3]
    assert (stream.get_message_count(), stream.get_latest_sequence()) == (2, 3)
    assert [message.data for message in stream.messages()] == [b"plain", b""]


def test_a_topic_that_cannot_hold_a_stream_is_refused(store):
    store.create_topic("wide", partitions=2, index="key")
    store.create_topic("plain")
    for name in ("wide", "plain"):
        with pytest.raises(penstock.InvalidOption, match="cannot hold a stream"):
            store.stream(name)
    store.topic("plain").alter(index="key")
    assert store.stream("plain").publish("a") == 1


def test_options_that_differ_are_named(store):
    store.stream("orders", sync="os", retention=None)
    assert store.stream("orders").name == store.stream("orders", sync="os").name == "orders"
    with pytest.raises(penstock.InvalidOption, match="sync='os' there, 'disk' asked"):
        store.stream("orders", sync="disk")


def test_bodies_of_ten_megabytes_lie_beside_the_log_and_go_with_their_messages(store, tmp_path):
    """B000: a 10 MB body by its pattern; TTL takes metadata AND bodies (W000-5)."""
    stream = store.stream("orders")
    pattern = bytes(range(256)) * 40_000
    (tmp_path / "body").write_bytes(pattern)
    stream.publish("orders", pattern)
    stream.publish("orders", tmp_path / "body", object_name="body")
    stream.publish("orders", b"small")
    assert len(bodies(tmp_path)) == 2
    for message, size in zip(stream.fetch("reader", "orders"), (len(pattern),) * 2 + (5,), strict=True):
        assert len(message.data) == size
        with message.open() as opened:
            assert opened.read(256) == message.data[:256]
    store._clock.advance(60)
    stream.publish("orders", b"new")
    assert stream.delete_old_messages(30)[0] == 3
    assert bodies(tmp_path) == []
    assert [message.data for message in stream.messages()] == [b"new"]


def bodies(folder):
    return [path for path in (folder / "data" / "payloads").rglob("*") if path.is_file()]


def test_a_stream_without_a_place_for_bodies_takes_files_up_to_a_message(store, tmp_path):
    stream = store.stream("orders", payloads=None)
    (tmp_path / "body").write_bytes(b"from a file")
    stream.publish("orders", tmp_path / "body")
    with (tmp_path / "body").open("rb") as opened:
        stream.publish("orders", opened)
    assert [message.data for message in stream.messages()] == [b"from a file"] * 2
    (tmp_path / "large").write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(penstock.MessageTooLarge):
        stream.publish("orders", tmp_path / "large")
    with (tmp_path / "body").open() as text, pytest.raises(penstock.WrongType, match="opened as text"):
        stream.publish("orders", text)
    assert stream.get_latest_sequence() == 2


def test_bodies_that_others_stored_are_found_by_name(store, tmp_path):
    """S000-04, S000-26: the body first, by whoever has it; then its name."""
    open_bodies(tmp_path / "bucket").put("orders/1.json", b'{"paid": true}')
    stream = store.stream("orders", bodies=tmp_path / "bucket")
    stream.publish_message("orders", "orders/1.json")
    stream.publish_message("orders", "orders/2.json")
    one, two = stream.fetch("reader", "orders")
    assert one.data == b'{"paid": true}'
    with pytest.raises(penstock.BodyMissing, match=r"orders/2\.json"):
        _ = two.data


def test_many_are_stored_side_by_side_in_the_order_of_the_call(store):
    stream = store.stream("orders")
    given = [("a", b"x"), ("b", bytes(100_000)), ("a", "y"), ("c", bytes(200_000)), ("a", b"z")] * 3
    results = stream.publish_many(given)
    assert [result.sequence for result in results] == list(range(1, 16))
    assert [(message.subject, len(message.data)) for message in stream.messages()] == [
        (subject, len(data)) for subject, data in given
    ]


def test_a_store_of_an_older_format_gets_the_tables_when_opened_for_writing(tmp_path):
    with penstock.open(tmp_path) as store:
        store.stream("orders").publish("a")
    make_older(tmp_path, 3)
    with penstock.open(tmp_path, read_only=True) as store:
        stream = store.stream("orders")
        assert (stream.get_consumer_position("billing", "a"), stream.get_consumers()) == (0, [])
        assert stream.get_ttl_status()["enabled"] is False
        assert stream.get_message_count() == 1
    with penstock.open(tmp_path) as store:
        assert store.stream("orders").ack("billing", "a", 1) is True


def test_a_store_that_may_only_be_read_changes_nothing(tmp_path):
    with penstock.open(tmp_path) as store:
        store.stream("orders").publish("a", b"x")
    with penstock.open(tmp_path, read_only=True) as store:
        stream = store.stream("orders")
        assert [message.data for message in stream.fetch("billing", "a")] == [b"x"]
        for change in (
            lambda: stream.publish("a"),
            lambda: stream.publish("a", bytes(100_000)),
            lambda: stream.ack("billing", "a", 1),
            lambda: stream.update_consumer_position("billing", "a", 1),
            lambda: stream.delete_old_messages(0),
            lambda: stream.configure_ttl(enabled=True),
        ):
            with pytest.raises(penstock.ReadOnly):
                change()
        with pytest.raises(penstock.UnknownTopic):
            store.stream("others")


def test_a_stream_that_was_dropped_says_so_and_begins_anew_under_its_name(store):
    stream = store.stream("orders")
    stream.publish("a")
    stream.update_consumer_position("billing", "a", 1)
    stream.configure_ttl(enabled=True)
    store.drop_topic("orders")
    for use in (
        lambda: stream.publish("a"),
        lambda: stream.get_message_by_sequence(1),
        lambda: stream.get_messages_by_subject("a", 1, 1),
        stream.get_latest_sequence,
        stream.get_message_count,
    ):
        with pytest.raises(penstock.TopicReplaced):
            use()
    anew = store.stream("orders")
    assert anew.get_consumers() == []
    assert anew.get_ttl_status()["enabled"] is False
    assert anew.publish("a") == 1


def test_a_longer_life_than_the_topics_retention_raises_that(store):
    stream = store.stream("orders")
    stream.configure_ttl(enabled=True, default_ttl="1d", channels={"kept": "30d"})
    assert store.topic("orders").options.retention_s == 30 * 86400
    stream.publish("kept")
    store._clock.advance("20d")
    stream.delete_expired()
    assert stream.get_message_count() == 1


def test_closing_the_store_ends_a_subscription_and_the_cleanup(tmp_path):
    store = penstock.open(tmp_path)
    stream = store.stream("orders")
    stream.configure_ttl(enabled=True, check_interval="10ms")
    stream.start_ttl_cleanup()
    ended = []

    def listen():
        try:
            list(stream.subscribe("billing", "*"))
        except penstock.Closed as error:
            ended.append(error)

    listener = threading.Thread(target=listen)
    listener.start()
    while not store.topic("orders").open_topic.readers:
        pass
    store.close()
    listener.join(30)
    assert len(ended) == 1
    cleanup = stream._thread
    cleanup.join(30)
    assert not cleanup.is_alive()


def test_an_important_consumer_of_the_topic_holds_the_streams_messages(store, clock):
    """W000-8: retention looks at consumers, if they ask for it."""
    stream = store.stream("orders", retention="1h")
    topic = store.topic("orders")
    topic.add_consumer("audit", important=True)
    stream.publish("paid", b"1")
    clock.advance("2h")
    topic.vacuum()
    assert stream.get_message_count() == 1
    with topic.reader(consumer="audit", follow=False) as reader:
        reader.commit(reader.receive())
    topic.vacuum()
    assert stream.get_message_count() == 0


def test_who_reads_a_subject_is_found_among_any_number_of_positions(store):
    """S000-14, S000-15: by the index, not by looking at every position of the stream."""
    stream = store.stream("orders")
    stream.update_consumer_position("a", "orders", 1)
    stream.update_consumer_position("b", "orders", 2)
    stream.update_consumer_position("a", "images", 3)
    assert stream.get_consumers_by_subject("orders") == [("a", "orders", 1), ("b", "orders", 2)]
    plan = store._database.rows(f"EXPLAIN QUERY PLAN {streams._OF_SUBJECT}", (1, "orders"))
    assert "INDEX stream_positions_by_subject (topic_id=? AND subject=?)" in plan[0][-1]
