"""`penstock sql`: queries over topics, and statements that change them; without a text it asks for some.

Rows are printed as a table for people, as CSV or JSON for programs.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from penstock import Store
from penstock.cli import failures, output
from penstock.cli.arguments import StoreOption, flag, open_to_read, open_to_write
from penstock.cli.failures import Exit
from penstock.cli.formats import shown
from penstock.errors import InvalidOption, PenstockError
from penstock.sql import statements, tokens
from penstock.sql.session import SqlResult, SqlSession
from penstock.sql.tokens import Statement

_HELP = """\
Statements end with a semicolon:
  select key, count(*) from orders where written_at > now() - interval 1 hour group by 1;
  create topic orders (consumer billing) with (retention_period = Interval('P7D'));
.tables  the topics    .help  this text    .quit, Ctrl-D  the end"""
_PROMPT, _GOES_ON = "penstock> ", "     ...> "
#: What Ctrl-C leaves of a line.
_CANCELLED = "\x03"
_HISTORY = "PENSTOCK_HISTORY"
_HISTORY_LINES = 1000
#: A table needs the widths of all its rows; behind so many there is a new head.
_TABLE_ROWS = 10_000


class RowsFormat(StrEnum):
    """How `penstock sql` prints rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def sql(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="SQL", help="One statement or several; - reads them from stdin.", show_default=False
        ),
    ] = None,
    form: Annotated[
        RowsFormat | None, typer.Option("--format", help="How rows are printed.", show_default="table")
    ] = None,
    store: StoreOption = "",
    as_json: Annotated[bool, flag("--json", help="The same as --format json.")] = False,
) -> None:
    """Query topics by SQL, and create, alter and drop them in YDB's words.

    Without a statement it asks for them, on a terminal with a history.
    """
    if as_json and form not in (None, RowsFormat.JSON):
        raise InvalidOption("--json and another --format", hint="give one of them")
    chosen = RowsFormat.JSON if as_json else form or RowsFormat.TABLE
    if text is None:
        _converse(store, chosen)
        return
    _run(store, sys.stdin.read() if text == "-" else text, chosen)


def _run(path: str, text: str, form: RowsFormat) -> None:
    """Run all statements of a text, printing what each gives."""
    about_topics = [each for each in tokens.divided(text) if statements.is_about_topics(each)]
    with _opened(path, about_topics) as opened:
        session = SqlSession(opened)
        try:
            for result in session.each(text):
                _put(result, form)
        finally:
            session.close()


def _opened(path: str, about_topics: list[Statement]) -> Store:
    """The store, to read unless something changes it; CREATE TOPIC makes one."""
    if not about_topics:
        return open_to_read(path)
    creates = any(tokens.first_words(each, 1) == ["CREATE"] for each in about_topics)
    return open_to_write(path, create=creates, alone=True)


def _put(result: SqlResult, form: RowsFormat) -> None:
    if result.has_rows:
        _put_rows(result, form)
    elif result.defined is not None:
        topic, outcome = result.defined
        if form is RowsFormat.JSON:
            output.put_json({"topic": topic, "outcome": outcome}, line=True)
        else:
            output.put_text(f"topic {topic} {outcome}")


# The conversation.


def _converse(path: str, form: RowsFormat) -> None:
    """Run statements as they are typed; a mistake is told, and the next one asked for."""
    failed = False
    is_asking = sys.stdin.isatty()
    with open_to_read(path) as opened:
        session = SqlSession(opened)
        try:
            for text in _typed(is_asking):
                failed = not _tried(path, opened, session, text, form) or failed
        finally:
            session.close()
    if failed and not is_asking:
        raise typer.Exit(Exit.USAGE)


def _tried(path: str, opened: Store, session: SqlSession, text: str, form: RowsFormat) -> bool:
    """Run what was typed; return False when it was refused, which is told."""
    try:
        if text == ".tables":
            for topic in opened.topics():
                output.put_text(topic.name)
        elif text == ".help":
            output.put_text(_HELP)
        elif text.startswith("."):
            raise InvalidOption(f"no command {text.split()[0]!r}", hint=".help shows those there are")
        elif any(map(statements.is_about_topics, tokens.divided(text))):
            _run(path, text, form)
        else:
            for result in session.each(text):
                _put(result, form)
    except (PenstockError, OSError) as error:
        failures.report(error)
        return False
    return True


