"""Places to read from or to: an offset, an end of the log, an age or a moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption, WrongType
from penstock.parse import datetime_ns, is_duration, nanoseconds, seconds

#: Where to read from or to: an offset, an offset per partition, "earliest", "latest" (after the end),
#: "last" (the last message there is), an age ("2h" ago, or a timedelta), or a moment.
Place = int | Mapping[int, int] | str | datetime | timedelta


@dataclass(frozen=True)
class Spot:
    """A `Place`, understood: a fixed end of the log, an offset, or a moment (`written_at`)."""

    kind: Literal["earliest", "latest", "last", "offset", "time"]
    value: int = 0


EARLIEST = Spot("earliest")
LATEST = Spot("latest")
LAST = Spot("last")


def spot(place: Place, partition: int, now_ns: int) -> Spot:
    """Understand a `Place` for one partition.

    A mapping that leaves the partition out means "earliest" for it: a partition added later
    begins at its beginning.
    """
    if isinstance(place, Mapping):
        if partition not in place:
            return EARLIEST
        place = place[partition]
    if isinstance(place, bool):
        raise WrongType("a place is an offset, not a bool")
    if isinstance(place, int):
        if place < 0:
            raise InvalidOption(f"offset {place} is negative", hint='offsets begin at 0; "latest" is the end')
        if place >= 2**63:
            raise InvalidOption(f"offset {place} does not fit into 63 bits")
        return Spot("offset", place)
    if isinstance(place, datetime):
        return Spot("time", nanoseconds("place", place))
    if isinstance(place, timedelta):
        return Spot("time", now_ns - round(seconds("place", place) * NANOSECONDS))
    if isinstance(place, str):
        return _spot_of_text(place, now_ns)
    raise WrongType(f"a place is an offset, a name, an age or a datetime, not {type(place).__name__}")


def _spot_of_text(place: str, now_ns: int) -> Spot:
    named = {"earliest": EARLIEST, "latest": LATEST, "last": LAST}.get(place)
    if named is not None:
        return named
    if place.isdecimal():
        return spot(int(place), 0, now_ns)
    if is_duration(place):
        return Spot("time", now_ns - round(seconds("place", place) * NANOSECONDS))
    try:
        return Spot("time", datetime_ns(datetime.fromisoformat(place)))
    except ValueError:
        raise InvalidOption(
            f"{place!r} is not a place",
            hint='use an offset, "earliest", "latest", "last", an age like "2h", or an ISO time',
        ) from None
