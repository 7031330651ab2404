"""A message's headers: their type, and the check that all writers share.

Apart from `message`, so that who only reads columns need not load it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, NoReturn

from penstock.errors import InvalidOption, MessageTooLarge, UsageError, WrongType
from penstock.parse import HEADERS_BYTES_MAX, all_are

Headers = Mapping[str, str | bytes]

#: Shared by all messages that have none.
NO_HEADERS: Headers = MappingProxyType({})


class SharedHeaders(dict[str, str | bytes]):
    """Headers that messages have in common: a dict that nobody can change for the others."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise UsageError("the headers of a message cannot be changed", hint="change a copy: dict(headers)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or what another process gets, is a dict like any other."""
        return dict, (dict(self),)


#: What can be looked at as a dict, knowing that it behaves like one.
_DICTS = {dict, SharedHeaders}


def checked_headers(headers: Mapping[Any, Any] | None) -> Headers | None:
    """Headers as they are stored: names are text, values text or bytes; None when there are none."""
    if not headers:
        return None
    if headers.__class__ in _DICTS:
        try:
            text = "".join([*headers, *headers.values()])
            if text.isascii() and len(text) <= HEADERS_BYTES_MAX:
                return headers
        except TypeError:  # some are bytes, or wrong
            pass
    return _checked_one_by_one(headers)


def checked_header_column(headers: Sequence[Any]) -> Sequence[Headers | None] | None:
    """Headers of many messages, checked; None when nobody has any."""
    if _are_plain(headers):
        return headers if any(headers) else None
    checked = list(map(checked_headers, headers))
    return checked if any(checked) else None


def _are_plain(headers: Sequence[Any]) -> bool:
    """Whether all are dicts of little plain text: then nothing has to be looked at one by one."""
    if not all_are(dict, headers) and not _DICTS.issuperset(map(type, headers)):
        return False
    names = list(chain.from_iterable(headers))
    values = list(chain.from_iterable(map(dict.values, headers)))
    try:
        if not ("".join(names).isascii() and "".join(values).isascii()):
            return False
    except TypeError:
        return False
    longest = max(map(len, names), default=0) + max(map(len, values), default=0)
    return max(map(len, headers)) * longest <= HEADERS_BYTES_MAX


def _checked_one_by_one(headers: Mapping[Any, Any]) -> Headers:
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


def dicts_of(names: Sequence[str], values: Sequence[str | bytes]) -> list[dict[str, str | bytes]]:
    """Headers of many messages that all have these names: a dict for each, of as many values as names."""
    each = len(names)
    if each == 1:
        (only,) = names
        return [{only: value} for value in values]
    if each == 2:  # with one or two, as most have, it is several times as quick as by pairs
        first, second = names
        return [{first: a, second: b} for a, b in zip(values[::2], values[1::2], strict=True)]
    rows = zip(*[values[place::each] for place in range(each)], strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]
