"""Cursors, with which subscribers come back: `<epoch>.<moment>.<id>`.

The epoch names the topic, in hexadecimal, and changes when it is dropped and made anew. The id is the next
one to get, in decimal. The moment is when the newest message was written at the time, in milliseconds since
1970, hexadecimal: a store that was put back from a backup gives the same ids to other events, and those
were written later. Cursors of earlier versions have none, and are only compared with the end.

Several origins, once there are such, stand side by side with `_` between them. All of it may stand in a URL.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.errors import Corrupt, InvalidOption, WrongType
from penstock.log.log import Log

_ORIGIN = re.compile(r"([0-9a-f]{1,16})(?:\.([0-9a-f]{1,12}))?\.([0-9]{1,19})", re.ASCII)
#: More origins than anybody has; what is longer was not made here.
_ORIGINS_MOST = 64
_MILLISECOND_NS = 1_000_000


class CursorPlace(NamedTuple):
    """Where a subscriber stood."""

    #: The first offset that it has not heard of.
    offset: int
    #: Nothing before that offset was written later, in nanoseconds; None when the cursor does not say.
    until: int | None


def epoch_text(topic_id: int) -> str:
    """The text that stands for a topic in cursors."""
    return f"{topic_id:x}"


def cursor_text(epoch: str, next_id: int, newest_ns: int) -> str:
    """The cursor behind which reading continues at `next_id`; the newest message was written at that time."""
    return f"{epoch}.{newest_ns // _MILLISECOND_NS:x}.{next_id}"


def parse_cursor(cursor: object, epoch: str) -> CursorPlace | None:
    """Parse a cursor; None when it is of another epoch. Raises for what is no cursor."""
    if not isinstance(cursor, str):
        raise WrongType(f"a cursor is a str, not {type(cursor).__name__}")
    parts = cursor.split("_", _ORIGINS_MOST)
    found = [_ORIGIN.fullmatch(part) for part in parts]
    known = [match for match in found if match is not None]
    if len(known) < len(parts) or any(not 1 <= int(match[3]) < 2**63 for match in known):
        raise InvalidOption(
            f"{cursor[:60]!r} is not a cursor", hint="give back `next` of an earlier answer, or none at all"
        )
    for _, moment, number in (match.groups() for match in known if match[1] == epoch):
        until = None if moment is None else (int(moment, 16) + 1) * _MILLISECOND_NS - 1
        return CursorPlace(int(number) - 1, until)
    return None


def newest_before(log: Log, offset: int) -> int:
    """When the last message before an offset was written, in nanoseconds; now, if it cannot be read."""
    if offset == 0:
        return 0
    try:
        before = log.segments.message(offset - 1)
    except Corrupt:  # whoever reads there is told
        before = None
    return log.folder.clock.now_ns() if before is None else before.written_at


def first_unheard(log: Log, place: CursorPlace, end: int) -> int:
    """The first offset that a subscriber at this place has not seen: the place's own, or an earlier one.

    It is an earlier one in a store that was put back from a backup: where the log ends before the place, or
    where messages before it were written after the cursor was made.
    """
    if place.offset > end:
        return end if place.until is None else min(end, log.offset_at(place.until + 1))
    if place.until is None or place.offset == 0:
        return place.offset
    try:
        before = log.segments.message(place.offset - 1)
    except Corrupt:
        return place.offset
    if before is None or before.written_at <= place.until:
        return place.offset
    return min(place.offset, log.offset_at(place.until + 1))
