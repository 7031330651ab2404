"""Typed topics: objects in Python, JSON in the log, whatever the type is."""

import copy
import enum
import pickle
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

import penstock
from tests.require import require


class Order(msgspec.Struct):
    id: int
    customer: str
    paid: bool = False


@dataclass
class Point:
    x: float
    y: float
    tags: list[str] = field(default_factory=list)


class Row(TypedDict):
    name: str
    size: int


class Colour(enum.Enum):
    RED = "red"


ORDERS = [Order(1, "ada", True), Order(2, "bob")]


@pytest.fixture
def topic(store):
    return store.create_topic("orders", type=Order)


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (Order, Order(1, "ada"), b'{"id":1,"customer":"ada","paid":false}'),
        (Point, Point(1.5, 2.0, ["a"]), b'{"x":1.5,"y":2.0,"tags":["a"]}'),
        (Row, {"name": "n", "size": 2}, b'{"name":"n","size":2}'),
        (dict, {"a": [1, None]}, b'{"a":[1,null]}'),
        (dict[str, int], {"a": 1}, b'{"a":1}'),
        (list, [1, "two"], b'[1,"two"]'),
        (list[Order], [Order(1, "ada")], b'[{"id":1,"customer":"ada","paid":false}]'),
        (tuple[int, str], (1, "x"), b'[1,"x"]'),
        (str, "grüße", "grüße".encode()),
        (str, "", b""),
        (int, -7, b"-7"),
        (float, 2.5, b"2.5"),
        (float, 2, b"2"),
        (bool, True, b"true"),
        (int | str, "x", b'"x"'),
        (Annotated[int, msgspec.Meta(ge=0)], 3, b"3"),
        (Literal["a", "b"], "a", b'"a"'),
        (Order | None, Order(1, "ada"), b'{"id":1,"customer":"ada","paid":false}'),
        (Any, {"any": ["thing"]}, b'{"any":["thing"]}'),
        (datetime, datetime(2030, 1, 2, tzinfo=UTC), b'"2030-01-02T00:00:00Z"'),
        (Colour, Colour.RED, b'"red"'),
        (bytes, b"as it is", b"as it is"),
    ],
)
def test_a_value_comes_back_as_it_was(store, kind, value, stored):
    """JSON is what is stored, but for text and bytes, which are stored as they are."""
    topic = store.create_topic("values", type=kind)
    topic.write(value)
    assert topic.get(0).value == value
    message = store.topic("values").get(0)
    assert (message.value, message.codec) == (stored, "raw")


def test_every_way_to_write_and_to_read(store, topic):
    topic.write(ORDERS[0], key="a", headers={"h": "x"}, timestamp=5)
    topic.write_many(ORDERS, keys=["a", "b"])
    with topic.writer() as writer:
        writer.write(ORDERS[1], key="c")
        writer.write_many([ORDERS[0]])
    expected = [ORDERS[0], *ORDERS, ORDERS[1], ORDERS[0]]
    assert [m.value for m in topic.read()] == expected
    assert [topic.get(n).value for n in range(5)] == expected
    assert [m.value for batch in topic.scan() for m in batch] == expected
    assert [m.value for m in topic.scan().messages()] == expected
    assert [m.value for m in topic.reader(follow=False)] == expected
    with topic.reader(consumer="c", follow=False) as reader:
        assert reader.receive().value == ORDERS[0]
        batch = reader.receive_batch(max_messages=2)
        assert [m.value for m in batch] == ORDERS
        reader.commit(batch)
    first = topic.get(0)
    assert (first.key, dict(first.headers), first.timestamp) == (b"a", {"h": "x"}, 5)
    assert first.text == '{"id":1,"customer":"ada","paid":true}'
    assert all(isinstance(m, penstock.Message) for m in topic.read())


def test_none_is_a_tombstone(topic):
    topic.write(None, key="a")
    topic.write_many([ORDERS[0], None])
    assert [m.value for m in topic.read()] == [None, ORDERS[0], None]
    assert [m.stored for m in topic.read()][1] == b'{"id":1,"customer":"ada","paid":true}'


def test_an_existing_topic_is_opened_with_a_type(store, topic):
    topic.write(ORDERS[0])
    assert store.topic("orders", type=Order).get(0).value == ORDERS[0]
    assert store.topic("orders", type=dict).get(0).value["customer"] == "ada"
    assert store.create_topic("orders", type=Order, exists_ok=True).get(0).value == ORDERS[0]
    assert store.topic("orders").get(0).value.startswith(b'{"id":1')


