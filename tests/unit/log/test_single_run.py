"""Frames of one message that are as long as one another are read by columns: as each by itself would be."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log import frame
from penstock.log.frame_header import HEADER_BYTES
from penstock.log.single_frame import decode_run, take_singles
from penstock.log.single_run import take_even
from tests.kit import frames as encode

SALT = 0xFEDC_BA98  # more than a signed number holds
IDENTITY = 1 | SALT << 32
FIRST = 70_000


def stored(messages, *, first=FIRST, salt=SALT):
    """Each message, a pair of key and value, as a frame of its own."""
    whole = b""
    for number, (key, value) in enumerate(messages):
        keys = None if key is None else (key,)
        draft = encode.encode((value,), keys, created=1000 - number)
        header = draft.header(base=first + number, written_at=number * 7, synced=3, salt=salt)
        whole += header + bytes(draft.body)
        del draft
    return whole


def one_by_one(data):
    return [
        message for _, found in frame.walk(data) for message in found.messages("t", 2, 0, found.head.count)
    ]


def decoded(data, limit=10_000):
    return decode_run(data, 0, topic="t", partition=2, offset=FIRST, salt=SALT, limit=limit)


ALIKE = [(b"key%02d" % n, b"a value %03d" % n) for n in range(40)]
WITHOUT = [(None, b"a value %03d" % n) for n in range(40)]


@pytest.mark.parametrize("messages", [ALIKE, WITHOUT, [(b"", b"")] * 20], ids=["keys", "none", "empty"])
def test_an_even_run_is_read_whole(messages):
    data = stored(messages)
    assert decoded(data) == (one_by_one(data), len(data))
    assert decoded(memoryview(data)) == (one_by_one(data), len(data))
    run = take_even(memoryview(data), 0, offset=FIRST, most=10_000, identity=IDENTITY)
    assert run is not None
    assert len(run.values) == len(messages)


def test_a_limit_ends_it():
    data = stored(ALIKE)
    messages, end = decoded(data, limit=11)
    assert (len(messages), end) == (11, len(data) // 40 * 11)


LENGTHS = st.sampled_from([0, 1, 8, 9, 30])


@settings(max_examples=80)
@given(st.lists(st.tuples(st.none() | LENGTHS, LENGTHS, st.integers(1, 14)), max_size=8))
def test_runs_of_any_lengths_follow_each_other(runs):
    chance = random.Random(7)
    data = stored(
        (None if key is None else chance.randbytes(key), chance.randbytes(value))
        for key, value, count in runs
        for _ in range(count)
    )
    behind = bytes(16)  # the last frame may be shorter than what is looked at of each
    assert decoded(data + behind) == (one_by_one(data), len(data))


def test_a_key_that_is_longer_by_what_the_value_is_shorter():
    data = stored([*ALIKE[:12], (b"longer key", b"a value"), *ALIKE[:12]])
    assert decoded(data) == (one_by_one(data), len(data))


@pytest.mark.parametrize("place", [0, 1, 9, 23, 39])
def test_a_flipped_bit_anywhere_ends_the_run_before_its_frame(place):
    data = stored(ALIKE)
    size = len(data) // len(ALIKE)
    body = 16 + 5 + 11  # offsets, key, value: what is behind fills up to eight bytes
    for byte in range(4, HEADER_BYTES + body):  # the magic is for who looks for a frame
        broken = bytearray(data)
        broken[place * size + byte] ^= 0x10
        messages, end = decoded(bytes(broken))
        assert (len(messages), end) == (place, place * size), f"byte {byte}"


@pytest.mark.parametrize(
    ("following", "count"),
    [
        (stored(ALIKE[:9], first=FIRST + 21), 20),
        (stored(ALIKE[:9], first=FIRST + 20, salt=1), 20),
        (stored(ALIKE[:9], first=FIRST + 20)[:-8], 28),
    ],
    ids=["another offset", "another salt", "torn"],
)
def test_what_does_not_belong_ends_the_run(following, count):
    data = stored(ALIKE[:20]) + following
    taken, end = take_singles(data, 0, offset=FIRST, stop=FIRST + 1000, salt=SALT)
    assert taken.values == [value for _, value in [*ALIKE[:20], *ALIKE[:9]]][:count]
    assert end == len(stored(ALIKE[:count]))
