"""CREATE TOPIC, ALTER TOPIC and DROP TOPIC, parsed: what is asked for, in the words it was asked with.

    CREATE TOPIC [IF NOT EXISTS] name [(CONSUMER c [WITH (word = value, …)], …)] [WITH (word = value, …)]
    ALTER TOPIC name SET (word = value, …) | RESET (word, …) | ADD CONSUMER c [WITH (…)]
                   | ALTER CONSUMER c SET (…) | ALTER CONSUMER c RESET (…) | DROP CONSUMER c  [, …]
    DROP TOPIC [IF EXISTS] name

A value is a number, a text, TRUE, FALSE, Interval('PT12H'), Timestamp('…') or Datetime('…').
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from penstock.errors import InvalidSql
from penstock.sql.tokens import Statement, Token, first_words, refused, tokens

T = TypeVar("T")
_INTERVAL = re.compile(
    r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_UNITS = ("weeks", "days", "hours", "minutes", "seconds")


@dataclass(frozen=True)
class Setting:
    """A word and its value, and where the word stands; RESET has no value."""

    word: str
    value: Any
    at: int


@dataclass(frozen=True)
class TopicAction:
    """One thing that a statement does to a topic or to a consumer of it."""

    verb: Literal["set", "reset", "add", "alter", "forget", "drop"]
    consumer: str | None
    settings: tuple[Setting, ...]
    at: int


@dataclass(frozen=True)
class TopicStatement:
    """A statement about one topic."""

    verb: Literal["create", "alter", "drop"]
    topic: str
    #: IF NOT EXISTS, or IF EXISTS.
    if_needed: bool
    actions: tuple[TopicAction, ...]
    #: The whole text, to point at places in it, and where the topic's name stands there.
    whole: str
    at: int

    def refused(self, at: int, message: str, hint: str = "") -> InvalidSql:
        """The error for a place in the statement."""
        return refused(self.whole, at, message, hint)


def is_about_topics(statement: Statement) -> bool:
    """Whether a statement is one of ours; all others are DuckDB's."""
    words = first_words(statement, 2)
    return len(words) == 2 and words[0] in ("CREATE", "ALTER", "DROP") and words[1] == "TOPIC"


def parse(statement: Statement, whole: str) -> TopicStatement:
    """What a statement asks for; raises `InvalidSql`, which points at what is wrong."""
    return _Parser(statement, whole).statement()


