"""Values as callers spell them: durations, sizes, whole numbers, names and moments, understood and checked.

A duration is seconds, a `timedelta` or text ("2ms", "30s", "7d"); a size is bytes or text ("64KiB", "1MiB").
Each is parsed here and nowhere else, together with the limits that hold for every topic.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import countOf
from typing import Any

from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption, WrongType

KIB = 1024
MIB = 1024 * KIB
#: A frame may not be larger than this, so that a damaged length never makes a reader allocate wildly.
FRAME_BYTES_MAX = 16 * MIB
#: A key is an address, not data.
KEY_BYTES_MAX = 4 * KIB
#: All headers of one message together.
HEADERS_BYTES_MAX = 32 * KIB
#: Producer ids and groups, in characters (S001-41, S001-42).
ID_CHARACTERS_MAX = 2048
#: Seqnos go from 0 to what 63 bits hold.
SEQNO_MAX = 2**63 - 1
#: Most a topic may have: six digits name a partition's folder.
PARTITIONS_MAX = 10_000
#: The first and last moment that fit into 64 bits of nanoseconds.
TIME_MIN_NS = -(2**63)
TIME_MAX_NS = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Duration = float | str | timedelta
Size = int | str
#: What is to wait longer is a mistake, not a plan.
WAIT_MAX_S = 365 * 86400.0
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|µs|ms|s|m|min|h|d|w)\s*")
_SECONDS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0,
    "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB|K|M|G|T)?\s*", re.IGNORECASE)
_BYTES = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


def seconds(name: str, value: Duration) -> float:
    """A duration in seconds from a number, a timedelta or text such as "2ms" or "7d"."""
    if isinstance(value, str):
        spelled = _spelled_seconds(value)
        if spelled is None:
            raise InvalidOption(
                f"{name}={value!r} is not a duration", hint='write it like "30s", "2h" or "7d"'
            )
        result = spelled
    elif isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        result = float(value)
    else:
        raise WrongType(f"{name} takes seconds or text like '7d', not {type(value).__name__}")
    if not 0 <= result < 1e10:
        raise InvalidOption(f"{name}={value!r} must be between 0 and 300 years")
    return result


@lru_cache(maxsize=256)
def _spelled_seconds(text: str) -> float | None:
    """A duration that is spelled out; None when it is not one."""
    match = _DURATION.fullmatch(text)
    return None if match is None else float(match[1]) * _SECONDS[match[2]]


def is_duration(text: str) -> bool:
    """Whether text is spelled like a duration: a number and a unit."""
    return _spelled_seconds(text) is not None


def wait_seconds(name: str, value: Duration) -> float:
    """How long something is to wait: more than nothing, and no longer than a year."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0:
        raise InvalidOption(f"{name}={value!r} is negative", hint="a wait is longer than nothing")
    found = seconds(name, value)
    if not 0 < found <= WAIT_MAX_S:
        if found == 0:
            raise InvalidOption(f"{name}={value!r} is no wait", hint="leave it out for at once")
        raise InvalidOption(f"{name}={value!r} is more than a year", hint="a year at most")
    return found


def size(name: str, value: Size) -> int:
    """A size in bytes from a number or text such as "64MiB"."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise InvalidOption(f"{name}={value!r} is not a size", hint='write it like "64KiB" or "1GiB"')
        return round(float(match[1]) * _BYTES[(match[2] or "").lower()])
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise InvalidOption(f"{name}={value} is negative")
        return value
    raise WrongType(f"{name} takes bytes or text like '64MiB', not {type(value).__name__}")


def whole(name: str, value: object, least: int, most: int) -> int:
    """An integer within its limits."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongType(f"{name} takes an integer, not {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidOption(f"{name}={value} is out of range: {least} to {most}")
    return value


def all_are(kind: type, values: Collection[object]) -> bool:
    """Whether each value is of just this type; a set of their types takes twice as long."""
    return countOf(map(type, values), kind) == len(values)


def one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise `InvalidOption` unless `given` is one of the known values."""
    if value not in choices:
        raise InvalidOption(f"{name}={value!r} is not known", hint=f"choices: {', '.join(choices)}")


def topic_name(name: object) -> str:
    """A topic's name: it is also a folder, a Kafka topic and a part of URLs, so it stays plain."""
    return _plain_name("topic", name)


def consumer_name(name: object) -> str:
    """A consumer's name, as plain as a topic's."""
    return _plain_name("consumer", name)


def pipeline_name(name: object) -> str:
    """A pipeline's name: it is also a folder."""
    return _plain_name("pipeline", name)


def _plain_name(what: str, name: object) -> str:
    if not isinstance(name, str):
        raise WrongType(f"a {what} name is a str, not {type(name).__name__}")
    if _NAME.fullmatch(name) is None:
        raise InvalidOption(
            f"{name[:60]!r} cannot be the name of a {what}",
            hint="1 to 200 letters, digits, '.', '_' or '-', not starting with '.' or '-'",
        )
    return name


def identifier(what: str, value: object) -> str:
    """A producer id or group: any text up to 2048 characters (S001-41, S001-42)."""
    if not isinstance(value, str):
        raise WrongType(f"{what} is a str, not {type(value).__name__}")
    if not 1 <= len(value) <= ID_CHARACTERS_MAX:
        raise InvalidOption(f"{what} of {len(value)} characters: 1 to {ID_CHARACTERS_MAX} are allowed")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidOption(f"{what} holds a lone surrogate and cannot be stored as UTF-8") from None
    return value


def nanoseconds(name: str, value: int | datetime) -> int:
    """A moment as nanoseconds since 1970, UTC; before 1970 is fine, past 2262 does not fit."""
    if isinstance(value, datetime):
        value = datetime_ns(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongType(f"{name} takes nanoseconds or a datetime, not {type(value).__name__}")
    if not TIME_MIN_NS <= value <= TIME_MAX_NS:
        raise InvalidOption(f"{name}={value} does not fit: moments from 1677 to 2262 can be stored")
    return value


def datetime_ns(moment: datetime) -> int:
    """Exact nanoseconds of a datetime; one without a zone is local time, as everywhere in Python."""
    if moment.__class__ is not datetime and hasattr(moment, "nanosecond"):
        return _timestamp_ns(moment)
    try:
        aware = moment if moment.tzinfo is not None else moment.astimezone()
    except (ValueError, OverflowError, OSError):  # at the ends of what a datetime can say
        aware = moment.replace(tzinfo=UTC)
    delta = aware - _EPOCH
    return (delta.days * 86400 + delta.seconds) * NANOSECONDS + delta.microseconds * 1000


def _timestamp_ns(moment: Any) -> int:
    """Exact nanoseconds of a Timestamp of pandas, which is a datetime with three digits more."""
    if moment != moment:  # its NaT
        raise InvalidOption(f"{moment} is no moment")
    own = moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second, moment.microsecond
    plain = datetime(*own, tzinfo=moment.tzinfo, fold=moment.fold)
    return datetime_ns(plain) + int(moment.nanosecond)


def utc(moment_ns: int) -> datetime:
    """A moment as a datetime, floored to the microsecond."""
    return _EPOCH + timedelta(microseconds=moment_ns // 1000)
