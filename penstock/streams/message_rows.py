"""A stream's message in the log, and back: its subject, its headers, and what its body is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from penstock.clock import NANOSECONDS
from penstock.errors import DataError, InvalidOption, WrongType
from penstock.headers import Headers
from penstock.log.message_facts import Facts
from penstock.message import Message, value_bytes
from penstock.payloads.store import BodyStore
from penstock.streams.engine import Data, Deleted, OpenBody, Publication, Row, StreamMessage
from penstock.streams.subjects import ELSEWHERE_HEADER, OBJECT_HEADER
from penstock.topic.left_messages import LeftMessage


def stored_headers(message: Publication) -> Mapping[str, str] | None:
    """Headers as they are written: those given, and the name of the body if there is one."""
    if message.object_name is None:
        return message.headers
    kind = ELSEWHERE_HEADER if message.data is None else OBJECT_HEADER
    return {**(message.headers or {}), kind: message.object_name}


def body_of(data: Data) -> bytes | str | Path | BinaryIO:
    """What is written as the value; no body is an empty one, since None would be a tombstone."""
    if data is None:
        return b""
    return bytes(data) if isinstance(data, (bytearray, memoryview)) else data


def read_body(file: Path | BinaryIO, limit: int) -> bytes:
    """A body from a file, for a topic that has no place for bodies; no more is read than it takes."""
    try:
        if isinstance(file, Path):
            with file.open("rb") as opened:
                return opened.read(limit + 1)
        found = file.read(limit + 1)
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


def rows_of(found: Iterable[Facts]) -> list[Row]:
    """Messages as the eight functions give them, without their bodies; what has no subject is left out."""
    rows: list[Row] = []
    last, subject = b"", ""
    for offset, key, headers, written_at in found:
        if key is None:
            continue
        if key != last:
            last, subject = key, _text(key)
        name = headers.pop(ELSEWHERE_HEADER, None) or headers.pop(OBJECT_HEADER, None)
        sequence = offset + 1
        rows.append((sequence, headers, name or f"{subject}_{sequence}", subject, written_at // NANOSECONDS))
    return rows


def message_of(message: Message[Any], elsewhere: BodyStore | None) -> StreamMessage:
    """A message with its body; one that lies elsewhere is looked for there by its name."""
    sequence, headers, name, subject, _ = row_of(message)
    body: bytes | OpenBody
    if ELSEWHERE_HEADER in message.headers:
        body = partial(_opened, elsewhere, sequence, name)
    elif message.reference is not None:
        body = message.open
    else:
        body = value_bytes(message) or b""
    return StreamMessage(subject, sequence, headers, name, message.written_at, body)


def deleted_of(left: LeftMessage) -> Deleted:
    """Describe a message that left, for the cleanup of its body."""
    sequence, subject = left.offset + 1, _text(left.key or b"")
    name = left.headers.get(ELSEWHERE_HEADER) or left.headers.get(OBJECT_HEADER)
    return Deleted(sequence=sequence, subject=subject, object_name=name or f"{subject}_{sequence}")


def _opened(elsewhere: BodyStore | None, sequence: int, name: str) -> BinaryIO:
    if elsewhere is None:
        raise DataError(
            f"the body of message {sequence} lies elsewhere, as {name!r}",
            hint="store.stream(…, bodies=…) says where",
        )
    return elsewhere.open(name)


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
    """Decode bytes as text; bytes that are not UTF-8 are escaped, so that different ones stay different."""
    return stored.decode(errors="surrogateescape")