class _Parser:
    """Reads one statement from left to right."""

    def __init__(self, statement: Statement, whole: str) -> None:
        self._whole = whole
        self._tokens = list(tokens(statement, whole))
        self._place = 0

    def statement(self) -> TopicStatement:
        verb = self._next().text.lower()
        self._expect("TOPIC")
        if_needed = verb != "alter" and self._if_needed(verb)
        at, topic = self._token.at, self._name("a topic's name")
        actions: list[TopicAction] = []
        if verb != "drop":
            actions = self._created() if verb == "create" else self._altered()
        if self._token.kind != "end":
            raise self._unexpected("the end of the statement")
        return TopicStatement(verb, topic, if_needed, tuple(actions), self._whole, at)  # type: ignore[arg-type]

    def _if_needed(self, verb: str) -> bool:
        if not self._skips("IF"):
            return False
        if verb == "create":
            self._expect("NOT")
        self._expect("EXISTS")
        return True

    def _created(self) -> list[TopicAction]:
        found: list[TopicAction] = []
        if self._token.says("("):
            found += self._listed(self._declared)
        at = self._token.at
        if self._skips("WITH"):
            found.insert(0, TopicAction("set", None, self._settings(), at))
        return found

    def _declared(self) -> TopicAction:
        at = self._token.at
        self._expect("CONSUMER")
        return self._added(at)

    def _added(self, at: int) -> TopicAction:
        name = self._name("a consumer's name")
        return TopicAction("add", name, self._settings() if self._skips("WITH") else (), at)

    def _altered(self) -> list[TopicAction]:
        found = [self._action()]
        while self._skips(",") or self._token.kind != "end":  # YDB takes actions with and without commas
            found.append(self._action())
        return found

    def _action(self) -> TopicAction:
        token = self._next()
        if token.says("SET"):
            return TopicAction("set", None, self._settings(), token.at)
        if token.says("RESET"):
            return TopicAction("reset", None, self._words(), token.at)
        if token.says("ADD", "ALTER", "DROP"):
            self._expect("CONSUMER")
            if token.says("ADD"):
                return self._added(token.at)
            name = self._name("a consumer's name")
            if token.says("DROP"):
                return TopicAction("drop", name, (), token.at)
            if self._skips("RESET"):
                return TopicAction("forget", name, self._words(), token.at)
            self._expect("SET", "RESET")
            return TopicAction("alter", name, self._settings(), token.at)
        self._place -= 1
        raise self._unexpected("SET, RESET, ADD CONSUMER, ALTER CONSUMER or DROP CONSUMER")

    def _settings(self) -> tuple[Setting, ...]:
        return self._once(self._listed(self._setting))

    def _setting(self) -> Setting:
        at, word = self._token.at, self._name("the name of an option").lower()
        self._expect("=")
        return Setting(word, self._value(), at)

    def _words(self) -> tuple[Setting, ...]:
        def word() -> Setting:
            return Setting(at=self._token.at, word=self._name("the name of an option").lower(), value=None)

        return self._once(self._listed(word))

    def _once(self, settings: list[Setting]) -> tuple[Setting, ...]:
        seen: set[str] = set()
        for each in settings:
            if each.word in seen:
                raise refused(self._whole, each.at, f"{each.word} stands here twice", "leave one out")
            seen.add(each.word)
        return tuple(settings)

    def _listed(self, item: Callable[[], T]) -> list[T]:
        """Items between parentheses, divided by commas."""
        self._expect("(")
        found = [item()]
        while self._skips(","):
            found.append(item())
        self._expect(")")
        return found

    def _value(self) -> Any:
        token = self._next()
        if token.kind == "number":
            return float(token.text) if "." in token.text else int(token.text)
        if token.kind in ("text", "name"):
            return token.text
        if token.says("TRUE", "FALSE"):
            return token.says("TRUE")
        if token.says("INTERVAL", "TIMESTAMP", "DATETIME"):
            self._expect("(")
            inner = self._next()
            if inner.kind != "text":
                self._place -= 1
                raise self._unexpected("a text in quotes")
            self._expect(")")
            return self._interval(inner) if token.says("INTERVAL") else self._moment(inner)
        self._place -= 1
        raise self._unexpected("a number, a text in quotes, TRUE, FALSE, Interval('…') or Timestamp('…')")

    def _interval(self, token: Token) -> timedelta:
        match = _INTERVAL.fullmatch(token.text)
        if match is None or not any(match.groups()):
            raise refused(
                self._whole, token.at, f"{token.text!r} is not an interval", "write it like 'PT12H' or 'P7D'"
            )
        amounts = [float(each or 0) for each in match.groups()]
        return timedelta(**dict(zip(_UNITS, amounts, strict=True)))

    def _moment(self, token: Token) -> datetime:
        try:
            found = datetime.fromisoformat(token.text)
        except ValueError:
            hint = "write it like '2026-01-31T12:00:00Z'"
            raise refused(self._whole, token.at, f"{token.text!r} is not a moment", hint) from None
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    # Words.

    @property
    def _token(self) -> Token:
        return self._tokens[self._place]

    def _next(self) -> Token:
        token = self._token
        if token.kind != "end":
            self._place += 1
        return token

    def _skips(self, word: str) -> bool:
        if not self._token.says(word):
            return False
        self._place += 1
        return True

    def _expect(self, *words: str) -> None:
        if not self._token.says(*words):
            raise self._unexpected(" or ".join(words))
        self._place += 1

    def _name(self, what: str) -> str:
        if self._token.kind not in ("word", "name"):
            raise self._unexpected(what)
        return self._next().text

    def _unexpected(self, wanted: str) -> InvalidSql:
        token = self._token
        found = token.text if token.kind == "end" else repr(token.text)
        return refused(self._whole, token.at, f"{wanted} is expected here, not {found}")
