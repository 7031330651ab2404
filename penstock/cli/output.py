"""What the command prints: results on stdout, everything else on stderr.

A result is a dataclass; it is printed as a table or, with --json, as an object with the same
content. Colours only on a terminal. Whoever stops reading (`| head`) ends the command quietly.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import typer

Row = TypeVar("Row")
#: A column: its title, what it shows of a row, and whether it is a number.
Column = tuple[str, Callable[[Row], str], bool]

#: Wide enough that nothing is cut off or wrapped when the output is not a terminal.
_PIPED_WIDTH = 10_000
_PROGRESS_S = 0.2


def put(data: bytes) -> None:
    """Write to stdout, now. Ends the command with 0 when nobody reads any more."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        end_quietly()


def end_quietly() -> None:
    """Nobody reads stdout any more: be done, and let nothing complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(0)


def put_text(text: str) -> None:
    put(f"{text}\n".encode(errors="backslashreplace"))


def put_json(record: object, *, line: bool = False) -> None:
    """One JSON document; spread out when a person looks at it, unless it is a line of many."""
    data = msgspec.json.encode(record)
    if not line and sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    put(data + b"\n")


def put_table(title: str, rows: Sequence[Row], columns: Sequence[Column[Row]], empty: str = "") -> None:
    """A table of records, with a line above it; `empty` is said when there are none."""
    if title:
        put_text(title)
    if rows:
        put(_rendered(rows, columns).encode(errors="backslashreplace"))
    elif empty:
        put_text(empty)


def _rendered(rows: Sequence[Row], columns: Sequence[Column[Row]]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title, _, is_number in columns:
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(show(row)) for _, show, _ in columns))
    console = Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH)
    with console.capture() as captured:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def is_terminal() -> bool:
    return sys.stdout.isatty()


def say(text: str) -> None:
    """A notice on stderr."""
    print(text, file=sys.stderr)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost for good; end the command unless the answer is yes."""
    if yes:
        return
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    if answer.strip().lower() in ("y", "yes"):
        return
    say("nothing was changed" if answer else "nothing was changed; --yes answers for you")
    raise typer.Exit(1)


class Progress:
    """A line on stderr that counts along, on a terminal only."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._shown = 0
        self._next = time.monotonic() + _PROGRESS_S if sys.stderr.isatty() else float("inf")

    def update(self) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PROGRESS_S
            text = self._text()
            print(f"\r{text:<{self._shown}}", end="", file=sys.stderr, flush=True)
            self._shown = len(text)

    def clear(self) -> None:
        if self._shown:
            print(f"\r{' ' * self._shown}\r", end="", file=sys.stderr, flush=True)
            self._shown = 0
