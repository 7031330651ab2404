"""Keys: which bytes a text or an array of identifiers is in the log, decided here and nowhere else.

- bytes are themselves, text is its UTF-8;
- an array (`["chat", 345]`) is its canonical JSON: no spaces, UTF-8 unescaped, `true`, `false` and `null`.
  `["chat", 345]` and `["chat", "345"]` are two keys. A float that is a whole number is that number, as it
  is for JavaScript (345.0 is 345, -0.0 is 0); others have the fewest digits that give the same float back.
  NaN and infinities, integers beyond 64 bits, objects, and more than 32 levels are refused.

An array and the text that spells it out are the same bytes, and so the same key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from penstock.errors import InvalidOption, MessageTooLarge, WrongType
from penstock.parse import KEY_BYTES_MAX

#: What an array may hold.
Element = str | int | float | bool | None | Sequence["Element"]
Key = str | bytes | Sequence[Element] | None
#: The beginning of a key: of a text its first characters, of an array its first elements.
Prefix = str | bytes | Sequence[Element]

_LEVELS_MOST = 32
_WHOLE_FLOAT_MOST = 2.0**53
_INTEGER_LEAST, _INTEGER_MOST = -(2**63), 2**64 - 1


def checked_key(key: Key) -> bytes | None:
    """A key as it is stored; None stays None."""
    if key is None:
        return None
    if isinstance(key, str):
        stored = _utf8(key)
    elif isinstance(key, (list, tuple)):
        stored = canonical(key)
    elif isinstance(key, (bytes, bytearray, memoryview)):
        stored = bytes(key)
    else:
        raise WrongType(f"a key is str, bytes or a list, not {type(key).__name__}")
    if len(stored) > KEY_BYTES_MAX:
        raise MessageTooLarge(f"a key of {len(stored)} bytes is over the limit of {KEY_BYTES_MAX}")
    return stored


def canonical(elements: Sequence[Any]) -> bytes:
    """An array as canonical JSON; raises for what has none."""
    try:
        return msgspec.json.encode(_normal(elements, 1))
    except UnicodeEncodeError:
        raise _lone_surrogate() from None


def spoken_key(text: str) -> bytes:
    """A key as people type it, and as URLs carry it: text that begins with `[` is an array in JSON."""
    return stored_key(_array(text) if text.startswith("[") else text)


def spoken_prefix(text: str) -> Prefix:
    """A prefix as people type it: text that begins with `[` is an array in JSON."""
    return _array(text) if text.startswith("[") else text


def shown_key(stored: bytes) -> str | list[Any]:
    """A stored key as it was given, if that can be told: an array, or text. Other bytes are escaped."""
    if stored.startswith(b"["):
        with suppress(msgspec.DecodeError, InvalidOption):
            array: list[Any] = msgspec.json.decode(stored, type=list[Any])
            if canonical(array) == stored:
                return array
    return stored.decode(errors="backslashreplace")


class Match(NamedTuple):
    """Which keys are wanted: some by name, and all that begin in a certain way."""

    keys: tuple[bytes, ...] = ()
    prefixes: tuple[bytes, ...] = ()

    def takes(self, key: bytes | None) -> bool:
        """Whether a stored key is one of those wanted."""
        return key is not None and (key in self.keys or key.startswith(self.prefixes))


def match(keys: Iterable[Key] = (), prefixes: Iterable[Prefix] = ()) -> Match:
    """Return what takes any of these keys and prefixes; where they overlap, none is asked for twice."""
    wanted = {stored_key(key) for key in keys}
    beginnings: list[bytes] = []
    for each in sorted(chain.from_iterable(map(_beginnings, prefixes))):
        if not beginnings or not each.startswith(beginnings[-1]):
            beginnings.append(each)
    taken = tuple(beginnings)
    return Match(tuple(sorted(key for key in wanted if not key.startswith(taken))), taken)


def _beginnings(prefix: Prefix) -> tuple[bytes, ...]:
    """Return the bytes with which keys of a prefix may begin."""
    stored = stored_key(prefix)
    if not isinstance(prefix, (list, tuple)):
        return (stored,)
    opened = stored[:-1]
    return (opened + b",", opened + b"]") if prefix else (opened,)


def stored_key(key: Key) -> bytes:
    """A key as it is stored, where there must be one; raises for None."""
    stored = checked_key(key)
    if stored is None:
        raise WrongType("a key or prefix to look for is str, bytes or a list, not None")
    return stored


def _normal(element: Any, level: int) -> Any:
    """An element as it is encoded."""
    if element is None or isinstance(element, (str, bool)):
        return element
    if isinstance(element, int):
        if not _INTEGER_LEAST <= element <= _INTEGER_MOST:
            raise InvalidOption("an integer in a key is beyond 64 bits", hint="write it as text")
        return int(element)
    if isinstance(element, float):
        if not math.isfinite(element):
            raise InvalidOption(f"{element} cannot be part of a key", hint="JSON has no such number")
        is_whole = element.is_integer() and abs(element) <= _WHOLE_FLOAT_MOST
        return int(element) if is_whole else float(element)
    if isinstance(element, (list, tuple)):
        if level > _LEVELS_MOST:
            raise InvalidOption(f"a key with more than {_LEVELS_MOST} levels")
        return [_normal(each, level + 1) for each in element]
    raise WrongType(
        f"a key's array holds str, int, float, bool, None and lists, not {type(element).__name__}"
    )


def _array(text: str) -> list[Any]:
    try:
        return msgspec.json.decode(_utf8(text), type=list[Any])
    except msgspec.DecodeError as error:
        raise InvalidOption(
            f"{text[:60]!r} begins with '[' and is not an array in JSON: {error}",
            hint="quote the elements that are text",
        ) from None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _lone_surrogate() from None


def _lone_surrogate() -> InvalidOption:
    return InvalidOption("the key holds a lone surrogate and cannot be stored as UTF-8")
