"""How long messages of certain keys live, where that is shorter than the topic's retention.

A pattern says which keys: a text or an array is that key; a text that ends in `*` is every key that begins
so, an array whose last element is "*" every array that begins with the others. The key itself goes before a
pattern, a longer beginning before a shorter one. Keys that none of them names, and messages without a key,
live as long as the topic keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption, WrongType
from penstock.keys import Element, canonical, checked_key, match, spoken_prefix
from penstock.options import Duration, seconds

#: All of them are read whenever one looks whether they changed.
RULES_MOST = 1000
_ANY = "*"

#: A pattern as text, and seconds.
Rule = tuple[str, float]


def rules_of(given: object) -> tuple[Rule, ...]:
    """What a user gave as `key_retention`, checked, in the order of its patterns; None is no rules."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise WrongType(
            f"key_retention takes a dict, not {type(given).__name__}", hint='such as {"progress.*": "10m"}'
        )
    if len(given) > RULES_MOST:
        raise InvalidOption(
            f"{len(given)} patterns in key_retention: {RULES_MOST} are allowed",
            hint='name the beginning that keys share: "progress.*"',
        )
    return tuple(sorted(dict(_rule(pattern, lifetime) for pattern, lifetime in given.items()).items()))


def _rule(pattern: str | Sequence[Element], lifetime: Duration) -> Rule:
    if isinstance(pattern, str):
        pattern = spoken_prefix(pattern)
    elif not isinstance(pattern, (list, tuple)):
        raise WrongType(
            f"a pattern of key_retention is text or a tuple, not {type(pattern).__name__}",
            hint='"progress.*", or ("chat", 345)',
        )
    text = pattern if isinstance(pattern, str) else canonical(pattern).decode()
    checked_key(text)
    lasting = seconds(f"key_retention[{text[:60]!r}]", lifetime)
    if lasting == 0:
        raise InvalidOption(f"key_retention[{text[:60]!r}] is 0", hint="such messages could never be read")
    return text, lasting


class Lifetimes:
    """Rules, ready to be asked."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._keys: dict[bytes, int] = {}
        self._prefixes: dict[bytes, int] = {}
        for text, lasting in rules:
            pattern: Any = spoken_prefix(text)
            lasting_ns = round(lasting * NANOSECONDS)
            if pattern[-1:] == _ANY or pattern[-1:] == [_ANY]:
                for beginning in match(prefixes=[pattern[:-1]]).prefixes:
                    self._prefixes[beginning] = lasting_ns
            else:
                self._keys[checked_key(pattern) or b""] = lasting_ns
        #: Longest first.
        self._lengths = sorted({len(beginning) for beginning in self._prefixes}, reverse=True)
        #: What is younger than this is alive, whatever its key; None without rules.
        self.shortest_ns = min((*self._keys.values(), *self._prefixes.values()), default=None)

    def of(self, key: bytes | None) -> int | None:
        """How many nanoseconds messages of a key live; None: as long as the topic keeps them."""
        if key is None:
            return None
        found = self._keys.get(key)
        if found is None:
            for length in self._lengths:
                if len(key) >= length and (found := self._prefixes.get(key[:length])) is not None:
                    break
        return found
