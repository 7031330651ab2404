"""The buffer between `write` and the log: what a call was given belongs to the call, and is checked by it."""

import inspect
import random
from types import MappingProxyType

import msgspec
import pytest

import penstock
from penstock.topic.value_codec import coder_of
from penstock.topic.write_buffer import WIDTH


@pytest.fixture
def topic(tmp_path):
    with penstock.open(tmp_path / "store") as store:
        yield store.create_topic("orders", sync="os", partitions=2)


@pytest.fixture
def writer(topic):
    with topic.writer(linger=60) as writer:
        yield writer


def test_a_dict_that_the_caller_uses_again_is_stored_as_it_was_at_each_call(topic, writer):
    headers = {"source": "web"}
    for number in range(50):
        headers["id"] = str(number)
        writer.write(b"%d" % number, partition=0, headers=headers)
        writer.write(b"%d" % number, partition=1, headers=headers)
    writer.flush()
    for partition in range(2):
        found = topic.read(partition=partition)
        assert [m.headers for m in found] == [{"source": "web", "id": str(n)} for n in range(50)]


def test_buffers_that_the_caller_uses_again_are_stored_as_they_were(topic, writer):
    value, key = bytearray(b"one"), bytearray(b"k1")
    writer.write(value, key=key, partition=0)
    value[:], key[:] = b"two", b"k2"
    writer.write(memoryview(value), key=key, partition=0)
    value[:] = b"six"
    writer.flush()
    assert [(m.key, m.value) for m in topic.read(partition=0)] == [(b"k1", b"one"), (b"k2", b"two")]


@pytest.mark.parametrize(
    "headers",
    [
        [{"a": "1"}, {"a": "1"}, {"a": "1"}],
        [{"a": "1"}, {"a": b"1"}, {"a": "1"}],
        [{"a": "1"}, {}, {"a": "1"}],
        [None, {"a": "1"}, None, {"a": "1", "b": "é"}],
        [MappingProxyType({"a": "1"}), {"a": "1"}, MappingProxyType({"a": b"\xff"})],
        [{"a": "1", "b": "2"}, {"b": "3", "a": "4"}, {"c": ""}],
    ],
)
@pytest.mark.parametrize("own", [None, {"own": "x", "a": "0"}])
def test_headers_of_every_kind_come_back(topic, headers, own):
    with topic.writer(linger=60, headers=own) as writer:
        for each in headers:
            writer.write(b"v", partition=0, headers=each)
            writer.write(b"v", key=b"one of partition 1 or 0", headers=each)
    wanted = [{**(own or {}), **(each or {})} for each in headers]
    assert [dict(m.headers) for m in topic.read(partition=0) if m.key is None] == wanted
    found = [m for p in range(2) for m in topic.read(partition=p) if m.key is not None]
    assert [dict(m.headers) for m in found] == wanted


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"value": 1}, penstock.WrongType),
        ({"value": b"x" * 2_000_000}, penstock.MessageTooLarge),
        ({"value": "\ud800"}, penstock.InvalidOption),
        ({"value": b"", "key": "\ud800"}, penstock.InvalidOption),
        ({"value": b"", "key": 1.5}, penstock.WrongType),
        ({"value": b"", "key": b"k" * 100_000}, penstock.MessageTooLarge),
        ({"value": b"", "headers": {"a": 1}}, penstock.WrongType),
        ({"value": b"", "headers": {1: "a"}}, penstock.WrongType),
        ({"value": b"", "headers": [("a", "b")]}, penstock.WrongType),
        ({"value": b"", "headers": {"a": "\ud800"}}, penstock.InvalidOption),
        ({"value": b"", "headers": {"a": "x" * 100_000}}, penstock.MessageTooLarge),
        ({"value": b"", "timestamp": "now"}, penstock.WrongType),
        ({"value": b"", "timestamp": True}, penstock.WrongType),
        ({"value": b"", "timestamp": 2**63}, penstock.InvalidOption),
        ({"value": b"", "partition": 7}, penstock.InvalidOption),
        ({"value": b"", "group": ""}, penstock.InvalidOption),
        ({"value": b"", "seqno": 1}, penstock.InvalidOption),
    ],
)
def test_a_bad_argument_is_refused_by_the_call_that_brought_it(topic, writer, arguments, error):
    """And nothing else is: what came before and after is stored."""
    writer.write(b"before", partition=0)
    with pytest.raises(error):
        writer.write(**arguments)
    writer.write(b"after", partition=0)
    writer.flush()
    assert [m.value for p in range(2) for m in topic.read(partition=p)] == [b"before", b"after"]


