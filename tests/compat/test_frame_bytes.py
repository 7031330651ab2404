"""The byte tables of docs/FORMAT.md, packed by hand here and compared with what the code writes."""

import struct
from zlib import crc32

import pytest

from penstock.errors import DataError, UnknownFormat
from tests.kit import frames as encode
from tests.kit.frames import FENCE, ProducerStamp
from tests.kit.frames import frame_module as frame
from tests.kit.logs import AppendRecord, DurableRecord, SegmentHead, ShownRecord
from tests.kit.values import codecs_module as codecs
from tests.kit.values import zstd_module as zstd


def framed(body: bytes, *, flags: int, codec: int, count: int, created: int, extension: bytes = b"") -> bytes:
    """A frame by the table: base offset 7, written at 11, synced 13, salt 17."""
    rest = (
        struct.pack("<IIHHHHII", crc32(body), len(body), 64 + len(extension), flags, 0, codec, count, 17)
        + struct.pack("<QqqQ", 7, 11, created, 13)
        + extension
    )
    whole = b"PSKF" + struct.pack("<I", crc32(rest)) + rest + body
    return whole + bytes(-len(whole) % 8)


def written(draft: encode.EncodedFrame) -> bytes:
    return draft.header(base=7, written_at=11, synced=13, salt=17) + draft.body


def test_a_frame_of_one_keyed_message():
    body = struct.pack("<IIII", 0, 3, 0, 5) + b"key" + b"value"
    assert written(encode.encode([b"value"], [b"key"], created=5)) == framed(
        body, flags=0b1, codec=1, count=1, created=5
    )


def test_a_frame_with_nulls_times_and_headers():
    body = (
        struct.pack("<IIIII", 0, 0, 0, 1, 0)[:16]  # key offsets of None, b"", b"k"
        + struct.pack("<IIII", 0, 0, 0, 2)  # value offsets of None, b"", b"vv"
        + bytes([0b110]) + bytes(7)  # key validity
        + bytes([0b110]) + bytes(7)  # value validity
        + struct.pack("<qqq", 1, -5, 3)  # timestamps, one before 1970
        + struct.pack("<IIII", 0, 0, 2, 2)  # header offsets: the second message has two
        + struct.pack("<III", 0, 1, 3) + bytes(4)  # names "a" and "bc"
        + struct.pack("<III", 0, 1, 2) + bytes(4)  # values "x" and b"y"
        + bytes([0b01]) + bytes(7)  # the first was text
        + b"k" + b"vv" + b"abc" + b"xy"
    )  # fmt: skip
    draft = encode.encode(
        [None, b"", b"vv"],
        [None, b"", b"k"],
        created=9,
        timestamps=[1, -5, 3],
        headers=[None, {"a": "x", "bc": b"y"}, None],
    )
    assert written(draft) == framed(body, flags=0b101111, codec=1, count=3, created=9)


def test_a_frame_of_a_producer_with_gaps_in_its_numbers():
    extension = struct.pack("<qIHH", 4, 2, 4, 2) + b"shop" + b"g1"
    extension += bytes(-len(extension) % 8)
    body = struct.pack("<III", 0, 1, 2) + bytes(4) + struct.pack("<qq", 4, 9) + b"ab"
    draft = encode.encode([b"a", b"b"], created=0, producer=(ProducerStamp("shop", "g1", 2), [4, 9]))
    assert written(draft) == framed(
        body, flags=1 << 6 | 1 << 7, codec=1, count=2, created=0, extension=extension
    )


def test_a_repacked_frame_names_a_producer_for_each_message():
    body = (
        struct.pack("<III", 0, 1, 2) + bytes(4)
        + struct.pack("<qq", 20, 30)  # written times
        + struct.pack("<qq", 0, 8)  # seqnos
        + struct.pack("<II", 0, 1)  # producers: none, the first
        + b"ab"
        + struct.pack("<IHH", 3, 1, 0) + b"p"
    )  # fmt: skip
    draft = encode.encode(
        [b"a", b"b"], created=0, written=[20, 30], producers=([None, ProducerStamp("p", None, 3)], [None, 8])
    )
    assert written(draft) == framed(body, flags=1 << 4 | 1 << 7 | 1 << 8, codec=1, count=2, created=0)


def test_a_frame_of_packed_values_names_their_codec():
    packed = [codecs.encode(codecs.GZIP, b"one"), codecs.encode(codecs.GZIP, b"two")]
    offsets = struct.pack("<III", 0, len(packed[0]), len(packed[0] + packed[1])) + bytes(4)
    draft = encode.encode(packed, created=5, codec=codecs.GZIP)
    assert written(draft) == framed(offsets + b"".join(packed), flags=0, codec=2, count=2, created=5)


