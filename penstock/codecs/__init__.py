"""How a value may be packed: raw, gzip, lzop, zstd, or in a way of your own.

A writer packs each value; the codec's number is stored with the message, and readers unpack it
when the value is asked for. Numbers and names are those of YDB topics:

    1 raw · 2 gzip · 3 lzop · 4 zstd · 10000 to 19999 your own, see `register_codec`

20000 is none to choose: such a value lies outside the log (`penstock.references`).

zstd and lzop need the `codecs` extra; what needs it says so only when it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock import references
from penstock.codecs import gzip, lzop, zstd
from penstock.codecs.limits import Damaged
from penstock.errors import InvalidOption, MissingExtra, Undecodable, UnknownCodec, WrongType

RAW, GZIP, LZOP, ZSTD = 1, 2, 3, 4
OWN_FIRST, OWN_LAST = 10_000, 19_999
REFERENCE = references.CODEC

Function = Callable[[bytes], bytes]


class Codec(NamedTuple):
    """A way to pack values and to get them back."""

    name: str
    encode: Function
    decode: Function


def _as_it_is(value: bytes) -> bytes:
    return value


_KNOWN: dict[int, Codec] = {
    RAW: Codec("raw", _as_it_is, _as_it_is),
    GZIP: Codec("gzip", gzip.encode, gzip.decode),
    LZOP: Codec("lzop", lzop.encode, lzop.decode),
    ZSTD: Codec("zstd", zstd.encode, zstd.decode),
}
_NUMBERS = {codec.name: number for number, codec in _KNOWN.items()}


def register_codec(number: int, *, encode: Function, decode: Function, name: str | None = None) -> None:
    """Make a codec of your own known to this process; registering a number again replaces it.

    `number` is from 10000 to 19999 and is what the log stores, so every process that writes with it or
    wants the values registers the same. `name` is what `codec=` takes and `message.codec` says here
    instead of the number.
    """
    if not isinstance(number, int) or isinstance(number, bool):
        raise WrongType(f"a codec's number is an int, not {type(number).__name__}")
    if not OWN_FIRST <= number <= OWN_LAST:
        raise InvalidOption(f"codec number {number}: your own are {OWN_FIRST} to {OWN_LAST}")
    for function in (encode, decode):
        if not callable(function):
            raise WrongType(f"encode and decode are functions of bytes, not {type(function).__name__}")
    chosen = str(number) if name is None else name
    if not isinstance(chosen, str):
        raise WrongType(f"a codec's name is a str, not {type(chosen).__name__}")
    taken = _NUMBERS.get(chosen, number) != number or chosen == references.CODEC_NAME
    if taken or (chosen.isdecimal() and chosen != str(number)) or not chosen:
        raise InvalidOption(f"a codec cannot be called {chosen!r}: that is another one's name")
    if number in _KNOWN:
        _NUMBERS.pop(_KNOWN[number].name, None)
    _KNOWN[number] = Codec(chosen, encode, decode)
    _NUMBERS[chosen] = number


def number_of(codec: str | int) -> int:
    """The number that is stored for a codec given by its name or number; it need not be registered."""
    if isinstance(codec, str):
        number = _NUMBERS.get(codec)
        if number is not None:
            return number
        if not (codec.isascii() and codec.isdecimal()):
            raise InvalidOption(f"codec {codec!r} is not known", hint=f"codecs: {', '.join(_NUMBERS)}")
        codec = int(codec)
    elif not isinstance(codec, int) or isinstance(codec, bool):
        raise WrongType(f"a codec is a name or a number, not {type(codec).__name__}")
    if codec not in _KNOWN and not OWN_FIRST <= codec <= OWN_LAST:
        raise InvalidOption(
            f"codec number {codec} is not known",
            hint=f"1 raw, 2 gzip, 3 lzop, 4 zstd, {OWN_FIRST} to {OWN_LAST} your own",
        )
    return codec


def name_of(number: int) -> str:
    """What a codec is called in this process; one that is not known here by its number."""
    if number == REFERENCE:
        return references.CODEC_NAME
    codec = _KNOWN.get(number)
    return str(number) if codec is None else codec.name


def stored_number(name: str) -> int:
    """The number of what `name_of` said, also of one that no writer may choose."""
    return REFERENCE if name == references.CODEC_NAME else number_of(name)


def lasting_name(codec: str | int) -> str:
    """The name by which a codec is the same in every process: of your own ones, the number."""
    if codec == REFERENCE:
        return references.CODEC_NAME
    number = number_of(codec)
    return str(number) if number >= OWN_FIRST else _KNOWN[number].name


def encoder(number: int) -> Function:
    """The function that packs values. Raises when it is not to be had in this process, before any value."""
    codec = _KNOWN.get(number)
    if codec is None:
        raise InvalidOption(f"codec {number} is not registered in this process", hint=_how_to(number))
    if number in (LZOP, ZSTD):
        codec.encode(b"")  # its library may be missing
    return codec.encode


def encode(number: int, value: bytes) -> bytes:
    """Pack a value. Raises for a codec of your own that returns something else than bytes."""
    packed = _KNOWN[number].encode(value)
    if not isinstance(packed, bytes):
        raise WrongType(f"codec {name_of(number)} encoded a value to {type(packed).__name__}, not bytes")
    return packed


def decoded(codec: int | str, stored: bytes, *, topic: str, partition: int, offset: int) -> bytes:
    """The value of a message as it was before packing; one that lies outside the log is fetched.

    Raises `UnknownCodec` when this process cannot unpack it, `Undecodable` when the bytes are not what the
    codec made, `BodyMissing` or `Corrupt` for a body outside; all say which message it was.
    """
    where = f"offset {offset} of {topic!r} partition {partition}"
    if codec in (REFERENCE, references.CODEC_NAME):
        reference = references.unpack(stored)
        body = references.fetch(reference, where)
        if reference.codec == RAW:
            return body
        return decoded(reference.codec, body, topic=topic, partition=partition, offset=offset)
    place: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset}
    number = _NUMBERS.get(codec) if isinstance(codec, str) else codec
    if number is None:
        number = int(codec)
    known = _KNOWN.get(number)
    if known is None:
        raise UnknownCodec(
            f"{where} is packed with codec {number}, which is not registered in this process",
            codec=str(number), hint=_how_to(number), **place,
        )  # fmt: skip
    try:
        value = known.decode(stored)
        if not isinstance(value, bytes):
            raise Damaged(f"decode returned {type(value).__name__}, not bytes")
    except MissingExtra as error:
        raise UnknownCodec(
            f"{where} is packed with codec {known.name}, for which {error.args[0]}",
            codec=known.name, hint=error.hint, **place,
        ) from None  # fmt: skip
    except Exception as error:  # a codec may raise anything; it is about this message only
        raise Undecodable(f"{where} cannot be unpacked by codec {known.name}: {error}", **place) from error
    return value


def _how_to(number: int) -> str:
    return f"penstock.register_codec({number}, encode=…, decode=…) first, as the writer did"
