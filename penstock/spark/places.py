"""Where a read begins or ends, in the spelling of Spark's Kafka source.

    startingOffsets              earliest (default) · latest · {"orders": {"0": 12, "1": -2}}
    startingTimestamp            milliseconds since 1970, for all partitions
    startingOffsetsByTimestamp   {"orders": {"0": 1700000000000}}

and the same with `ending`, whose default is latest. Ranges are half-open. In JSON -2 is earliest and -1
latest; a partition left out begins at its beginning and ends at its end. A time stands for the first
message written then or later, or for the end when there is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import InvalidOption
from penstock.options import EARLIEST, LATEST, TIME_MAX_NS, Spot

_JSON_SPOTS = {-2: EARLIEST, -1: LATEST}
_NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class Places:
    """Where to begin or end: one place for all partitions, and other places for some."""

    everywhere: Spot
    each: Mapping[tuple[str, int], Spot] = field(default_factory=dict)

    def of(self, topic: str, partition: int) -> Spot:
        return self.each.get((topic, partition), self.everywhere)


def parse_places(side: str, given: Mapping[str, str], topics: Sequence[str], default: Spot) -> Places:
    """Understand the options of one side, "starting" or "ending"; `topics` are those read by name."""
    names = [f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"]
    found = [name for name in names if name.lower() in given]
    if len(found) > 1:
        raise InvalidOption(f"{' and '.join(found)} are given", hint="one of them is enough")
    if not found:
        return Places(default)
    name, text = found[0], given[found[0].lower()]
    if name == names[1]:
        return Places(_moment(name, "", int(text) if text.isdecimal() and text.isascii() else text))
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if named is not None and name == names[0]:
        return Places(named)
    return Places(default, _each(name, text, topics, _spot if name == names[0] else _moment))


def _each(
    name: str, text: str, topics: Sequence[str], read: Callable[[str, str, Any], Spot]
) -> dict[tuple[str, int], Spot]:
    """A place for each partition, from JSON."""
    example = topics[0] if topics else "orders"
    choice = '"earliest", "latest" or ' if read is _spot else ""
    hint = f'write {choice}{{"{example}": {{"0": 12}}}}'
    try:
        found = json.loads(text)
    except ValueError:
        raise InvalidOption(f"{name}={text!r} is not understood", hint=hint) from None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise InvalidOption(f"{name}={text!r} has the wrong shape", hint=hint)
    strangers = [other for other in found if topics and other not in topics]
    if strangers:
        raise InvalidOption(
            f"{name} names topic {strangers[0]!r}, but {', '.join(map(repr, topics))} is read", hint=hint
        )
    return {
        (topic, _partition(name, number)): read(name, number, place)
        for topic, each in found.items()
        for number, place in each.items()
    }


def _partition(name: str, number: str) -> int:
    if not (number.isascii() and number.isdecimal()):
        raise InvalidOption(f"{name} names partition {number!r}", hint="partitions are numbers from 0 on")
    return int(number)


def _spot(name: str, number: str, offset: Any) -> Spot:
    if isinstance(offset, bool) or not isinstance(offset, int) or not -2 <= offset < 2**63:
        raise InvalidOption(
            f"{name} has {offset!r} for partition {number}", hint="an offset, -2 (earliest) or -1 (latest)"
        )
    return _JSON_SPOTS.get(offset) or Spot("offset", offset)


def _moment(name: str, number: str, time: Any) -> Spot:
    if isinstance(time, bool) or not isinstance(time, int) or not 0 <= time <= TIME_MAX_NS // _NS_PER_MS:
        where = f" for partition {number}" if number else ""
        raise InvalidOption(f"{name} has {time!r}{where}", hint="milliseconds since 1970, UTC")
    return Spot("time", time * _NS_PER_MS)
