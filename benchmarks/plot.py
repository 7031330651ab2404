"""The first rows as bars: to the right of the line faster than the peer, to the left slower. Plain SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import log10

from benchmarks.headlines import HEADLINES
from benchmarks.rows import Row

_WIDTH, _LEFT, _RIGHT = 900, 400, 60
_TOP, _STEP, _BAR = 64, 30, 18
_GRID = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
_FASTER, _SLOWER, _INK, _FAINT = "#1f6f8b", "#c8553d", "#222222", "#d5d5d5"


def bars(rows: Sequence[Row], title: str) -> str:
    """The picture of rows that are told first; those without a ratio are left out."""
    shown = [row for row in rows if row.ratio]
    ratios = [row.ratio for row in shown if row.ratio] or [1.0]
    scale = _Scale(min(*ratios, 0.5), max(*ratios, 2.0))
    height = _TOP + _STEP * len(shown) + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="14">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="26" font-size="17" font-weight="600" fill="{_INK}">{escape(title)}</text>',
        *_grid(scale, height),
        *(part for place, row in enumerate(shown) for part in _bar(scale, place, row)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


class _Scale:
    """Where a ratio lies from left to right, by its logarithm: twice as fast is as far as half as fast."""

    def __init__(self, least: float, most: float) -> None:
        self._least, self._most = log10(least / 1.3), log10(most * 1.3)

    def __call__(self, ratio: float) -> float:
        share = (log10(ratio) - self._least) / (self._most - self._least)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def holds(self, ratio: float) -> bool:
        return self._least <= log10(ratio) <= self._most


def _grid(scale: _Scale, height: int) -> Iterator[str]:
    for ratio in filter(scale.holds, _GRID):
        x, stroke = scale(ratio), _INK if ratio == 1 else _FAINT
        yield f'<line x1="{x:.1f}" y1="{_TOP - 10}" x2="{x:.1f}" y2="{height - 28}" stroke="{stroke}"/>'
        label = "as fast" if ratio == 1 else f"{ratio:g}×"
        yield f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle" fill="{_INK}">{label}</text>'


def _bar(scale: _Scale, place: int, row: Row) -> Iterator[str]:
    assert row.ratio is not None
    y, one, end = _TOP + place * _STEP, scale(1), scale(row.ratio)
    color = _FASTER if row.ratio >= 1 else _SLOWER
    begin, width = min(one, end), abs(end - one)
    shown = f"{row.ratio:.2g}" if row.ratio < 10 else f"{row.ratio:.0f}"
    what = HEADLINES[row.name][0].replace("`", "")
    yield f'<text x="16" y="{y + 14}" fill="{_INK}">{escape(what)}</text>'
    yield f'<rect x="{begin:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{color}"/>'
    yield f'<text x="{max(end, one) + 6:.1f}" y="{y + 14}" fill="{_INK}">{shown}×</text>'
