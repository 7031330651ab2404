"""What the audience sees: bars that move on a terminal, else lines."""

from __future__ import annotations

import time
from typing import Any

_LINE_S = 3.0


class Screen:
    """Lines with the time in front of them, tables, and below them how far everyone is."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._shown_at = self._began
        self._live: Any = None
        self._console: Any = None
        try:
            from rich.console import Console
        except ImportError:
            return
        self._console = Console(highlight=False)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def __enter__(self) -> Screen:
        if self._console is not None and self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, refresh_per_second=10)
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.__exit__(*error)
            self._live = None

    def say(self, text: str, style: str = "") -> None:
        line = f"{self.elapsed_s:6.1f} s  {text}"
        if self._console is not None:
            self._console.print(line, style=style or None, markup=False, soft_wrap=True)
        else:
            print(line, flush=True)

    def progress(self, bars: list[tuple[str, int, int]]) -> None:
        """How far everyone is: name, done, of how many."""
        if self._live is not None:
            self._live.update(_bars(bars))
        elif time.monotonic() - self._shown_at > _LINE_S:
            self._shown_at = time.monotonic()
            self.say(", ".join(f"{name} {done:,}" for name, done, _ in bars))

    def table(self, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
        if self._console is not None:
            from rich.table import Table

            table = Table(box=None, padding=(0, 2))
            for name in head:
                table.add_column(name, justify="right")
            for row in rows:
                table.add_row(*row)
            self._console.print(table)
        else:
            for row in (head, *rows):
                print("  ".join(f"{cell:>12}" for cell in row))

    def ledger(self, lines: list[tuple[str, int]], lost: int, twice: int, problems: list[str]) -> None:
        self._print("")
        for name, count in lines:
            self._print(f"  {name:<28}{count:>12,}")
        for problem in problems:
            self._print(f"  PROBLEM: {problem}", style="bold red")
        style = "bold green" if not lost and not twice else "bold red"
        self._print(f"  {lost} lost, {twice} twice", style=style)

    def _print(self, text: str, style: str = "") -> None:
        if self._console is not None:
            self._console.print(text, style=style or None, markup=False, soft_wrap=True)
        else:
            print(text, flush=True)


def _bars(bars: list[tuple[str, int, int]]) -> Any:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(box=None, padding=(0, 2))
    for name in ("", "", "orders"):
        table.add_column(name, justify="right" if name else "left")
    for name, done, total in bars:
        table.add_row(name, ProgressBar(total, min(done, total), width=40), f"{done:,}")
    return table
