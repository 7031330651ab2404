"""Who waits for which key: found by the key of an event, without asking everybody."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Generic, TypeVar

from penstock.keys import Match

T = TypeVar("T")
#: Most keys have few who wait, and a set for each would be most of what a connection takes.
_TUPLE_MOST = 16


class Interest(Generic[T]):
    """Those who wait, by key and by the beginning of a key."""

    def __init__(self) -> None:
        self._keys: dict[bytes, tuple[T, ...] | set[T]] = {}
        self._prefixes: dict[bytes, set[T]] = {}
        self._lengths: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._keys or self._prefixes)

    def add(self, one: T, asked: Match) -> None:
        for key in asked.keys:
            self._keys[key] = _with(self._keys.get(key, ()), one)
        for prefix in asked.prefixes:
            self._prefixes.setdefault(prefix, set()).add(one)
            self._lengths = tuple({*self._lengths, len(prefix)})

    def remove(self, one: T, asked: Match) -> None:
        for key in asked.keys:
            left = _without(self._keys.get(key, ()), one)
            if left:
                self._keys[key] = left
            else:
                self._keys.pop(key, None)
        for prefix in asked.prefixes:
            those = self._prefixes.get(prefix, set())
            those.discard(one)
            if not those:
                self._prefixes.pop(prefix, None)
                self._lengths = tuple({len(each) for each in self._prefixes})

    def of(self, key: bytes) -> Collection[T]:
        """Who waits for that key; nobody twice."""
        named = self._keys.get(key, ())
        if not self._lengths:
            return named
        heard = list(named)
        for length in self._lengths:
            those = self._prefixes.get(key[:length])
            if those is not None and len(key) >= length:
                heard.extend(those)
        return heard

    def all(self) -> list[T]:
        """Everybody, once."""
        return list({id(each): each for each in self._each()}.values())

    def clear(self) -> None:
        self._keys.clear()
        self._prefixes.clear()
        self._lengths = ()

    def _each(self) -> Iterator[T]:
        for found in self._keys.values():
            yield from found
        for those in self._prefixes.values():
            yield from those


def _with(those: tuple[T, ...] | set[T], one: T) -> tuple[T, ...] | set[T]:
    if isinstance(those, set):
        those.add(one)
        return those
    if one in those:
        return those
    return (*those, one) if len(those) < _TUPLE_MOST else {*those, one}


def _without(those: tuple[T, ...] | set[T], one: T) -> tuple[T, ...] | set[T]:
    if isinstance(those, set):
        those.discard(one)
        return those
    return tuple(each for each in those if each is not one)
