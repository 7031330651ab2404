"""Which bodies the messages of a partition refer to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock import references
from penstock.errors import Corrupt, OffsetTrimmed
from penstock.log.cursor import Cursor
from penstock.log.log import Log
from penstock.log.rows import FrameRows
from penstock.message import Rows
from penstock.options import MIB
from penstock.references import Reference

_MESSAGES, _BYTES = 10_000, 16 * MIB


class Referring(NamedTuple):
    """A message whose body lies outside the log."""

    partition: int
    offset: int
    reference: Reference


class BodyObject(NamedTuple):
    """What bodies lie in: the number of a place, and a name there."""

    place: int
    name: str


def references_between(
    log: Log, first: int, stop: int, *, passing_damage: bool = True
) -> Iterator[Referring]:
    """Messages from `first` to `stop` with a body outside, in order; nothing is fetched.

    What is gone is passed over, and what is damaged too, unless that shall raise `Corrupt`: whoever deletes
    what nobody refers to must have seen every message. So what the lifetimes of keys have ended counts for
    as long as it lies there: its bodies go with it.
    """
    offset = first
    while offset < stop:
        try:
            rows = Cursor(log.view, offset, far=True).read(_MESSAGES, _BYTES, stop)
        except (Corrupt, OffsetTrimmed) as error:
            if isinstance(error, Corrupt) and not passing_damage:
                raise
            behind = error.stop if isinstance(error, Corrupt) else error.first
            if behind is None or behind <= offset:
                return
            offset = behind
            continue
        if not rows:
            return
        for each in rows:
            yield from _of_rows(each)
        offset = rows[-1].stop


def gone_with(log: Log, first: int, start: int) -> list[BodyObject]:
    """Objects that no message refers to any more once the partition begins at `start` instead of `first`.

    A pack goes with the last of its messages. They lie side by side, and each knows how far the last one
    may be, so only what comes right behind `start` has to be looked at besides.
    """
    until: dict[BodyObject, int] = {}
    for referring in references_between(log, first, start):
        reference = referring.reference
        until[BodyObject(reference.place, reference.name)] = referring.offset + reference.left
    farthest = max(until.values(), default=-1)
    alive = {
        BodyObject(each.reference.place, each.reference.name)
        for each in references_between(log, start, min(farthest + 1, log.bounds().end))
    }
    return [each for each in until if each not in alive]


def _of_rows(rows: Rows) -> Iterator[Referring]:
    if isinstance(rows, FrameRows):
        frame, first, stop = rows.frame, rows.begin, rows.end
        numbers = frame.codec_numbers(first, stop)
        if references.CODEC not in numbers:
            return
        values = frame.values(first, stop)
        for offset, number, stored in zip(range(rows.first, rows.stop), numbers, values, strict=True):
            if number == references.CODEC and stored is not None:
                yield Referring(rows.partition, offset, references.unpack(stored))
        return
    for message in rows.messages():
        if (found := message.reference) is not None:
            yield Referring(message.partition, message.offset, found)
