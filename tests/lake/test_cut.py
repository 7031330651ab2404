"""Which offsets are read from the table, which from the log, which are lost: by trying all cases."""

import datetime
from itertools import product

from tests.kit.archives import NOTHING, Held, LakeFile, OffsetRange, first_offset, shared
from tests.kit.slices import SegmentRange, Slice, clipped, divided, instead, range_bytes, reach

ENDS = range(7)


def file(first: int, stop: int, *, size: int = 100) -> LakeFile:
    return LakeFile(
        f"{first}-{stop}", datetime.date(2026, 3, 1), 0, first, stop, stop - first, size, (0, 0), (0, 0)
    )


def held(first: int, stop: int) -> Held:
    return Held(first, stop, (file(first, stop),)) if first < stop else NOTHING


def test_each_offset_is_read_once_from_where_it_is_or_is_lost():
    for start, stop, first, behind, log_start in product(ENDS, repeat=5):
        if start > stop:
            continue
        table = held(first, behind)
        archived, live, lost = shared(start, stop, table, log_start)
        wanted = range(start, stop)
        assert list(range(*archived)) == [
            at for at in wanted if at < log_start and table.first <= at < table.next
        ]
        assert list(range(*live)) == [at for at in wanted if at >= log_start]
        told = [at for each in lost for at in range(*each)]
        gone = [at for at in wanted if at < log_start and not table.first <= at < table.next]
        assert [at for at in told if at in wanted] == gone
        assert bool(lost) == bool(gone)


def test_what_is_lost_ends_where_there_is_something_again():
    assert shared(0, 3, NOTHING, 9).lost == (OffsetRange(0, 9),)
    assert shared(0, 9, held(2, 5), 9).lost == (OffsetRange(0, 2), OffsetRange(5, 9))
    assert shared(5, 6, held(2, 5), 9).lost == (OffsetRange(5, 9),)
    assert shared(3, 5, held(2, 5), 9).lost == ()


def test_the_topic_begins_where_either_does():
    assert first_offset(NOTHING, 4) == 4
    assert first_offset(held(2, 3), 4) == 2
    assert first_offset(held(6, 8), 4) == 4


def test_stretches_follow_each_other_without_gaps():
    """Offsets 3, 4 and 8, 9 were never given to a message."""
    table = Held(1, 10, (file(1, 3), file(5, 6), file(6, 8)))
    for start, stop in product(range(12), repeat=2):
        found = table.stretches(start, stop)
        covered = [at for each in found for at in range(each.base, each.stop)]
        assert covered == list(range(max(start, 1), min(stop, 10)))
        for each in found:
            assert all(each.file.first <= at for at in range(each.base, each.stop))
    assert NOTHING.stretches(0, 10) == ()


def sliced(pieces, start: int, stop: int, spare=()) -> Slice:
    return Slice("store", "folder", "orders", 7, 0, start, stop, tuple(pieces), spare=tuple(spare))


def test_files_are_divided_among_tasks_by_their_bytes():
    mib = 2**20
    table = Held(0, 3000, (file(0, 1000, size=200 * mib), file(1000, 2900, size=30 * mib)))
    slices = divided([sliced(table.stretches(0, 3000), 0, 3000)])
    assert [(each.start, each.stop, len(each.pieces)) for each in slices] == [
        (0, 333, 1), (333, 666, 1), (666, 1000, 1), (1000, 3000, 1),
    ]  # fmt: skip
    assert len(divided([sliced(table.stretches(0, 3000), 0, 3000)], 20)) == 20


def test_a_part_of_a_slice_is_told_of_no_more_spare_files_than_it_needs():
    table = Held(0, 10, tuple(file(at, at + 1) for at in range(10)))
    whole = sliced([SegmentRange(0, 10, 1000)], 0, 10, table.stretches(0, 10))
    parts = divided([whole], 5)
    assert [[each.base for each in part.spare] for part in parts] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_spare_files_stand_in_for_a_range_only_as_a_whole():
    table = Held(2, 8, (file(2, 5), file(5, 7)))
    planned = sliced([], 0, 10, table.stretches(0, 10))
    assert [each[:2] for each in instead(planned, 3, 8)] == [(3, 5), (5, 8)]
    assert instead(planned, 1, 8) == instead(planned, 3, 9) == instead(planned, 8, 9) == ()


def test_files_and_segments_are_weighed_together():
    """The first segment reaches back before the start of the log; that part does not count."""
    archived = Held(0, 6, (file(0, 6, size=600),)).stretches(0, 4)
    pieces = (*archived, *clipped((SegmentRange(2, 6, 40), SegmentRange(6, 10, 40)), 4))
    assert range_bytes(pieces, 0, 10) == 400 + 20 + 40
    assert reach(pieces, 0, 10, 200) == 2
    assert reach(pieces, 0, 10, 430) == 7
    assert clipped((), 4) == ()
