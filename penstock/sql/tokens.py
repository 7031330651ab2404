"""SQL as words with their places: enough to divide a text into statements and to read those about topics.

Names are bare, in backticks (YDB) or in double quotes (SQL); texts are in single quotes, in which '' and \\'
stand for a quote. Comments are -- to the end of the line, and /* … */.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from penstock.errors import InvalidSql

Kind = Literal["word", "name", "text", "number", "sign", "end"]

_TOKEN = re.compile(
    r"""(?P<word>[^\W\d]\w*(?:[.-]\w+)*)
    |`(?P<tick>(?:[^`]|``)+)`
    |"(?P<name>(?:[^"]|"")+)"
    |'(?P<text>(?:[^'\\]|''|\\.)*)'
    |(?P<number>[+-]?\d+(?:\.\d+)?)[uUlL]*
    |(?P<sign>[(),=;])""",
    re.VERBOSE | re.DOTALL,
)
_BLANK = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)+", re.DOTALL)
#: What may hold a semicolon that ends nothing.
_QUOTED = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|/\*.*?\*/|(\$\w*\$).*?\1|;""", re.DOTALL
)


class Token(NamedTuple):
    """A word of a statement; `at` is where it begins in the whole text."""

    kind: Kind
    text: str
    at: int

    def says(self, *words: str) -> bool:
        """Whether it is one of these words, in any case; what is quoted is none."""
        return self.kind in ("word", "sign") and self.text.upper() in words


class Statement(NamedTuple):
    """One statement of a text, and where it begins."""

    text: str
    at: int


def divided(text: str) -> list[Statement]:
    """The statements of a text, without the semicolons between them; those that are empty are left out."""
    found, begin = [], 0
    for match in _QUOTED.finditer(text):
        if match[0] == ";":
            found.append(Statement(text[begin : match.start()], begin))
            begin = match.end()
    found.append(Statement(text[begin:], begin))
    return [each for each in found if _BLANK.sub("", each.text)]


def is_finished(text: str) -> bool:
    """Whether a text ends with a semicolon that ends a statement, so that nothing more is waited for."""
    ends = [match.end() for match in _QUOTED.finditer(text) if match[0] == ";"]
    return bool(ends) and not _BLANK.sub("", text[ends[-1] :])


def first_words(statement: Statement, count: int) -> list[str]:
    """The first words of a statement in capitals, as far as it begins with words."""
    found: list[str] = []
    at = 0
    while len(found) < count:
        at = _behind_blanks(statement.text, at)
        match = _TOKEN.match(statement.text, at)
        if match is None or match.lastgroup != "word":
            break
        found.append(match[0].upper())
        at = match.end()
    return found


def tokens(statement: Statement, whole: str) -> Iterator[Token]:
    """The words of a statement, and an end; raises `InvalidSql` where there is something else."""
    at = 0
    while (at := _behind_blanks(statement.text, at)) < len(statement.text):
        match = _TOKEN.match(statement.text, at)
        if match is None:
            raise refused(whole, statement.at + at, f"{statement.text[at]!r} is not understood here")
        yield _token(match, statement.at + at)
        at = match.end()
    yield Token("end", "the end", statement.at + len(statement.text.rstrip()))


def refused(whole: str, at: int, message: str, hint: str = "") -> InvalidSql:
    """The error for a place in the text: it says the line and column, and points at it."""
    begin = whole.rfind("\n", 0, at) + 1
    line, column = whole.count("\n", 0, at) + 1, at - begin + 1
    shown = whole[begin:].split("\n", 1)[0]
    pointed = f"{message} (line {line}, column {column})\n  {shown}\n  {' ' * (column - 1)}^"
    return InvalidSql(pointed, line=line, column=column, hint=hint)


def _behind_blanks(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match is not None else at


def _token(match: re.Match[str], at: int) -> Token:
    group, text = match.lastgroup, match[match.lastgroup or 0]
    if group == "tick":
        return Token("name", text.replace("``", "`"), at)
    if group == "name":
        return Token("name", text.replace('""', '"'), at)
    if group == "text":
        return Token("text", re.sub(r"''|\\(.)", lambda found: found[1] or "'", text, flags=re.DOTALL), at)
    return Token(group, text, at)  # type: ignore[arg-type]
