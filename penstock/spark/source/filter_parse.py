"""Conditions in SQL, as far as they are understood here: comparisons of a column with a value, joined by AND.

    offset >= 100 AND written_at < timestamp '2026-03-01 12:00:00' AND partition IN (0, 3)

Spark plans its own reads by the filters of a query, and has no safe way to tell a source in Python. So
`penstock.spark.read(where=…)` looks at the condition itself: what is understood here narrows what is read.
It never decides which rows a query gets, since Spark applies the whole condition afterwards. What is not
understood (OR, functions, columns on both sides) is left out and narrows nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal, NamedTuple

Operator = Literal["=", "<", "<=", ">", ">=", "in"]

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*|`[^`]+`)|'(?P<text>[^'\\]*)'
    |(?P<sign><=>|<=|>=|<>|!=|==|[=<>(),*+/%.-]))""",
    re.VERBOSE,
)
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?(?:Z|[+-]\d\d:\d\d)?", re.ASCII)
_OPERATORS: dict[str, Operator] = {
    "=": "=", "==": "=", "<=>": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
}  # fmt: skip
_TURNED: dict[Operator, Operator] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: Functions of SQL that make a time of a number, and how many microseconds its unit has.
_TIMES = {"timestamp_micros": 1, "timestamp_millis": 1000, "timestamp_seconds": 1_000_000}
_KEYWORDS = {"and", "or", "not", "between", "in", "is", "null", "true", "false", "timestamp", "like"}


class Comparison(NamedTuple):
    """A column compared with a value; with "in" the value is a tuple of them."""

    column: str
    operator: Operator
    value: Any


class Understood(NamedTuple):
    """The comparisons that all rows must pass, and whether they are the whole condition."""

    comparisons: tuple[Comparison, ...] = ()
    is_whole: bool = False


class _Token(NamedTuple):
    kind: str
    text: str

    def says(self, *words: str) -> bool:
        return self.kind in ("name", "sign") and self.text.lower() in words


def understood(condition: str, zone: tzinfo | None = UTC) -> Understood:
    """The comparisons in a condition; times without a zone of their own are of `zone`, unknown if None."""
    tokens = _tokens(condition)
    if not tokens or any(each.says("or", "case") for each in _outermost(tokens)):
        return Understood()
    found = [_comparisons(part, zone) for part in _parts(tokens)]
    known = tuple(each for part in found if part is not None for each in part)
    return Understood(known, None not in found)


def columns_in(condition: str) -> set[str]:
    """All words of a condition that may be names of columns; too many do no harm."""
    return {word.lower() for word in re.findall(r"\w+", condition)}


def _tokens(condition: str) -> list[_Token]:
    """The words of a condition; none when there is something else in it, such as a comment."""
    found, at, text = [], 0, condition.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or text.startswith(("--", "/*"), match.start(match.lastgroup or 0)):
            return []
        kind = match.lastgroup or ""
        found.append(_Token(kind, match[kind].strip("`") if kind == "name" else match[kind]))
        at = match.end()
    return found


def _outermost(tokens: Sequence[_Token]) -> Iterator[_Token]:
    """Those that are in no parentheses; with unequal parentheses, all."""
    depth = 0
    for token in tokens:
        depth -= token.says(")")
        if depth <= 0:
            yield token
        depth += token.says("(")


def _parts(tokens: Sequence[_Token]) -> Iterator[list[_Token]]:
    """Split a condition at its ANDs, but not at the AND of a BETWEEN."""
    part: list[_Token] = []
    depth, between = 0, False
    for token in tokens:
        depth += token.says("(") - token.says(")")
        if depth == 0 and token.says("and") and not between:
            yield part
            part = []
            continue
        if depth == 0 and token.says("between", "and"):
            between = token.says("between")
        part.append(token)
    yield part


