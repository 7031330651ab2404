"""One message with a key and headers has a shorter way in and out: the same bytes, the same message."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log import frame, single_frame
from penstock.log.frame_columns import pack_strings, padded
from penstock.log.frame_header import read_head
from penstock.log.header_column import pack_headers
from tests.kit import frames as encode

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
    general = pack_headers((headers,))
    offsets = [pack_strings((key,)).offsets, pack_strings((value,)).offsets, *general.columns]
    wanted = b"".join([*offsets, key, value, *general.names, *general.values])
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
    assert single_frame.encode(b"value", b"key", {"name": "text"}, has_key=True) is not None
    assert single_frame.encode(b"value", b"key", None, has_key=True) is not None
    assert single_frame.encode(b"value", None, None, has_key=False) is not None
    assert single_frame.encode(b"value", b"key", {}, has_key=True) is None
    assert single_frame.encode(None, b"key", {"name": "text"}, has_key=True) is None
    assert single_frame.encode(b"value", None, {"name": "text"}, has_key=False) is None
    assert single_frame.encode(b"value", None, None, has_key=True) is None


def test_one_message_whose_headers_are_empty_is_read_by_the_general_way():
    draft = encode.encode((b"value",), (b"key",), created=5, headers=({},))
    stored = draft.header(base=7, written_at=9, synced=0, salt=1) + bytes(draft.body)
    found = frame.read_frame(stored, 0, read_head(stored))
    assert single_frame.fields(found.body) is None
    assert dict(found.message("t", 0, 0).headers) == {}
