"""Which offsets are read from the archive and which from the log. Plain functions, no files.

    offsets       first                 next
    table           [──── files ─────────)
    log                     start [──────────────── end
    read from       [── table ────)[── log ────────────)

The log is read wherever it still has an offset, the table before that, and what neither has is lost, and
told. Where the cut falls decides nothing but the file: the rows are the same, so it may move from one look
to the next, with retention, with the archive, with compaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.lake.layout import LakeFile


class OffsetRange(NamedTuple):
    """Offsets from `start` up to `stop`."""

    start: int
    stop: int


class Stretch(NamedTuple):
    """Offsets of one partition that lie in one file of the table, as far as there are messages with them."""

    base: int
    stop: int
    #: About how much of the file that is.
    bytes: int
    file: LakeFile


class Held(NamedTuple):
    """What a table has of one partition: offsets from `first` up to `next`."""

    first: int = 0
    next: int = 0
    #: In offset order.
    files: tuple[LakeFile, ...] = ()
    #: Of the message before `next`; 0 for tables that do not have it.
    fingerprint: int = 0

    def stretches(self, start: int, stop: int) -> tuple[Stretch, ...]:
        """The files with the offsets of a range, as far as it is held; each begins where the last ends.

        Offsets that no message ever had belong to the file before them.
        """
        bounds = [file.first for file in self.files[1:]] + [self.next]
        found = (
            (max(start, file.first), min(stop, behind), file)
            for file, behind in zip(self.files, bounds, strict=False)
        )
        return tuple(
            Stretch(base, behind, file.bytes * (behind - base) // (file.stop - file.first), file)
            for base, behind, file in found
            if base < behind
        )


#: Of a partition that is not archived, or where no table was named.
NOTHING = Held()


class Shares(NamedTuple):
    """A range of a partition, by where it is read from."""

    archived: OffsetRange
    live: OffsetRange
    #: In neither: retention took it before it was archived.
    lost: tuple[OffsetRange, ...] = ()


def shared(start: int, stop: int, held: Held, log_start: int) -> Shares:
    """Divide a range between the table and a log that begins at `log_start`.

    What is lost is told up to where there is something again, also when that lies behind the range.
    """
    live = OffsetRange(max(start, log_start), max(start, log_start, stop))
    if start >= min(stop, log_start):
        return Shares(OffsetRange(start, start), live)
    first, behind = min(held.first, log_start), min(held.next, log_start)
    if first >= behind or start >= behind:
        return Shares(OffsetRange(start, start), live, (OffsetRange(start, log_start),))
    archived = OffsetRange(max(start, first), max(min(stop, behind), start, first))
    lost = (OffsetRange(start, first),) if start < first else ()
    if behind < min(stop, log_start):
        lost = (*lost, OffsetRange(behind, log_start))
    return Shares(archived, live, lost)


def first_offset(held: Held, log_start: int) -> int:
    """Where the topic begins, in the table or in the log."""
    return min(held.first, log_start) if held.files else log_start
