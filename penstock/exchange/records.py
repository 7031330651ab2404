"""Which parts of a record become a message: its value, its key, its time.

A record is a line of JSON, a row of a CSV file or of a table. Without a choice all of it is the value, as
JSON. Every record has a number by which it is known when it is sent again: the byte at which it begins in its
file, or its row (S001-47).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption, UsageError
from penstock.exchange.message_json import GivenMessage, given_message
from penstock.parse import nanoseconds

#: Nanoseconds in each unit that a number of time may have.
TIME_UNITS = {"s": NANOSECONDS, "ms": 1_000_000, "us": 1000, "ns": 1}


class FieldChoice(NamedTuple):
    """Names of the fields, or columns, that become parts of messages."""

    value: str | None = None
    key: str | None = None
    time: str | None = None
    #: What a number means that stands for a time; since 1970.
    time_unit: str = "ns"
    #: Records are whole messages, as an export writes them; the other names do not count.
    messages: bool = False
    #: Messages go into the partition their record names.
    partitions: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Fields that every record must have."""
        return tuple(name for name in (self.value, self.key, self.time) if name is not None)

    def check(self) -> None:
        """Raise `InvalidOption` for a choice that makes no sense."""
        if self.time_unit not in TIME_UNITS:
            raise InvalidOption(f"time unit {self.time_unit!r} is none of {', '.join(TIME_UNITS)}")
        if self.messages and self.names:
            raise InvalidOption("whole messages bring their own key, value and time")
        if self.partitions and not self.messages:
            raise InvalidOption("only whole messages name a partition")


class FileRecord(NamedTuple):
    """One record of a file: the number it is known by, the message it becomes, and where it stands."""

    seqno: int
    message: GivenMessage
    where: str = ""


#: Called for a record that cannot become a message: it raises, or the record is left out.
Refuse = Callable[[UsageError], None]


def refuse_all(error: UsageError) -> None:
    """Raise: the first record that is wrong ends it."""
    raise error


def from_fields(fields: Any, choice: FieldChoice, where: str, whole: bytes | None = None) -> GivenMessage:
    """The message that a record becomes; `whole` is the record as it is written, if it is JSON."""
    if choice.messages:
        message = given_message(fields, where)
        return message if choice.partitions else message._replace(partition=None)
    if choice.names and not isinstance(fields, dict):
        raise InvalidOption(f"{where} is no object, so it has no field {choice.names[0]!r}")
    for name in choice.names:
        if name not in fields:
            raise InvalidOption(
                f"{where} has no field {name!r}", hint=f"it has {', '.join(map(repr, list(fields)[:20]))}"
            )
    if choice.value is None:
        value: bytes | None = msgspec.json.encode(fields) if whole is None else whole
    else:
        value = _as_bytes(fields[choice.value])
    key = None if choice.key is None else _as_bytes(fields[choice.key])
    time = None if choice.time is None else _as_time(fields[choice.time], choice.time_unit, where)
    return GivenMessage(value, key, None, time)


def _as_bytes(field: Any) -> bytes | None:
    """Text as it is, null as nothing, anything else as its JSON."""
    if field is None:
        return None
    return field.encode() if isinstance(field, str) else msgspec.json.encode(field)


def _as_time(field: Any, unit: str, where: str) -> int | None:
    if field is None or field == "":
        return None
    try:
        if isinstance(field, str):
            if not field.removeprefix("-").isdecimal():
                return nanoseconds("time", datetime.fromisoformat(field))
            field = int(field)
        if isinstance(field, (int, float)) and not isinstance(field, bool):
            return nanoseconds("time", round(field * TIME_UNITS[unit]))
    except InvalidOption:
        raise
    except (ValueError, OverflowError):
        pass
    raise InvalidOption(
        f"{where}: {field!r} is not a time",
        hint="an ISO time such as 2026-01-31T12:00:00Z, or a number with its unit",
    )
