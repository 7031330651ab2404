"""From what a caller gives to the bytes that are stored: first by the topic's type, then by the codec.

All of it happens in the process that writes, before anything is appended (S001-51).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock import codecs
from penstock.codecs.limits import DECODED_BYTES_MAX
from penstock.errors import InvalidOption
from penstock.options import TopicOptions
from penstock.references import Referenced
from penstock.topic.checks import checked_value
from penstock.topic.typed import Coder


class Packed(bytes):
    """A value that is packed already, on its way to a writer that would pack it."""


class Packing:
    """How the values of one writer become bytes."""

    def __init__(self, coder: Coder | None, codec: int, limit: int) -> None:
        self.codec = codec
        self._coder = coder
        self._limit = limit

    def one(self, value: Any) -> bytes | None:
        """A value as it is stored. The topic's limit holds for what is stored, not for what was given."""
        if value is None or isinstance(value, (Packed, Referenced)):
            return value
        return self.body(self.encoded(value))

    def encoded(self, value: Any) -> bytes | None:
        """A value as bytes, before the codec packs them."""
        if self._coder is not None:
            return self._coder.encode(value)
        return checked_value(value, DECODED_BYTES_MAX)

    def body(self, body: Any) -> bytes | None:
        """Bytes as they are stored; they are what a typed value is made of."""
        checked = checked_value(body, DECODED_BYTES_MAX)
        if checked is None or isinstance(checked, Referenced):
            return checked
        packed = checked if self.codec == codecs.RAW else codecs.encode(self.codec, checked)
        checked_value(packed, self._limit)
        return Packed(packed)

    def many(self, values: Sequence[Any], *, are_bodies: bool) -> Sequence[bytes | None]:
        """All values, or none when one of them cannot be stored."""
        return list(map(self.body if are_bodies else self.one, values))


def packing(coder: Coder | None, codec: int, limit: int) -> Packing | None:
    """None when values are stored as they are given."""
    return None if coder is None and codec == codecs.RAW else Packing(coder, codec, limit)


def allowed_codec(codec: str | int | None, options: TopicOptions) -> int:
    """The number of a codec that the topic allows and this process can use (S001-52); None is raw.

    Raises before anything is written.
    """
    number = codecs.RAW if codec is None else codecs.number_of(codec)
    refuse_codec(number, options)
    codecs.encoder(number)
    return number


def refuse_codec(number: int, options: TopicOptions) -> None:
    """Raise unless the topic's list has the codec, or is empty."""
    if options.codecs and codecs.lasting_name(number) not in options.codecs:
        raise InvalidOption(
            f"codec {codecs.name_of(number)} is not allowed by this topic",
            hint=f"it allows {', '.join(options.codecs)}: writer(codec={options.codecs[0]!r})",
        )
