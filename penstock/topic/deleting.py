"""What is over or deleted, for those who must clean up after it, such as bodies that are kept elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import Corrupt, OffsetTrimmed, Unavailable
from penstock.log.cursor import Cursor
from penstock.log.living import Floors
from penstock.log.log import Log
from penstock.log.rows import MessageRows
from penstock.message import Message, Rows
from penstock.options import MIB, Place
from penstock.topic.partitions import Partitions
from penstock.topic.retention import trim_to

_AT_ONCE_MESSAGES, _AT_ONCE_BYTES = 16_384, 4 * MIB


def expired(partitions: Partitions, since_ns: int | None) -> list[Rows]:
    """Messages whose lifetime ended, after a moment if one is given, as far as they still lie there."""
    found: list[Rows] = []
    for log in partitions.logs():
        now = log.living.floors()
        before = None if since_ns is None else log.living.floors(since_ns)
        for rows in _everything(log, log.bounds().start, now.highest):
            over = [each for each in rows.messages() if _ended(each, now, before)]
            if over:
                found.append(MessageRows(over))
    return found


def _ended(message: Message, now: Floors, before: Floors | None) -> bool:
    return now.is_over(message) and (before is None or not before.is_over(message))


def delete_before(partitions: Partitions, place: Place) -> list[Rows]:
    """Remove everything before a place, whatever retention says; what was removed, also what was over.

    Raises `Unavailable` when another process is tidying a partition: those before it are done.
    """
    now = partitions.clock.now_ns()
    deleted: list[Rows] = []
    for number, start in partitions.begin_all(place, now).items():
        log = partitions.log(number)
        with log.folder.housekeeping() as alone:
            if not alone:
                raise Unavailable(
                    f"another process is tidying partition {number} of {partitions.name!r}",
                    hint="try again in a moment",
                )
            first = log.bounds().start
            rows = list(_everything(log, first, start))
            done = trim_to(partitions, log, max(first, start), now)
            deleted += [each for each in rows if each.stop <= done.start]
            deleted += [_up_to(each, done.start) for each in rows if each.first < done.start < each.stop]
    return deleted


def _up_to(rows: Rows, stop: int) -> Rows:
    return MessageRows(rows.messages()[: stop - rows.first])


def _everything(log: Log, first: int, stop: int) -> Iterator[Rows]:
    """All that can be read between, also what is over."""
    cursor = Cursor(log.view, first, far=True)
    while cursor.offset < stop:
        try:
            rows = cursor.read(_AT_ONCE_MESSAGES, _AT_ONCE_BYTES, stop)
        except OffsetTrimmed as trimmed:  # retention was quicker
            cursor.offset = trimmed.first
            continue
        except Corrupt as damage:
            if damage.stop is None:
                return
            cursor.offset = damage.stop
            continue
        if not rows:
            return
        yield from rows
