"""A line on stderr that counts messages along, on a terminal only."""

from __future__ import annotations

from penstock.cli import output


class CountLine:
    """Shows how many messages are done, and of how many; `with` clears it at the end."""

    def __init__(self) -> None:
        self._done = 0
        self._total: int | None = None
        self._line = output.ProgressLine(self._text)

    def __enter__(self) -> CountLine:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.clear()

    def show(self, done: int, total: int | None = None) -> None:
        """Note how many are done, and show it when it is time."""
        self._done, self._total = done, total
        self._line.update()

    def _text(self) -> str:
        of = f" of {output.count(self._total)}" if self._total is not None else ""
        return f"{output.counted(self._done, 'message')}{of}"
