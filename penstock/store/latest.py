"""Which messages are the latest of their keys: found in this process, for topics that are not large.

Only keys are decoded. A key is counted once for the whole topic: where it lies in several partitions, as
after partitions were added, the one written last counts, then the one in the higher partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from penstock.errors import InvalidOption
from penstock.log.copying import Run
from penstock.options import MIB
from penstock.store.replay import run_of
from penstock.topic.marks import Marks
from penstock.topic.partitions import Partitions

#: What becomes of messages without a key.
Keyless = Literal["refuse", "keep", "drop"]
KEYLESS = ("refuse", "keep", "drop")

_READ_BYTES = 8 * MIB
_READ_MESSAGES = 1 << 20


class Range(NamedTuple):
    """Offsets of a partition that are looked at."""

    start: int
    stop: int


#: By partition.
Ranges = Mapping[int, Range]


def latest(partitions: Partitions, ranges: Ranges, keyless: Keyless) -> dict[int, Marks]:
    """The offsets of the latest message of each key, by partition; raises as `refuse_keyless` does."""
    marks = {number: Marks(*each) for number, each in ranges.items()}
    last: dict[int, dict[bytes, int]] = {}
    for number, each in ranges.items():
        found: dict[bytes | None, int] = {}
        for first, run in read(partitions, number, each):
            keys = run.keys()
            found.update(zip(keys, range(first, first + len(run)), strict=True))
            if keyless == "keep":
                marks[number].add(first + place for place, key in enumerate(keys) if key is None)
        if (alone := found.pop(None, None)) is not None and keyless == "refuse":
            raise keyless_refused(partitions.name, number, alone)
        last[number] = found  # type: ignore[assignment]  # None is not among them any more
    for number, offsets in _winners(partitions, last).items():
        marks[number].add(offsets.values())
    return marks


def read(partitions: Partitions, number: int, within: Range) -> Iterator[tuple[int, Run]]:
    """Everything of a range, each run with its first offset."""
    cursor = partitions.log(number).cursor(within.start, far=True)
    while rows := cursor.read(_READ_MESSAGES, _READ_BYTES, within.stop):
        for each in rows:
            yield each.first, run_of(each)


def keyless_refused(topic: str, partition: int, offset: int) -> InvalidOption:
    return InvalidOption(
        f"{topic!r} holds messages without a key, such as offset {offset} of partition {partition}",
        hint='there is no latest one of them: keyless="keep" keeps all, keyless="drop" none',
    )


def _winners(partitions: Partitions, last: Mapping[int, dict[bytes, int]]) -> Mapping[int, dict[bytes, int]]:
    """Without those keys of each partition that another one has a later message of."""
    owner: dict[bytes, int] = {}
    for number, offsets in last.items():
        for key in owner.keys() & offsets.keys():
            other = owner[key]
            if _written_at(partitions, other, last[other][key]) > _written_at(
                partitions, number, offsets[key]
            ):
                del offsets[key]
            else:
                del last[other][key]
        owner.update(dict.fromkeys(offsets, number))
    return last


def _written_at(partitions: Partitions, number: int, offset: int) -> int:
    message = partitions.log(number).view.message(offset)
    return message.written_at if message is not None else 0
