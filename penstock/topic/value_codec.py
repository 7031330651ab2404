"""From what a caller gives to the bytes that are stored.

`TypeCoder` belongs to a topic that was opened with `type=`: objects to bytes and back. `ValuePacker` belongs
to a writer: it has the type coder encode a value, packs that by the writer's codec, and keeps to the topic's
limit. All of it happens in the process that writes, before anything is appended (S001-51).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock import codecs
from penstock.codecs.limits import DECODED_BYTES_MAX
from penstock.errors import InvalidOption, MessageTooLarge, WrongType
from penstock.options import TopicOptions
from penstock.parse import SEQNO_MAX, TIME_MAX_NS, TIME_MIN_NS, whole
from penstock.references import Referenced


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


def checked_seqno(seqno: object) -> int:
    """A producer's number for a message."""
    return whole("seqno", seqno, 0, SEQNO_MAX)


def checked_times(timestamps: Sequence[int]) -> Sequence[int]:
    """Timestamps that fit into 64 bits of nanoseconds."""
    if timestamps and not (min(timestamps) >= TIME_MIN_NS and max(timestamps) <= TIME_MAX_NS):
        raise InvalidOption("a timestamp does not fit: moments from 1677 to 2262 can be stored")
    return timestamps


class TypeCoder:
    """Turns values of one Python type into bytes and back, as JSON."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        #: The classes that its values have; empty when that cannot be told.
        self.classes = _classes(kind)
        self.encode_exact: Callable[[Any], bytes] = msgspec.json.Encoder().encode
        #: Bytes to a value; raises whatever it likes.
        self.decode: Callable[[bytes], Any]
        if kind is str:
            self.encode_exact, self.decode = str.encode, _text
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
        if self.classes and not self._is_of_the_type(value):
            raise WrongType(f"this topic takes values of {_name(self.kind)}, not {type(value).__name__}")
        try:
            return self.encode_exact(value)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.EncodeError) as error:
            raise WrongType(f"a value of {_name(self.kind)} cannot be encoded: {error}") from error

    def _is_of_the_type(self, value: Any) -> bool:
        """Whether a value is of the type, as far as its class tells; what lies inside is not looked at."""
        if isinstance(value, bool):
            return bool in self.classes
        return isinstance(value, self.classes)


def coder_of(kind: Any) -> TypeCoder | None:
    """The coder for the argument `type=`; bytes need none."""
    return None if kind is None or kind is bytes else TypeCoder(kind)


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


class Packed(bytes):
    """A value that is packed already, on its way to a writer that would pack it."""


class ValuePacker:
    """Turns the values of one writer into what is stored: encoded by type, packed by codec."""

    def __init__(self, coder: TypeCoder | None, codec: int, limit: int) -> None:
        self.codec = codec
        self._coder = coder
        self._limit = limit
        is_exact = coder is not None and codec == codecs.RAW and len(coder.classes) == 1
        #: Values of exactly this class are encoded by one call of `encode_exact`; None: of none.
        self.exact: type | None = coder.classes[0] if coder is not None and is_exact else None
        self.encode_exact: Callable[[Any], bytes] = str.encode if coder is None else coder.encode_exact

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


def packer_for(coder: TypeCoder | None, codec: int, limit: int) -> ValuePacker | None:
    """Return what packs the values; None when they are stored as they are given."""
    return None if coder is None and codec == codecs.RAW else ValuePacker(coder, codec, limit)


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