def test_only_the_value_is_given_by_position(topic, writer):
    with pytest.raises(TypeError, match="one positional argument"):
        writer.write(b"value", b"key")
    with pytest.raises(TypeError):
        writer.write()
    with pytest.raises(TypeError):
        writer.write(b"value", kee=b"key")
    shown = inspect.signature(writer.write).parameters.values()
    public = inspect.signature(type(writer).write).parameters.values()
    assert [(each.name, each.kind) for each in shown] == [(each.name, each.kind) for each in public][1:]
    assert not writer.buffer.rows


def test_mixed_messages_keep_their_order_and_everything_they_have(topic):
    """Random kinds of arguments, one after the other, compared with what is read."""
    source = random.Random(7)
    values = [b"v", "é", None, bytearray(b"b"), "x" * 3000, b""]
    keys = ["k", b"k", None, ["chat", 1], "ключ", b""]
    times = [None, 5, -1, 1_700_000_000_000_000_000]
    heads = [None, {"a": "1"}, {"a": b"2"}, {}]
    stored = {b"v": b"v", "é": "é".encode(), "x" * 3000: b"x" * 3000}
    wanted = []
    with topic.writer(linger=60) as writer:
        for number in range(3000):
            value, key, moment, headers = map(source.choice, (values, keys, times, heads))
            writer.write(value, key=key, timestamp=moment, headers=headers, partition=0)
            body = bytes(value) if isinstance(value, bytearray) else value
            wanted.append((stored.get(body, body), moment, dict(headers or {})))
            if number % 700 == 0:
                writer.flush()
    found = list(topic.read(partition=0, limit=5000))
    assert len(found) == len(wanted)
    for message, (value, moment, headers) in zip(found, wanted, strict=True):
        assert (message.value, dict(message.headers)) == (value, headers)
        assert moment is None or message.timestamp == moment


def test_a_row_is_added_in_one_step(writer):
    writer.write(b"a", key="k")
    writer.write("b", key=b"k", partition=1, timestamp=5)
    assert len(writer.buffer.rows) == 2 * WIDTH
    assert writer.buffer.rows[:3] == [b"a", b"k", None]
    assert writer.buffer.rows[4:6] == [b"b", b"k"]


def test_of_a_typed_topic_a_key_that_is_wrong_is_called_so(topic):
    class Order(msgspec.Struct):
        number: int

    for kind, value in ((Order, Order(1)), (str, "text"), (float, 1.5)):
        with type(topic)(topic.open_topic, coder_of(kind)).writer(linger=60) as typed:
            with pytest.raises(penstock.InvalidOption, match="key holds a lone surrogate"):
                typed.write(value, key="\ud800")
            typed.write(value, key="k")
    assert topic.stats().messages == 3


def test_headers_that_cannot_be_compared_are_refused_like_others(topic, writer):
    class Vague:
        def __eq__(self, other):
            raise ValueError("neither nor")

        __hash__ = None

    writer.write(b"one", headers={"a": "1"})
    with pytest.raises(penstock.WrongType, match="header 'a' is str or bytes, not Vague"):
        writer.write(b"two", headers={"a": Vague()})
    writer.flush()
    assert writer.written == 1


def test_a_seqno_of_a_delayed_message_is_refused_not_forgotten(writer):
    with pytest.raises(penstock.InvalidOption, match="a seqno needs a producer"):
        writer.write(b"one", seqno=1, delay="1h")


def test_what_python_says_of_wrong_arguments_names_the_call(writer):
    with pytest.raises(TypeError, match=r"Writer\.write\(\) got an unexpected keyword argument 'colour'"):
        writer.write(b"one", colour="red")
