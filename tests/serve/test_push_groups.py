"""Pushes that share an append: each has its own ids or its own error, and answers keep their order."""

import json
import threading

import pytest

import penstock
from penstock.errors import MessageTooLarge, TopicReplaced
from tests.kit.products import Pushed
from tests.kit.server import Push, store_together
from tests.serve.kit import read_all, served
from tests.serve.test_http import answers, post


def push_of(*data: str, audience: bytes | None = None) -> Push:
    headers = None if audience is None else [{"audience": audience}] * len(data)
    return Push([b"k"] * len(data), [json.dumps(each).encode() for each in data], headers)


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path / "data") as store:
        store.create_topic("events", index="key", max_message_bytes=1000)
        yield store


def stored_values(store) -> list[bytes]:
    return [message.value for message in store.topic("events").read()]


def test_each_push_of_a_group_gets_its_own_ids(store):
    events = store.events()
    found = store_together(
        lambda topic: events, "events", [push_of("a"), push_of("b", "c", audience=b'"x"'), push_of("d")]
    )
    assert found == [Pushed(events.epoch, 1, 1), Pushed(events.epoch, 2, 3), Pushed(events.epoch, 4, 4)]
    assert stored_values(store) == [b'"a"', b'"b"', b'"c"', b'"d"']
    headers = [message.headers for message in store.topic("events").read()]
    assert headers == [{}, {"audience": b'"x"'}, {"audience": b'"x"'}, {}]


def test_a_push_that_cannot_be_stored_fails_alone(store):
    events = store.events()
    pushes = [push_of("a"), push_of("b", "x" * 2000), push_of("c")]
    first, second, third = store_together(lambda topic: events, "events", pushes)
    assert (first, third) == (Pushed(events.epoch, 1, 1), Pushed(events.epoch, 2, 2))
    assert isinstance(second, MessageTooLarge)
    assert stored_values(store) == [b'"a"', b'"c"']  # all or none: nothing of the second


def test_a_group_goes_to_the_topic_that_has_the_name_now(store):
    old = store.events()
    store.drop_topic("events")
    asked = []

    def find(topic, *, anew=False):
        asked.append(anew)
        return store.events() if anew else old

    (found,) = store_together(find, "events", [push_of("a")])
    assert asked == [False, True]
    assert found == Pushed(store.events().epoch, 1, 1)
    with pytest.raises(TopicReplaced):
        old.push("k", "b")


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    folder = tmp_path_factory.mktemp("narrow") / "data"
    with penstock.open(folder) as store:
        store.create_topic("events", index="key", max_message_bytes=1000)
    with served(folder, "--workers", "1") as server:
        yield server


def test_one_bad_push_in_a_pipeline_does_not_fail_its_neighbours(narrow):
    bodies = [
        '{"key": "k", "data": 1}', json.dumps({"key": "k", "data": "x" * 2000}), '{"key": "k", "data": 2}',
        "no JSON", '{"key": "k", "data": 3}', '[{"key": "k", "data": 4}, {"key": "k", "data": 5}]',
    ]  # fmt: skip
    with narrow.connect() as connection:
        connection.sendall(b"".join(map(post, bodies[:-1])) + post(bodies[-1], "Connection: close\r\n"))
        found = answers(read_all(connection))
    assert [status for status, _ in found] == [200, 413, 200, 400, 200, 200]
    first = found[0][1]["first"]
    ids = [(answer["first"] - first, answer["last"] - first) for status, answer in found if status == 200]
    assert ids == [(0, 0), (1, 1), (2, 2), (3, 4)]


def test_what_is_no_push_waits_for_the_pushes_before_it(narrow):
    ask = b"GET /v1/events?key=k HTTP/1.1\r\nHost: localhost\r\n\r\n"
    once = post('{"key": "k", "data": "once"}', "Idempotency-Key: a\r\n")
    plain = post('{"key": "k", "data": "plain"}')
    with narrow.connect() as connection:
        connection.sendall(plain + plain + ask + plain + once + plain + b"nonsense\r\n\r\n")
        found = answers(read_all(connection))
    assert [status for status, _ in found] == [200, 200, 200, 200, 200, 200, 400]
    first, second, asked, third, fourth, fifth, _ = (answer for _, answer in found)
    ids = [each["first"] for each in (first, second, third, fourth, fifth)]
    assert ids == list(range(ids[0], ids[0] + 5))
    assert asked["next"].endswith(f".{second['last'] + 1}")


def test_pushes_of_many_connections_are_all_stored_once_and_in_their_order(narrow):
    connections, each = 16, 100
    found: dict[int, list[dict]] = {}

    def push(number: int) -> None:
        bodies = [json.dumps({"key": f"c{number}", "data": n}) for n in range(each)]
        with narrow.connect() as connection:
            requests = b"".join(map(post, bodies[:-1])) + post(bodies[-1], "Connection: close\r\n")
            connection.sendall(requests)
            found[number] = [answer for _, answer in answers(read_all(connection))]

    threads = [threading.Thread(target=push, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    ids = [answer["first"] for answers_of_one in found.values() for answer in answers_of_one]
    assert len(set(ids)) == len(ids) == connections * each
    with penstock.open(narrow.folder) as store:
        by_id = {m.offset + 1: m for m in store.topic("events").read(limit=100_000)}
    for number, told in found.items():
        stored = [by_id[answer["first"]] for answer in told]
        assert [(m.key, m.value) for m in stored] == [(b"c%d" % number, b"%d" % n) for n in range(each)]
        assert [m.offset for m in stored] == sorted(m.offset for m in stored)


def test_what_an_ending_server_answered_is_stored(tmp_path):
    with served(tmp_path / "data", "--workers", "1") as server:
        with server.connect() as connection:
            connection.sendall(post('{"key": "k", "data": 1}') * 10)
            answered = connection.recv(65536)
            connection.sendall(post('{"key": "k", "data": 2}') * 10)
            assert server.end() == 0
            answered += read_all(connection)
        with penstock.open(server.folder) as store:
            stored = store.topic("events").stats().messages
        assert 10 <= answered.count(b"HTTP/1.1 200") <= stored <= 20