def _comparisons(part: Sequence[_Token], zone: tzinfo | None) -> list[Comparison] | None:
    """The comparisons that a part is; None when it is something else."""
    if len(part) > 2 and part[0].says("(") and part[-1].says(")") and _is_balanced(part[1:-1]):
        return _within(part[1:-1], zone)
    column = _column(part[0]) if part else None
    if column is not None and len(part) > 2:
        return _of_column(column, part[1], part[2:], zone)
    for at, token in enumerate(part):
        sign = _OPERATORS.get(token.text) if token.kind == "sign" else None
        if sign is not None and at + 2 == len(part) and (column := _column(part[-1])) is not None:
            value = _value(part[:at], zone)
            return None if value is None else [Comparison(column, _TURNED[sign], value)]
    return None


def _within(inner: Sequence[_Token], zone: tzinfo | None) -> list[Comparison] | None:
    if any(each.says("or", "case") for each in _outermost(inner)):
        return None
    found = [_comparisons(part, zone) for part in _parts(inner)]
    return None if None in found else [each for part in found if part is not None for each in part]


def _is_balanced(tokens: Sequence[_Token]) -> bool:
    depth = 0
    for token in tokens:
        depth += token.says("(") - token.says(")")
        if depth < 0:
            return False
    return depth == 0


def _of_column(
    column: str, sign: _Token, rest: Sequence[_Token], zone: tzinfo | None
) -> list[Comparison] | None:
    if sign.says("between"):
        ands = [at for at, token in enumerate(rest) if token.says("and")]
        if len(ands) != 1:
            return None
        low, high = _value(rest[: ands[0]], zone), _value(rest[ands[0] + 1 :], zone)
        if low is None or high is None:
            return None
        return [Comparison(column, ">=", low), Comparison(column, "<=", high)]
    if sign.says("in") and len(rest) > 2 and rest[0].says("(") and rest[-1].says(")"):
        values = [_value(each, zone) for each in _listed(rest[1:-1])]
        return None if None in values else [Comparison(column, "in", tuple(values))]
    operator = _OPERATORS.get(sign.text) if sign.kind == "sign" else None
    value = None if operator is None else _value(rest, zone)
    return None if operator is None or value is None else [Comparison(column, operator, value)]


def _listed(tokens: Sequence[_Token]) -> Iterator[list[_Token]]:
    item: list[_Token] = []
    depth = 0
    for token in tokens:
        depth += token.says("(") - token.says(")")
        if depth == 0 and token.says(","):
            yield item
            item = []
        else:
            item.append(token)
    yield item


def _column(token: _Token) -> str | None:
    return token.text.lower() if token.kind == "name" and token.text.lower() not in _KEYWORDS else None


def _value(tokens: Sequence[_Token], zone: tzinfo | None) -> Any:
    """The constant that these words are; None when they are something else."""
    if len(tokens) == 2 and tokens[0].says("-") and tokens[1].kind == "number":
        found = _value(tokens[1:], zone)
        return -found
    if len(tokens) == 2 and tokens[0].says("timestamp") and tokens[1].kind == "text":
        return moment(tokens[1].text, zone)
    if len(tokens) == 4 and tokens[1].says("(") and tokens[3].says(")") and tokens[2].text.isdecimal():
        unit = _TIMES.get(tokens[0].text.lower())
        return None if unit is None else _since_1970(unit * int(tokens[2].text))
    if len(tokens) != 1:
        return None
    (token,) = tokens
    if token.kind == "number":
        return float(token.text) if "." in token.text else int(token.text)
    if token.kind == "text":
        return token.text
    return {"true": True, "false": False}.get(token.text.lower())


def _since_1970(microseconds: int) -> datetime | None:
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    except OverflowError:  # Spark's time reaches further
        return None


def moment(text: str, zone: tzinfo | None) -> datetime | None:
    """A time as SQL spells it, when there is no doubt about it."""
    if _TIME.fullmatch(text.strip()) is None:
        return None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if found.tzinfo is not None:
        return found
    return None if zone is None else found.replace(tzinfo=zone)
