"""Typed topics: values that are objects in Python and JSON in the log (text, for topics of `str`).

The type belongs to whoever opens the topic, not to the topic: others may read its bytes, or another type.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.errors import WrongType


class Coder:
    """Turns values of one type into bytes and back."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self._classes = _classes(kind)
        self._encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
        #: Bytes to a value; raises whatever it likes.
        self.decode: Callable[[bytes], Any]
        if kind is str:
            self._encode, self.decode = str.encode, _text
            return
        try:
            if isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType):
                raise TypeError("there is no JSON for it")
            self.decode = msgspec.json.Decoder(kind).decode
        except TypeError as error:
            raise WrongType(
                f"type={kind!r}: {error}",
                hint="take a msgspec.Struct, a dataclass, a TypedDict, dict, list, str or number",
            ) from None

    def encode(self, value: Any) -> bytes | None:
        """A value as it is stored; None stays None. Raises `WrongType` for what is not of the type."""
        if value is None:
            return None
        if self._classes and not self._is_of_the_type(value):
            raise WrongType(f"this topic takes values of {_name(self.kind)}, not {type(value).__name__}")
        try:
            return self._encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.EncodeError) as error:
            raise WrongType(f"a value of {_name(self.kind)} cannot be encoded: {error}") from error

    def _is_of_the_type(self, value: Any) -> bool:
        """Roughly: what lies inside is not looked at, as everywhere in Python."""
        if isinstance(value, bool):
            return bool in self._classes
        return isinstance(value, self._classes)


def coder_of(kind: Any) -> Coder | None:
    """The coder for the argument `type=`; bytes need none."""
    return None if kind is None or kind is bytes else Coder(kind)


def _text(body: bytes) -> str:
    return body.decode()


def _classes(kind: Any) -> tuple[type, ...]:
    """The classes that values of a type have; empty when that cannot be told."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _classes(typing.get_args(kind)[0])
    if origin in (typing.Union, types.UnionType):
        parts = [_classes(part) for part in typing.get_args(kind)]
        return sum(parts, ()) if all(parts) else ()
    found = origin or kind
    if found is float:
        return float, int
    if typing.is_typeddict(found):
        return (dict,)
    is_class = isinstance(found, type) and found is not typing.Any
    return (found,) if is_class else ()


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