def test_a_value_is_made_once_and_only_when_it_is_looked_at(store):
    made = []

    @dataclass
    class Counted:
        n: int

        def __post_init__(self):
            made.append(self.n)

    topic = store.create_topic("counted", type=Counted)
    topic.write_many([Counted(1), Counted(2)])
    made.clear()
    batch = topic.read()
    assert [m.offset for m in batch] == [0, 1]
    assert made == []
    assert batch[1].value is batch[1].value
    assert made == [2]


@pytest.mark.parametrize("codec", ["raw", "gzip", "zstd", "lzop"])
def test_with_a_codec(topic, codec):
    with topic.writer(codec=codec) as writer:
        writer.write(ORDERS[0])
        writer.write_many([*ORDERS, None])
    assert [(m.value, m.codec) for m in topic.read()] == [
        (ORDERS[0], codec), (ORDERS[0], codec), (ORDERS[1], codec), (None, codec),
    ]  # fmt: skip


def test_arrow_and_copies_have_the_bytes(store, topic):
    topic.write_many([ORDERS[0], None])
    stored = [b'{"id":1,"customer":"ada","paid":true}', None]
    other = store.create_topic("copy")
    other.write_many(topic.read())
    other.write_many(topic.scan())
    assert [m.value for m in other.read()] == stored * 2
    again = store.create_topic("again", type=Order)
    again.write_many(other.read())
    assert [m.value for m in again.read()] == [ORDERS[0], None] * 2
    require("pyarrow")
    assert topic.read().to_arrow()["value"].to_pylist() == stored
    assert topic.scan().to_arrow()["value"].to_pylist() == stored
    again.write_many(topic.scan().to_arrow())
    assert again.get(4).value == ORDERS[0]


WRONG_VALUES = [
    (Order, {"id": 1, "customer": "ada"}),
    (Order, b"{}"),
    (Order, "text"),
    (str, b"bytes"),
    (str, 7),
    (str, "\ud800"),
    (int, "7"),
    (int, True),
    (dict, [1]),
    (dict, {"a": object()}),
    (list, ({1: 2},)),
    (Row, 5),
    (int | str, 1.5),
    (Any, object()),
]


@pytest.mark.parametrize(("kind", "value"), WRONG_VALUES)
def test_what_is_not_of_the_type_or_cannot_be_encoded_is_refused_before_anything_is_written(
    store, kind, value
):
    topic = store.create_topic("values", type=kind)
    with pytest.raises(penstock.WrongType):
        topic.write(value)
    with pytest.raises(penstock.WrongType):
        topic.write_many([None, value])
    with topic.writer() as writer:
        with pytest.raises(penstock.WrongType):
            writer.write(value)
        with pytest.raises(penstock.WrongType):
            writer.write_many([None, value])
    assert topic.stats().messages == 0


@pytest.mark.parametrize("kind", [object(), "Order", 7, type("Own", (), {}), bytearray()])
def test_a_type_without_json_is_refused_at_once(store, kind):
    with pytest.raises(penstock.WrongType, match="type="):
        store.create_topic("values", type=kind)
    assert store.topics() == []


def test_what_does_not_decode_is_an_error_for_that_message_only(store, topic):
    """It names offset and reason; the reader goes on and commits."""
    topic.write(ORDERS[0])
    plain = store.topic("orders")
    for value in (b"no json", b'{"id": "one", "customer": "x"}', b"\xff"):
        plain.write(value)
    topic.write(ORDERS[1])
    got = []
    with topic.reader(consumer="c", follow=False) as reader:
        for message in reader:
            try:
                got.append(message.value)
            except penstock.Undecodable as error:
                got.append(str(error))
            reader.commit(message)
    assert (got[0], got[4]) == (ORDERS[0], ORDERS[1])
    assert "offset 1 of 'orders' partition 0 is not of the topic's type" in got[1]
    assert "Expected `int`, got `str` - at `$.id`" in got[2]
    assert "offset 3" in got[3]
    assert topic.consumers()[0].lag == 0
    assert "cannot be decoded" in repr(topic.get(2))
    words = store.topic("orders", type=str)
    assert words.get(1).value == "no json"
    with pytest.raises(penstock.Undecodable, match="offset 3"):
        _ = words.get(3).value


def test_a_typed_message_behaves_like_any_other(topic):
    topic.write_many(ORDERS)
    first, second = topic.read()
    for again in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first)), topic.get(0)):
        assert again == first
        assert again.value == ORDERS[0]
    assert first != second
    assert "value=Order(id=1, customer='ada', paid=True)" in repr(first)


def test_the_limit_is_for_the_encoded_value(store):
    topic = store.create_topic("small", type=list, max_message_bytes=20)
    topic.write([1] * 5)
    for call in (topic.write, lambda value: topic.write_many([value]), topic.writer().write):
        with pytest.raises(penstock.MessageTooLarge):
            call([1] * 50)
    assert topic.stats().messages == 1
