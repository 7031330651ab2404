"""Offsets as bits."""

import random

from penstock.topic.copy import OffsetSet


def test_marked_offsets_are_found_again_in_any_part():
    chance = random.Random(5)
    for first in (0, 3, 8, 1_000_005):
        stop = first + chance.randrange(1, 300)
        chosen = {offset for offset in range(first, stop) if chance.random() < 0.3}
        marks = OffsetSet(first, stop)
        marks.add(chosen)
        assert len(marks) == len(chosen)
        for _ in range(30):
            low = chance.randrange(first, stop)
            high = chance.randrange(low, stop + 1)
            wanted = [offset - low for offset in range(low, high) if offset in chosen]
            assert list(marks.places(low, high)) == wanted
            assert list(marks.between(low, high).places(low, high)) == wanted


def test_bits_from_elsewhere_that_begin_before_and_end_behind():
    marks = OffsetSet(100, 200)
    bits = bytearray(32)
    for offset in (99, 100, 103, 160, 199, 200, 255):
        bits[offset // 8] |= 1 << offset % 8
    marks.add_bits(0, bytes(bits))
    marks.add_bits(160, b"\x02")
    assert [100 + place for place in marks.places(100, 200)] == [100, 103, 160, 161, 199]


def test_all_marked_is_a_range():
    marks = OffsetSet(5, 25)
    marks.add(range(5, 25))
    assert marks.places(7, 20) == range(13)
    assert list(OffsetSet(5, 5).places(5, 5)) == []
