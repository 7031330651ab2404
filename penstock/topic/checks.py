"""What can be stored and what cannot: keys, values, headers and times, checked once, at the edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import InvalidOption, MessageTooLarge, WrongType
from penstock.message import Headers
from penstock.options import (
    HEADERS_BYTES_MAX,
    SEQNO_MAX,
    TIME_MAX_NS,
    TIME_MIN_NS,
    whole,
)


def checked_value(value: object, limit: int) -> bytes | None:
    """A value as it is stored: text is its UTF-8, None a tombstone."""
    if value is None or isinstance(value, bytes):
        stored = value
    elif isinstance(value, str):
        try:
            stored = value.encode()
        except UnicodeEncodeError:
            raise InvalidOption("the value holds a lone surrogate and cannot be stored as UTF-8") from None
    elif isinstance(value, (bytearray, memoryview)):
        stored = bytes(value)
    else:
        raise WrongType(
            f"a value is bytes, str or None, not {type(value).__name__}",
            hint='encode it first, e.g. json.dumps; paths and files need payloads="files"',
        )
    if stored is not None and len(stored) > limit:
        raise MessageTooLarge(
            f"a value of {len(stored)} bytes is over the topic's limit of {limit}",
            hint='raise max_message_bytes of the topic, or give it payloads="files"',
        )
    return stored


def checked_headers(headers: Mapping[Any, Any] | None) -> Headers | None:
    """Headers as they are stored: names are text, values text or bytes; None when there are none."""
    if not headers:
        return None
    if not isinstance(headers, Mapping):
        raise WrongType(f"headers are a mapping of names to values, not {type(headers).__name__}")
    total = 0
    for name, value in headers.items():
        if not isinstance(name, str):
            raise WrongType(f"a header's name is a str, not {type(name).__name__}")
        if not isinstance(value, (str, bytes)):
            raise WrongType(f"header {name!r} is str or bytes, not {type(value).__name__}")
        try:
            total += len(name.encode()) + len(value.encode() if isinstance(value, str) else value)
        except UnicodeEncodeError:
            raise InvalidOption(f"header {name!r} holds a lone surrogate and cannot be stored") from None
    if total > HEADERS_BYTES_MAX:
        raise MessageTooLarge(f"headers of {total} bytes are over the limit of {HEADERS_BYTES_MAX}")
    return headers


def checked_seqno(seqno: object) -> int:
    """A producer's number for a message."""
    return whole("seqno", seqno, 0, SEQNO_MAX)


def checked_times(timestamps: Sequence[int]) -> Sequence[int]:
    """Timestamps that fit into 64 bits of nanoseconds."""
    if timestamps and not (min(timestamps) >= TIME_MIN_NS and max(timestamps) <= TIME_MAX_NS):
        raise InvalidOption("a timestamp does not fit: moments from 1677 to 2262 can be stored")
    return timestamps
