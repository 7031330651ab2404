"""One message with a key and headers has a shorter way in and out: the same bytes, the same message."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log import frame
from penstock.log import frame_encode as encode
from penstock.log import single_frame as lone
from penstock.log.frame_columns import padded
from penstock.log.frame_header import read_head

NAMES = st.text(max_size=12).filter(lambda name: name.isprintable() or not name)
VALUES = st.text(max_size=30) | st.binary(max_size=30)


@settings(max_examples=60)
@given(
    value=st.binary(max_size=100),
    key=st.binary(max_size=20),
    headers=st.dictionaries(NAMES, VALUES, min_size=1, max_size=70),
)
def test_the_shorter_way_makes_the_same_bytes_and_reads_them(value, key, headers):
    draft = encode.encode((value,), (key,), created=5, headers=(headers,))
    # Two messages never take the shorter way; what they have in common with one is compared column by column.
    general, strings = encode._pack_headers((headers,))
    offsets = [
        encode._pack_strings((key,), None)[0],
        encode._pack_strings((value,), None)[0],
        *general,
    ]
    wanted = b"".join([*offsets, key, value, *(part for column in strings for part in column)])
    assert bytes(draft.body) == padded(wanted)
    stored = draft.header(base=7, written_at=9, synced=0, salt=1) + bytes(draft.body)
    del draft
    found = frame.read_frame(stored, 0, read_head(stored))
    assert found.check_body()
    message = found.message("t", 0, 0)
    assert (message.key, message.value, dict(message.headers)) == (key, value, headers)
    assert (message.offset, message.timestamp, message.written_at) == (7, 5, 9)
    assert message == found.messages("t", 0, 0, 1)[0]


def test_canary_the_shorter_way_is_taken():
    assert lone.parts(b"value", b"key", {"name": "text"}) is not None
    assert lone.parts(b"value", b"key", {}) is None
    assert lone.parts(None, b"key", {"name": "text"}) is None
    assert lone.parts(b"value", None, {"name": "text"}) is None


def test_one_message_whose_headers_are_empty_is_read_by_the_general_way():
    draft = encode.encode((b"value",), (b"key",), created=5, headers=({},))
    stored = draft.header(base=7, written_at=9, synced=0, salt=1) + bytes(draft.body)
    found = frame.read_frame(stored, 0, read_head(stored))
    assert lone.fields(found.body) is None
    assert dict(found.message("t", 0, 0).headers) == {}