def _typed(is_asking: bool) -> Iterator[str]:
    """What is typed, up to each semicolon; a line that begins with a dot is a command of its own."""
    if is_asking:
        _use_history()
        output.say("SQL over topics; .help says more, Ctrl-D ends it")
    held = ""
    while (line := _line(is_asking, bool(held))) is not None:
        if line is _CANCELLED:
            held = ""
            continue
        if not held and line.strip() in (".quit", ".exit"):
            return
        if not held and line.strip().startswith("."):
            yield line.strip()
            continue
        held = f"{held}\n{line}" if held else line.strip()
        if tokens.is_finished(held):
            yield held
            held = ""
    if held.strip():
        yield held


def _line(is_asking: bool, goes_on: bool) -> str | None:
    """The next line; None at the end."""
    if not is_asking:
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None
    try:
        return input(_GOES_ON if goes_on else _PROMPT)
    except EOFError:
        output.say("")
        return None
    except KeyboardInterrupt:
        output.say("")
        return _CANCELLED


def _use_history() -> None:
    """Keep what is typed in a file, where the terminal can do so."""
    with suppress(ImportError, OSError):
        import atexit
        import readline

        path = os.environ.get(_HISTORY) or os.path.expanduser("~/.penstock_history")
        with suppress(FileNotFoundError):
            readline.read_history_file(path)
        readline.set_history_length(_HISTORY_LINES)
        atexit.register(_keep_history, path)


def _keep_history(path: str) -> None:
    import readline

    with suppress(OSError):
        readline.write_history_file(path)


# Rows.


def _put_rows(result: SqlResult, form: RowsFormat) -> None:
    """Print the rows of a query; JSON is an object a line, CSV begins with the names."""
    {RowsFormat.TABLE: _put_table, RowsFormat.CSV: _put_csv, RowsFormat.JSON: _put_json}[form](result)


def _put_table(result: SqlResult) -> None:
    names, found = result.columns, 0
    numbers = _number_columns(result)
    for rows in _rows(result, _TABLE_ROWS):
        found += len(rows)
        columns: list[output.Column[tuple[Any, ...]]] = [
            (name, lambda row, at=at: _cell(row[at]), at in numbers)  # type: ignore[misc]
            for at, name in enumerate(names)
        ]
        output.put_table("", rows, columns)
    if not found:
        output.put_text("no rows")


def _put_csv(result: SqlResult) -> None:
    output.put(_csv_lines([tuple(result.columns)]))
    for rows in _rows(result, _TABLE_ROWS):
        output.put(_csv_lines([tuple("" if each is None else _cell(each) for each in row) for row in rows]))


def _put_json(result: SqlResult) -> None:
    names = result.columns
    for rows in _rows(result, _TABLE_ROWS):
        lines = [msgspec.json.encode(dict(zip(names, map(_plain, row), strict=True))) for row in rows]
        output.put(b"\n".join(lines) + b"\n")


def _rows(result: SqlResult, most: int) -> Iterator[list[tuple[Any, ...]]]:
    held: list[tuple[Any, ...]] = []
    for batch in result.batches():
        columns = [column.to_pylist() for column in batch.columns]
        held += zip(*columns, strict=True) if columns else []
        if len(held) >= most:
            yield held
            held = []
    if held:
        yield held


def _number_columns(result: SqlResult) -> set[int]:
    kinds = [str(each) for each in result.relation.types]
    return {
        at
        for at, kind in enumerate(kinds)
        if kind.endswith(("INT", "INTEGER", "DOUBLE", "FLOAT")) or "DECIMAL" in kind
    }


def _csv_lines(rows: list[tuple[Any, ...]]) -> bytes:
    held = io.StringIO()
    csv.writer(held, lineterminator="\n").writerows(rows)
    return held.getvalue().encode(errors="backslashreplace")


def _cell(value: Any) -> str:
    """A value as one line of text."""
    plain = _plain(value)
    if plain is None:
        return "-"
    if isinstance(plain, str):
        return shown(plain.encode(errors="backslashreplace"))
    return msgspec.json.encode(plain).decode()


def _plain(value: Any) -> Any:
    """A value as JSON can say it: times in ISO, bytes as text, exact numbers as numbers."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
