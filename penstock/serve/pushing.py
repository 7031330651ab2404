"""What is pushed: an object, an array of them, or one a line (NDJSON); stored all or none.

Data is stored as it was sent, byte for byte, once it is known to be JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from penstock.errors import InvalidOption
from penstock.keys import stored_key
from penstock.serve.access import Grant
from penstock.serve.pieces import AUDIENCE
from penstock.serve.replies import Request

_NULL = b"null"


class _Event(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: str | list[Any]
    data: msgspec.Raw = msgspec.Raw(_NULL)
    audience: str | list[str] | None = None


class Push(NamedTuple):
    """Events as they are stored."""

    keys: list[bytes]
    values: list[bytes]
    headers: list[Mapping[str, bytes] | None] | None

    @property
    def size(self) -> int:
        if len(self.keys) == 1:
            return len(self.keys[0]) + len(self.values[0])
        return sum(map(len, self.keys)) + sum(map(len, self.values))


_one_or_many = msgspec.json.Decoder(_Event | list[_Event])
_one = msgspec.json.Decoder(_Event)


def read_push(request: Request, grant: Grant, topic: str) -> Push:
    """The events of a request; raises for the first that cannot be stored or is not allowed."""
    body = request.body
    if not body.strip():
        raise InvalidOption("there is nothing to push", hint='{"key": "news", "data": {"text": "hello"}}')
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise InvalidOption(f"the body is not UTF-8 at byte {error.start}") from None
    events = _events(body, request.headers.get("content-type", "").lower())
    if not events:
        raise InvalidOption("there is nothing to push", hint="an array with at least one event")
    keys = [stored_key(event.key) for event in events]
    grant.require_push(topic, keys)
    headers: list[Mapping[str, bytes] | None] | None = None
    for event in events:
        if event.audience is not None:
            headers = [_header(event.audience) for event in events]
            break
    return Push(keys, [bytes(event.data) for event in events], headers)


def _events(body: bytes, kind: str) -> list[_Event]:
    try:
        if "ndjson" not in kind and "jsonl" not in kind:
            try:
                found = _one_or_many.decode(body)
                return found if isinstance(found, list) else [found]
            except msgspec.DecodeError:
                if "json" in kind or b"\n" not in body.strip():
                    raise
        return _lines(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidOption(
            f"that is no event: {error}", hint='{"key": …, "data": …}, an array of these, or one a line'
        ) from None


def _lines(body: bytes) -> list[_Event]:
    events = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if line.strip():
            try:
                events.append(_one.decode(line))
            except msgspec.DecodeError as error:
                raise InvalidOption(
                    f"line {number} is no event: {error}", hint="nothing was stored"
                ) from None
    return events


def _header(audience: str | list[str] | None) -> Mapping[str, bytes] | None:
    return None if audience is None else {AUDIENCE: msgspec.json.encode(audience)}
