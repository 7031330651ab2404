"""Events and answers as subscribers see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption, WrongType
from penstock.keys import Element, Key, checked_key, shown_key
from penstock.message import Message, value_bytes


class Event(msgspec.Struct, frozen=True):
    """Something that happened."""

    id: int
    #: When it was stored, in seconds since 1970.
    time: float
    key: str | list[Element]
    #: Any JSON value. What others wrote to the topic and is not JSON comes as text.
    data: Any


class EventGap(msgspec.Struct, frozen=True):
    """Ids from `first` up to `stop` that the subscriber will not get, if they are known, and why.

    "retention" took them; "damage" did; the cursor is of another "epoch", before the topic was made anew; or
    it lies "ahead" of all there is, or ids before it are of other events now, as after a restore.
    """

    reason: Literal["retention", "damage", "epoch", "ahead"]
    first: int | None = None
    stop: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """What a subscriber gets."""

    events: list[Event]
    #: The cursor for the next question.
    next: str
    #: The oldest id still stored, or the next one when there is none.
    min: int
    gap: EventGap | None = None


class Pushed(msgspec.Struct, frozen=True):
    """The ids that events got."""

    epoch: str
    first: int
    last: int


def stored_pairs(events: Iterable[tuple[Key, Any]]) -> list[tuple[bytes, bytes]]:
    """Keys and data as they are stored; raises before anything is, for the first that cannot be."""
    if isinstance(events, (str, bytes)) or not isinstance(events, Iterable):
        raise WrongType(f"events are a list of (key, data), not {type(events).__name__}")
    pairs = []
    for event in events:
        if not isinstance(event, (tuple, list)) or len(event) != 2:
            raise WrongType("an event is a pair (key, data)")
        key = checked_key(event[0])
        if key is None:
            raise WrongType("an event needs a key", hint='a text, or a list such as ["chat", 345]')
        pairs.append((key, _json(event[1])))
    if not pairs:
        raise InvalidOption("no events to push")
    return pairs


def heard(message: Message[Any]) -> Event:
    """A stored message as an event."""
    body = value_bytes(message)
    try:
        data = None if body is None else msgspec.json.decode(body)
    except msgspec.DecodeError:  # somebody else's, in the same topic
        data = (body or b"").decode(errors="backslashreplace")
    return Event(message.offset + 1, message.written_at / NANOSECONDS, shown_key(message.key or b""), data)


def _json(data: Any) -> bytes:
    try:
        return msgspec.json.encode(data)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.EncodeError) as error:
        raise WrongType(f"an event's data is any JSON value: {error}") from None
