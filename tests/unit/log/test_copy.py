"""Frames copied to another place: everything that is the message's own stays, all else goes."""

import pytest

import penstock
from penstock.log import frame
from penstock.log.copy import FrameRun, SingleRun
from penstock.log.frame import RAW, Frame, ProducerStamp
from penstock.log.frame_header import COMPRESSED, PRODUCER, PRODUCERS, SEQNOS, WRITTEN, read_head
from tests.kit.frames import EncodedFrame, encode
from tests.require import require

N = 40
VALUES = [None if n % 7 == 3 else b"value %d" % n * (n % 5) for n in range(N)]
KEYS = [None if n % 5 == 4 else b"key %d" % n for n in range(N)]
HEADERS = [{"text": "é", "bytes": b"\xff"} if n % 3 else None for n in range(N)]
TIMES = [1_700_000_000_123_456_789 + 7 * n for n in range(N)]
SHOP = ProducerStamp("shop-1", "till", 2)
SHAPES = {
    "plain": {},
    "keys": {"keys": KEYS},
    "everything": {"keys": KEYS, "headers": HEADERS, "timestamps": TIMES, "codec": 2},
    "producer": {"keys": KEYS, "timestamps": TIMES, "producer": (SHOP, range(5, 5 + N))},
    "seqnos": {"keys": KEYS, "headers": HEADERS, "producer": (SHOP, [n * n for n in range(N)])},
    "repacked": {
        "keys": KEYS, "headers": HEADERS, "timestamps": TIMES, "written": range(100, 100 + N),
        "producers": ([SHOP if n % 2 else None for n in range(N)], [n if n % 2 else None for n in range(N)]),
    },
    "written": {"written": range(100, 100 + N)},
}  # fmt: skip


def stored(draft: EncodedFrame, base: int = 0) -> Frame:
    data = draft.header(base=base, written_at=77, synced=0, salt=9) + bytes(draft.body)
    assert len(data) == draft.size
    head = read_head(data)
    assert head is not None
    found = frame.read_frame(data, 0, head)
    assert found.check_body()
    return found


def own(found: Frame) -> list[tuple]:
    """What is the messages' own."""
    n = found.head.count
    columns = found.keys(0, n), found.values(0, n), found.headers(0, n), found.timestamps(0, n)
    return list(zip(*columns, found.codec_numbers(0, n), strict=True))


def made(shape: str, *, compress: bool = False) -> Frame:
    if compress:
        require("zstandard")
    return stored(encode(VALUES, created=50, compress=compress, **SHAPES[shape]), base=1000)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_whole_frame_keeps_all_that_is_the_messages_own(shape, compress):
    found = made(shape, compress=compress)
    (draft,) = FrameRun(found, 0, N).drafts()
    copied = stored(draft, base=3)
    assert own(copied) == own(found)
    assert not copied.head.flags & (WRITTEN | SEQNOS | PRODUCERS | PRODUCER)
    assert (copied.head.base, set(copied.written_times(0, N)), copied.producers(0, 1)) == (3, {77}, [None])
    assert bool(copied.head.flags & COMPRESSED) == bool(found.head.flags & COMPRESSED)


@pytest.mark.parametrize("shape", ["plain", "keys", "everything", "producer"])
def test_a_frame_without_columns_to_leave_behind_keeps_its_body_and_checksum(shape):
    found = made(shape)
    copied = stored(*FrameRun(found, 0, N).drafts())
    assert (copied.head.body_crc, bytes(copied.body)) == (found.head.body_crc, bytes(found.body))


@pytest.mark.parametrize("shape", SHAPES)
def test_some_messages_of_a_frame(shape):
    found = made(shape)
    for places in ([0], [N - 11], [1, 2, 3], [0, 5, 6, 9], list(range(N - 10))):
        copied = stored(*FrameRun(found, 10, N).some([p for p in places if p < N - 10]))
        assert own(copied) == [own(found)[10 + p] for p in places if p < N - 10]
    assert own(stored(*FrameRun(found, 10, 20).drafts())) == own(found)[10:20]


def test_codecs_that_differ_become_a_frame_each():
    codecs = [0] * 3 + [2] * 4 + [1] + [0] * 2
    found = stored(encode([b"x%d" % n for n in range(10)], created=1, codecs=codecs))
    parts = [stored(draft) for draft in FrameRun(found, 0, 10).drafts()]
    assert [(part.head.count, part.head.codec) for part in parts] == [(3, 0), (4, 2), (1, 1), (2, 0)]
    assert [row for part in parts for row in own(part)] == own(found)
    assert FrameRun(found, 2, 5).codecs() == {0, 2}


def test_tombstones_and_longest_value():
    run = FrameRun(made("repacked"), 10, 30)
    assert run.tombstones() == [p for p in range(20) if VALUES[10 + p] is None]
    assert run.longest(10) == max(len(v or b"") for v in VALUES[10:30])
    assert run.longest(penstock.parse.MIB) <= penstock.parse.MIB
    assert FrameRun(made("written"), 0, 3).tombstones() == []


def test_loose_messages():
    run = SingleRun(KEYS[:6], [b"a", b"bb", b"", b"c", b"d", b"e"], TIMES[:6], range(6))
    copied = stored(*run.some([1, 2, 4]))
    wanted = {1: b"bb", 2: b"", 4: b"d"}
    assert own(copied) == [(KEYS[place], value, {}, TIMES[place], RAW) for place, value in wanted.items()]
    assert (len(run), run.longest(1), run.tombstones(), run.codecs()) == (6, 2, [], {RAW})
