"""A message as bytes on stdout: text for people, json and raw for programs, hex for a close look."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum

import msgspec

from penstock import Message
from penstock.exchange.message_json import iso, json_record
from penstock.message import value_bytes

#: Control characters would move the cursor or break the line.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Format(StrEnum):
    """How `penstock read` prints messages."""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"
    HEX = "hex"


def as_text(message: Message) -> bytes:
    """Place, time, key, value; control characters and bytes that are not UTF-8 are escaped."""
    time = (iso(message.timestamp) or "").replace("T", " ")[:-4]
    key = "-" if message.key is None else shown(message.key)
    body = value_bytes(message)
    value = "(tombstone)" if body is None else shown(body)
    return f"{message.partition}:{message.offset}  {time}  {key}  {value}\n".encode()


def as_raw(message: Message) -> bytes:
    """The value as it is, and a line end; a tombstone is an empty line."""
    return (value_bytes(message) or b"") + b"\n"


def as_hex(message: Message) -> bytes:
    """Place, key, value in hexadecimal; "-" where there is none."""
    key = "-" if message.key is None else message.key.hex()
    body = value_bytes(message)
    value = "-" if body is None else body.hex()
    return f"{message.partition}:{message.offset}  {key}  {value}\n".encode()


def as_json(message: Message) -> bytes:
    """The whole message as one line of JSON; docs/cli.md describes it."""
    return msgspec.json.encode(json_record(message)) + b"\n"


def shown(value: bytes) -> str:
    """Bytes as one line of text; what would break it is escaped."""
    text = value.decode(errors="backslashreplace")
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


FORMATS: dict[Format, Callable[[Message], bytes]] = {
    Format.TEXT: as_text,
    Format.JSON: as_json,
    Format.RAW: as_raw,
    Format.HEX: as_hex,
}
