"""A message as a JSON record, and back: what `penstock read --json` prints and `write --json` takes.

Bytes are text if they are UTF-8, else base64, which is said beside them: `key_encoding`, `value_encoding`,
`headers_encoding`. docs/cli.md describes the record.
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from penstock.codecs import name_of
from penstock.errors import InvalidOption
from penstock.message import Message, value_bytes
from penstock.parse import nanoseconds, utc


class GivenMessage(NamedTuple):
    """A message to be written, from a record of some file; what is None was not said."""

    value: bytes | None
    key: bytes | None = None
    headers: dict[str, str | bytes] | None = None
    timestamp: int | None = None
    partition: int | None = None


@lru_cache(maxsize=1024)  # messages written together share their time
def iso(moment_ns: int | None) -> str | None:
    """A moment as ISO 8601 in UTC, to the microsecond; the nanoseconds stand beside it in the JSON."""
    if moment_ns is None:
        return None
    return utc(moment_ns).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def json_record(message: Message) -> dict[str, Any]:
    """The whole message: its place, key, value, headers, times, and who wrote it."""
    record: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        **encoded("key", message.key),
        **encoded("value", value_bytes(message)),
        "headers": {},
        "timestamp": iso(message.timestamp),
        "timestamp_ns": message.timestamp,
        "written_at": iso(message.written_at),
        "written_at_ns": message.written_at,
    }
    for name, value in message.headers.items():
        header = encoded("value", value)
        record["headers"][name] = header["value"]
        if "value_encoding" in header:
            record.setdefault("headers_encoding", {})[name] = header["value_encoding"]
    for name in ("producer_id", "group", "seqno"):
        if getattr(message, name) is not None:
            record[name] = getattr(message, name)
    reference = message.reference
    codec = message.codec if reference is None else name_of(reference.codec)
    if codec != "raw":
        record["codec"] = codec
    if reference is not None:
        record["body"] = {"name": reference.name, "start": reference.start, "bytes": reference.size}
    return record


def encoded(name: str, value: bytes | str | None) -> dict[str, str | None]:
    """Bytes as text if they are UTF-8, else base64, which is said beside them."""
    if value is None or isinstance(value, str):
        return {name: value}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(value).decode(), f"{name}_encoding": "base64"}


def given_message(record: object, where: str) -> GivenMessage:
    """The message that a record holds; raises `InvalidOption`, which begins with `where`, when it is none."""
    if not isinstance(record, dict) or "value" not in record:
        raise InvalidOption(
            f"{where} is no message: a JSON object with a field 'value'",
            hint="`penstock read --json` prints such; for other lines leave the option out",
        )
    headers = record.get("headers") or None
    if headers is not None and not isinstance(headers, dict):
        raise InvalidOption(f"{where}: headers are an object of names and values")
    in_base64 = record.get("headers_encoding") or {}
    return GivenMessage(
        _bytes(record, "value", where),
        _bytes(record, "key", where),
        headers and {name: _header(name, text, in_base64, where) for name, text in headers.items()},
        _time(record, where),
        record.get("partition"),
    )


def _bytes(record: dict[str, Any], name: str, where: str) -> bytes | None:
    text = record.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidOption(f"{where}: {name} is text or null, not {type(text).__name__}")
    return _decoded(text, where) if record.get(f"{name}_encoding") == "base64" else text.encode()


def _header(name: str, text: object, in_base64: dict[str, str], where: str) -> str | bytes:
    if not isinstance(text, str):
        raise InvalidOption(f"{where}: header {name!r} is text, not {type(text).__name__}")
    return _decoded(text, where) if name in in_base64 else text


def _decoded(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise InvalidOption(f"{where}: not base64: {error}") from None


def _time(record: dict[str, Any], where: str) -> int | None:
    given = record.get("timestamp_ns", record.get("timestamp"))
    if given is None or type(given) is int:
        return given
    try:
        return nanoseconds("timestamp", datetime.fromisoformat(given))
    except (TypeError, ValueError):
        raise InvalidOption(f"{where}: timestamp {given!r} is not a moment") from None
