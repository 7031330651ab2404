"""Columns of strings in Arrow's buffers, without a look at single strings."""

import random

import pytest

from tests.require import module

pa = module("pyarrow")

from penstock.log.arrow_input import ArrowStrings, strings  # noqa: E402


@pytest.mark.parametrize("seed", range(300))
def test_fits_as_the_longest_string_does(seed):
    chance = random.Random(seed)
    limit = chance.choice([1, 7, 64, 1000])
    lengths = [chance.choice([0, 1, limit // 2, limit, chance.randint(0, limit)]) for _ in range(200)]
    if seed % 3 == 0:
        lengths[chance.randrange(len(lengths))] = limit + 1  # one that does not fit, anywhere
    strings = [None if chance.random() < 0.1 else bytes(length) for length in lengths]
    first, stop = sorted(chance.sample(range(len(strings) + 1), 2))
    longest = max((len(string or b"") for string in strings[first:stop]), default=0)
    assert ArrowStrings(pa.array(strings, pa.binary())[first:stop]).fits(limit) == (longest <= limit)


def test_one_string_beyond_the_limit_is_found_among_thousands():
    strings = [b"0123456789abcdef"] * 5000
    assert ArrowStrings(pa.array(strings, pa.binary())).fits(4096)
    for place in (0, 1, 2499, 4998, 4999):
        with_long = [*strings[:place], bytes(4097), *strings[place + 1 :]]
        assert not ArrowStrings(pa.array(with_long, pa.binary())).fits(4096)


def test_a_column_of_text_holds_bytes_for_whoever_asks():
    text = [None, "one", "", "ключ", "two"]
    expected = [None if each is None else each.encode() for each in text]
    column = strings(pa.array(["before", *text], pa.string())[1:])
    assert list(column) == expected
    assert [column[place] for place in range(len(column))] == expected
    assert list(column[1:4]) == expected[1:4]
    assert list(column.take([3, 1])) == [expected[3], expected[1]]
    assert "ключ".encode() in column
    assert None in column
    assert "one" not in column


def test_chunks_of_text_become_one_column():
    chunks = pa.chunked_array([["one"], [], ["two", "three"]], pa.string())
    assert list(strings(chunks)) == [b"one", b"two", b"three"]
    assert list(strings(pa.chunked_array([], pa.string()))) == []
