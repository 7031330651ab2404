"""Messages of a typed topic are made from a frame at once: as each by itself would be."""

import msgspec
import pytest

import penstock
from penstock.log.rows import FrameRows
from penstock.message import LazyMessage, typed


class Order(msgspec.Struct):
    number: int


DECODE = msgspec.json.Decoder(Order).decode


@pytest.fixture
def topic(tmp_path):
    with penstock.open(tmp_path / "store") as store:
        store.create_topic("orders", sync="os")
        yield store.topic("orders", type=Order)


@pytest.mark.parametrize("codec", ["raw", "gzip"])
@pytest.mark.parametrize("headers", [None, {"a": "b"}])
def test_typed_messages_of_a_frame_are_those_made_one_by_one(topic, codec, headers):  # S001-10
    with topic.writer(codec=codec, linger=60) as writer:  # one frame, however slow the machine
        for number in range(5):
            writer.write(Order(number), key=b"k", headers=headers)
            writer.write(None, key=b"gone")
    (rows,) = topic.read().rows
    assert isinstance(rows, FrameRows)
    apart = [typed(message, DECODE) for message in rows.messages()]
    together = rows.messages(DECODE)
    assert [type(each) for each in together] == [LazyMessage] * 10
    assert together == apart
    assert [each.stored for each in together] == [each.stored for each in apart]
    assert [each.value for each in together] == [x for n in range(5) for x in (Order(n), None)]
    assert {each.codec for each in together} == {codec}


def test_what_is_not_of_the_type_is_said_when_it_is_looked_at(topic):  # S001-10
    topic.write_many([Order(1), Order(2)])
    (rows,) = topic.read().rows
    rows.frame.body = bytes(rows.frame.body).replace(b'{"number":2}', b'{"number":x}')
    first, second = rows.messages(DECODE)
    assert first.value == Order(1)
    assert second.offset == 1
    for _ in range(2):
        with pytest.raises(penstock.Undecodable, match="offset 1"):
            _ = second.value
