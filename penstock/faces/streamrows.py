"""A stream's message in the log, and back: its subject, its headers, and what its body is called."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.clock import NANOSECONDS
from penstock.errors import DataError, InvalidOption, WrongType
from penstock.faces.engine import Data, Deleted, Publication, Row
from penstock.faces.streammessage import OpenBody, StreamMessage
from penstock.faces.subjects import ELSEWHERE_HEADER, OBJECT_HEADER
from penstock.headers import Headers
from penstock.message import Message, value_bytes


def stored_headers(message: Publication) -> Mapping[str, str] | None:
    """Headers as they are written: those given, and the name of the body if there is one."""
    if message.object_name is None:
        return message.headers
    kind = ELSEWHERE_HEADER if message.data is None else OBJECT_HEADER
    return {**(message.headers or {}), kind: message.object_name}


def stored_value(data: Data, limit: int) -> bytes | str:
    """A body as it is written; of a file no more is read than the topic takes."""
    if data is None:
        return b""
    if isinstance(data, (bytes, bytearray, memoryview, str)):
        return data if isinstance(data, (bytes, str)) else bytes(data)
    try:
        if isinstance(data, Path):
            with data.open("rb") as opened:
                return opened.read(limit + 1)
        found = data.read(limit + 1)
    except OSError as error:
        raise InvalidOption(f"the body cannot be read: {error}") from error
    if not isinstance(found, bytes):
        raise WrongType("the body is a file that was opened as text", hint='open it with mode "rb"')
    return found


def row_of(message: Message[Any]) -> Row:
    """A message as the eight functions give it."""
    sequence = message.offset + 1
    subject = _text(message.key or b"")
    headers, name = _parted(message.headers)
    return sequence, headers, name or f"{subject}_{sequence}", subject, message.written_at // NANOSECONDS


def message_of(message: Message[Any]) -> StreamMessage:
    """A message with its body."""
    sequence, headers, name, subject, _ = row_of(message)
    body: bytes | OpenBody = value_bytes(message) or b""
    if ELSEWHERE_HEADER in message.headers:
        body = lambda: _elsewhere(sequence, name)  # noqa: E731
    return StreamMessage(subject, sequence, headers, name, message.written_at, body)


def deleted_of(message: Message[Any]) -> Deleted:
    """What is said of a message that was deleted."""
    sequence, _, name, subject, _ = row_of(message)
    return Deleted(sequence=sequence, subject=subject, object_name=name)


def _elsewhere(sequence: int, name: str) -> Any:
    raise DataError(
        f"the body of message {sequence} lies elsewhere, as {name!r}",
        hint="load it from where its publisher stored it",
    )


def _parted(headers: Headers) -> tuple[dict[str, str], str | None]:
    """Headers as text, and the name of the body that is among them."""
    if not headers:
        return {}, None
    found: dict[str, Any] = dict(headers)
    name = found.pop(OBJECT_HEADER, None) or found.pop(ELSEWHERE_HEADER, None)
    if bytes in map(type, found.values()):  # written by other means than a stream
        found = {each: _text(value) if type(value) is bytes else value for each, value in found.items()}
    return found, _text(name) if type(name) is bytes else name


def _text(stored: bytes) -> str:
    """Bytes as text; those that are none are told apart all the same."""
    return stored.decode(errors="surrogateescape")