def test_a_frame_whose_messages_have_different_codecs():
    body = (
        struct.pack("<IIII", 0, 1, 2, 2)
        + bytes([0b011]) + bytes(7)  # value validity
        + struct.pack("<HHH", 1, 10001, 4) + bytes(2)  # codecs
        + b"ab"
    )  # fmt: skip
    draft = encode.encode([b"a", b"b", None], created=5, codec=1, codecs=[1, 10001, 4])
    assert written(draft) == framed(body, flags=1 << 2 | 1 << 9, codec=1, count=3, created=5)


def test_a_compressed_frame():
    """The extension tells the length before; both checksums are of the bytes as they lie there."""
    body = struct.pack("<II", 0, 1000) + b"v" * 1000
    stored = zstd.encode_frame(body)
    assert written(encode.encode([b"v" * 1000], created=5, compress=True)) == framed(
        stored, flags=1 << 11, codec=1, count=1, created=5, extension=struct.pack("<IHH", 1008, 4, 0)
    )


#: What `test_a_compressed_frame` packs, as libzstd 1.5 wrote it: any later one must read it.
COMPRESSED_BODY = bytes.fromhex("28b52ffd60f0028500004800000000e8030000760100e42b7004")


def test_a_compressed_frame_of_an_older_library_is_read():
    data = framed(
        COMPRESSED_BODY, flags=1 << 11, codec=1, count=1, created=5, extension=struct.pack("<IHH", 1008, 4, 0)
    )
    ((_, found),) = frame.walk(data)
    assert found.message("t", 0, 0).value == b"v" * 1000
    assert bytes(found.body) == struct.pack("<II", 0, 1000) + b"v" * 1000


@pytest.mark.parametrize("length", [0, 1007, 1009, 16 * 2**20 + 1, 2**32 - 1])
def test_a_compressed_frame_that_lies_about_its_length_is_refused(length):
    data = framed(
        COMPRESSED_BODY,
        flags=1 << 11,
        codec=1,
        count=1,
        created=5,
        extension=struct.pack("<IHH", length, 4, 0),
    )
    ((_, found),) = frame.walk(data)
    with pytest.raises(DataError, match="the frame at offset 7 cannot be unpacked"):
        found.message("t", 0, 0)


def test_a_frame_compressed_in_an_unknown_way_is_of_a_newer_penstock():
    data = framed(
        COMPRESSED_BODY, flags=1 << 11, codec=1, count=1, created=5, extension=struct.pack("<IHH", 1008, 9, 0)
    )
    ((_, found),) = frame.walk(data)
    with pytest.raises(UnknownFormat, match="codec 9"):
        found.message("t", 0, 0)


def test_a_fence_is_a_frame_without_messages():
    extension = struct.pack("<qIHH", 41, 6, 1, 0) + b"p"
    extension += bytes(-len(extension) % 8)
    draft = encode.control(FENCE, b"", created=3, producer=ProducerStamp("p", None, 6), seqno=41)
    assert written(draft) == framed(b"", flags=1 << 6, codec=1, count=0, created=3, extension=extension)


def test_a_segment_header():
    rest = struct.pack("<HHIIQQIIq", 1, 64, 17, 2, 1200, 99, 3, 0, 5) + bytes(8)
    expected = b"PENSTOCK" + struct.pack("<I", crc32(rest)) + rest
    assert (
        SegmentHead(salt=17, generation=2, base=1200, topic_id=99, partition=3, created=5).pack() == expected
    )
    assert len(expected) == 64


def test_the_three_records():
    def sealed(fields: bytes) -> bytes:
        fields += bytes(60 - len(fields))
        return struct.pack("<I", crc32(fields)) + fields

    a = AppendRecord(
        flags=1, tree=2, boot=3, pid=4, byte=5, next=6, segment=7, reserved=8, last_written_at=9, pending=10
    )
    assert a.pack() == sealed(struct.pack("<BBHQIIQQQqQ", 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
    s = ShownRecord(flags=2, tree=2, boot=3, start=4, end=5, segment=6, byte=7)
    assert s.pack() == sealed(struct.pack("<BBHQQQQQ", 1, 2, 2, 3, 4, 5, 6, 7))
    d = DurableRecord(flags=1, cuts=2, boot=3, end=4, segment=5, byte=6)
    assert d.pack() == sealed(struct.pack("<BBHQQQQ", 1, 1, 2, 3, 4, 5, 6))


def test_a_batch_of_one_costs_at_most_96_bytes_and_a_thousand_at_most_10_each():
    for size in range(9):
        one = encode.encode([b"v" * size], [b"k" * 16], created=0)
        assert one.size - size - 16 <= 96
    thousand = encode.encode([b"v" * 204] * 1000, [b"k" * 16] * 1000, created=0)
    assert (thousand.size - 1000 * 220) / 1000 <= 10
    uneven = encode.encode([b"v" * (i % 90) for i in range(1000)], [b"k" * 16] * 1000, created=0)
    assert (uneven.size - sum(i % 90 for i in range(1000)) - 16_000) / 1000 <= 10
