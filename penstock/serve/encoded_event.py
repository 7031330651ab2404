"""An event as it travels, encoded once for all its receivers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from penstock.clock import NANOSECONDS
from penstock.errors import DataError
from penstock.events.event import EventGap
from penstock.keys import shown_key
from penstock.message import Message, value_bytes

#: The header that says who may see an event: a text, or an array of texts, in JSON.
AUDIENCE = "audience"


class EncodedEvent:
    """One event, encoded; and where it stands."""

    __slots__ = ("alone", "audience", "json", "offset")

    def __init__(self, message: Message[Any]) -> None:
        self.offset = message.offset
        self.json = b'{"id":%d,"time":%a,"key":%s,"data":%s}' % (
            message.offset + 1, message.written_at / NANOSECONDS, _key(message.key or b""), _data(message),
        )  # fmt: skip
        #: None is everybody.
        self.audience = _audience(message) if message.headers else None
        #: As it is written when it is all there is to write, by kind of stream: most often it is.
        self.alone: dict[type, bytes] = {}


@lru_cache(maxsize=4096)
def _key(stored: bytes) -> bytes:
    return msgspec.json.encode(shown_key(stored))


def _data(message: Message[Any]) -> bytes:
    """Data as JSON on one line: as it is stored, or as text if it is none."""
    try:
        body = value_bytes(message)
    except DataError:
        body = message.stored
    if body is None:
        return b"null"
    try:
        text = body.decode()
        msgspec.json.decode(body, type=msgspec.Raw)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return msgspec.json.encode(body.decode(errors="backslashreplace"))
    if "\n" in text or "\r" in text:  # between its parts; within a text JSON writes them otherwise
        return msgspec.json.encode(msgspec.json.decode(body))
    return body


def _audience(message: Message[Any]) -> frozenset[str] | None:
    """Parse an event's audience. If it cannot be read, nobody sees the event."""
    given = message.headers.get(AUDIENCE)
    if given is None:
        return None
    try:
        names = msgspec.json.decode(given, type=str | list[str])
    except msgspec.DecodeError:
        return frozenset()
    return frozenset((names,) if isinstance(names, str) else names)


def answer_json(pieces: list[bytes], next_cursor: str, least: int, gap: EventGap | None = None) -> bytes:
    """Return a long poll's answer, which a WebSocket also gets first and at a gap."""
    told = b"" if gap is None else b',"gap":' + gap_json(gap)
    return b'{"events":[%s],"next":"%s","min":%d%s}' % (
        b",".join(pieces), next_cursor.encode(), least, told,
    )  # fmt: skip


def gap_json(gap: EventGap) -> bytes:
    """Return a gap as JSON."""
    return msgspec.json.encode(gap)
