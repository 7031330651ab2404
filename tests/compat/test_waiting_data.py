"""What waits has the bytes of docs/FORMAT.md, written out by hand; fields are only ever added at the end."""

import msgspec

import penstock
from tests.kit.consumers import Envelope
from tests.kit.consumers import retries_module as retries
from tests.kit.topics import DelayedMessage, Extras, inside
from tests.kit.topics import delayed_module as delayed
from tests.kit.waiting import SessionData
from tests.kit.waiting import encoder as _encoder

#: As versions wrote it that kept no traceback.
RETRY = bytes.fromhex(
    "9e"  # 14 fields
    "07 02 05"  # topic id, partition, offset
    "c4 01 6b  c4 02 7678  01"  # key, value, codec
    "0a 0b"  # timestamp, written at
    "82 a1 61 a1 62 a1 63 c4 01 ff"  # headers: text and bytes
    "a1 70 c0 03"  # producer id, group, seqno
    "a1 78 a1 79"  # first and last error
)
DELAYED = bytes.fromhex("98 07 c0 c4 02 7678 01 c0 0a 02 a1 67")
SESSION = bytes.fromhex("93 92 c4 01 61 c4 01 62 a0 a1 78")


def test_a_retry():
    headers = {"a": "b", "c": b"\xff"}
    found = Envelope(7, 2, 5, b"k", b"vx", 1, 10, 11, headers, "p", None, 3, "x", "y")
    assert retries.decode(RETRY) == found
    later = bytes.fromhex("9f") + RETRY[1:] + bytes.fromhex("a0")
    assert retries.encoded(found) == later
    assert retries.decode(later) == found
    assert retries.waiting_id("billing", found, 1).hex() == "0000000000007e9ca180c2bae1747898"


def test_fields_that_are_added_later_are_passed_over():
    later = bytes.fromhex("dc 00 10") + RETRY[1:] + bytes.fromhex("a0 2a")
    assert retries.decode(later) == retries.decode(RETRY)


def test_a_delayed_message(tmp_path):
    found = DelayedMessage(7, None, b"vx", 1, None, 10, 2, "g")
    assert delayed.decode(DELAYED) == found
    assert msgspec.msgpack.encode(found) == DELAYED
    with penstock.open(tmp_path / "store") as store:
        topic = inside(store.create_topic("t"))
        due = delayed.due_at("1h", None, 0)
        stored = delayed.postponed(topic, b"vx", None, Extras(None, 10, 2, "g"), due, 1).data
    expected = msgspec.structs.replace(found, topic_id=topic.record.id)
    assert stored == msgspec.msgpack.encode(expected)


def test_a_session():
    assert _encoder.encode(SessionData([b"a", b"b"], "", "x")) == SESSION
