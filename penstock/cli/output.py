"""What the command prints: text, JSON, tables, progress and questions; numbers as people read them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec
import typer

from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption
from penstock.exchange.message_json import iso as iso
from penstock.parse import nanoseconds

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
    """End when nobody reads stdout any more, and let nothing complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(0)


def put_text(text: str) -> None:
    """Print a line of text."""
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
    """Whether the output is a terminal."""
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


class ProgressLine:
    """A line on stderr that counts along, on a terminal only."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._shown = 0
        self._next = time.monotonic() + _PROGRESS_S if sys.stderr.isatty() else float("inf")

    def update(self) -> None:
        """Show the line anew, a few times a second at most."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PROGRESS_S
            text = self._text()
            print(f"\r{text:<{self._shown}}", end="", file=sys.stderr, flush=True)
            self._shown = len(text)

    def clear(self) -> None:
        """Remove the line from the terminal."""
        if self._shown:
            print(f"\r{' ' * self._shown}\r", end="", file=sys.stderr, flush=True)
            self._shown = 0


class CountLine:
    """Shows on stderr how many messages are done, and of how many; `with` clears it at the end."""

    def __init__(self) -> None:
        self._done = 0
        self._total: int | None = None
        self._line = ProgressLine(self._text)

    def __enter__(self) -> CountLine:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.clear()

    def show(self, done: int, total: int | None = None) -> None:
        """Note how many are done, and show it when it is time."""
        self._done, self._total = done, total
        self._line.update()

    def _text(self) -> str:
        of = f" of {count(self._total)}" if self._total is not None else ""
        return f"{counted(self._done, 'message')}{of}"


_DURATIONS = (("d", 86400), ("h", 3600), ("m", 60))


def parse_moment(text: str, name: str = "--timestamp") -> int:
    """Nanoseconds since 1970 from an ISO time or from digits; a time without a zone is local."""
    if text.removeprefix("-").isdecimal():
        return nanoseconds(name, int(text))
    try:
        return nanoseconds(name, datetime.fromisoformat(text))
    except InvalidOption:
        raise
    except ValueError:
        raise InvalidOption(
            f"{name} {text!r} is not a moment",
            hint="an ISO time such as 2026-01-31T12:00:00Z, or nanoseconds since 1970",
        ) from None


def count(number: int) -> str:
    """Return a number with commas between thousands."""
    return f"{number:,}"


def counted(number: int, noun: str, plural: str = "s") -> str:
    """A number of things: "1 message", "1,200 messages"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{plural}"


def were_there(messages: int) -> str:
    """What is added to the end of a summary when some messages had been brought in before."""
    return f" ({counted(messages, 'message')} were there)" if messages else ""


def size(number: int | None) -> str:
    """Bytes, in the unit that fits."""
    if number is None:
        return "-"
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def duration(seconds: float | None, none: str = "-") -> str:
    """A duration as the options spell it, where it is a round one: "7d", "90s"."""
    if seconds is None:
        return none
    for unit, length in _DURATIONS:
        if seconds >= length and not seconds % length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:g}s"


def age(moment_ns: int | None, now_ns: int) -> str:
    """How long ago, roughly: "3 m", "2 d"; "-" when there is no moment."""
    if moment_ns is None:
        return "-"
    seconds = max(0, now_ns - moment_ns) / NANOSECONDS
    for unit, length in _DURATIONS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
