"""Numbers as people and programs read them: sizes, counts, durations, moments."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption
from penstock.options import nanoseconds, utc

_DURATIONS = (("d", 86400), ("h", 3600), ("m", 60))


@lru_cache(maxsize=1024)  # messages written together share their time
def iso(moment_ns: int | None) -> str | None:
    """A moment as ISO 8601 in UTC, to the microsecond; the nanoseconds stand beside it in the JSON."""
    if moment_ns is None:
        return None
    return utc(moment_ns).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_moment(text: str, name: str = "--timestamp") -> int:
    """Nanoseconds since 1970 from an ISO time or from digits; a time without a zone is local."""
    if text.removeprefix("-").isdecimal():
        return nanoseconds(name, int(text))
    try:
        return nanoseconds(name, datetime.fromisoformat(text))
    except InvalidOption:
        raise
    except ValueError:
        raise InvalidOption(
            f"{name} {text!r} is not a moment",
            hint="an ISO time such as 2026-01-31T12:00:00Z, or nanoseconds since 1970",
        ) from None


def count(number: int) -> str:
    return f"{number:,}"


def counted(number: int, noun: str, plural: str = "s") -> str:
    """A number of things: "1 message", "1,200 messages"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{plural}"


def size(number: int | None) -> str:
    """Bytes, in the unit that fits."""
    if number is None:
        return "-"
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def duration(seconds: float | None, none: str = "-") -> str:
    """A duration as the options spell it, where it is a round one: "7d", "90s"."""
    if seconds is None:
        return none
    for unit, length in _DURATIONS:
        if seconds >= length and not seconds % length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:g}s"


def age(moment_ns: int | None, now_ns: int) -> str:
    """How long ago, roughly: "3 m", "2 d"; "-" when there is no moment."""
    if moment_ns is None:
        return "-"
    seconds = max(0, now_ns - moment_ns) / NANOSECONDS
    for unit, length in _DURATIONS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
