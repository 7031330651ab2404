"""The rows as a Markdown table, aligned so that it also reads well in a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from benchmarks.rows import Row, Target

_HEADINGS = (
    "name",
    "what",
    "median",
    "best",
    "compared with",
    "its median",
    "its best",
    "ratio",
    "processor",
    "target",
    "",
)
_MARKS = {"ok": "ok", "short": "SHORT", "info": "", "skipped": "skipped", "failed": "FAILED"}


#: Columns that a page has no room for.
DETAILS = frozenset({"best", "its best"})


def render(rows: Sequence[Row], *, without: Collection[str] = ()) -> str:
    shown = [column for column, heading in enumerate(_HEADINGS) if heading not in without]
    lines = [tuple(line[column] for column in shown) for line in (_HEADINGS, *map(_cells, rows))]
    widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(shown))]
    ruled = [lines[0], tuple("-" * width for width in widths), *lines[1:]]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in ruled
    )


def line(row: Row) -> str:
    """What a run says when it has measured a row."""
    name, what, median, _, _, _, _, ratio, processor, _, mark = _cells(row)
    return f"{name:<30}{median:>10}{ratio:>8}{processor:>8}  {mark:<8}{what}"


def summary(rows: Sequence[Row]) -> str:
    """How many rows ended how, and why some have no figures."""
    counted = [row.status for row in rows]
    kinds = ", ".join(f"{counted.count(kind)} {kind}" for kind in _MARKS if kind in counted)
    reasons = [f"{row.name} {row.status}: {row.failed or row.skipped}" for row in rows if not row.ours]
    return "\n".join([f"{len(rows)} rows: {kinds}", *reasons])


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        row.what,
        number(row.value, row.unit),
        number(row.best, row.unit),
        row.peer,
        number(row.peer_value, row.unit),
        number(row.peer_best, row.unit),
        _ratio(row.ratio),
        _ratio(row.processor_ratio),
        _target(row.target, row.unit),
        _MARKS[row.status],
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _target(target: Target | None, unit: str) -> str:
    if target is None:
        return ""
    bound = f"{target.bound:g}×" if target.on == "ratio" else number(target.bound, unit)
    return f"{target.sign} {bound}"


def number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit != "/s":
        return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"
    for scale, letter in ((1e6, " M"), (1e3, " k")):
        if value >= scale:
            return f"{value / scale:.3g}{letter}{unit}"
    return f"{value:.0f} {unit}"
