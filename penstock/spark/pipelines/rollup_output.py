"""Where rolled-up rows go besides a topic: a Delta table, written anew or continued, and a picture."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from penstock.arrow import require_deltalake
from penstock.errors import InvalidOption, MissingExtra, NotATable, PipelineFailed
from penstock.parse import one_of

if TYPE_CHECKING:
    import pyarrow


_INCHES = (11, 5.5)
_DOTS = 130
_GROUP_LETTERS = 40
#: Colours that stay apart for most eyes; beyond them lines are dashed, then dotted.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
_DASHES = ("-", "--", ":", "-.")


def check_plot(path: str) -> None:
    """Raise for a picture that cannot be made, before anything runs."""
    if not path.lower().endswith(".png"):
        raise InvalidOption(f"plot {path!r} is not a PNG file", hint="name it like orders.png")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise InvalidOption(f"there is no folder {folder} for the plot", hint="make it first")
    _matplotlib()


def draw(rows: pyarrow.Table, path: str, *, title: str, top: int) -> None:
    """Draw the groups with the most messages, largest first; others are counted in a note."""
    figures, dates = _matplotlib()
    lines, others = largest(rows.to_pylist(), top)
    figure = figures.Figure(figsize=_INCHES, dpi=_DOTS, layout="constrained")
    axes = figure.subplots()
    for place, (group, points) in enumerate(lines.items()):
        colour, dash = _COLOURS[place % len(_COLOURS)], _DASHES[place // len(_COLOURS) % len(_DASHES)]
        times, rates = zip(*points, strict=True)
        marker = "o" if len(points) <= _FEW else None
        axes.plot(times, rates, dash, color=colour, label=_label(group), linewidth=1.6, marker=marker, ms=4)
    axes.set_title(_plain(title), loc="left", fontweight="bold")
    axes.set_xlabel("window start (UTC)")
    axes.set_ylabel("messages per second")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    if lines:
        note = f"and {others:,} smaller groups" if others else None
        axes.legend(title=note, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    else:
        axes.text(0.5, 0.5, "no messages", ha="center", transform=axes.transAxes)
    figure.savefig(path)


#: A line of so few points shows them.
_FEW = 40


def largest(rows: list[dict[str, Any]], top: int) -> tuple[dict[str | None, list[tuple[Any, float]]], int]:
    """Points (time, messages a second) of the `top` groups by messages, and how many groups are left out.

    Every line has a point for each window that any message fell into: where a group has none, it is 0.
    """
    totals: dict[str | None, int] = {}
    points: dict[str | None, dict[Any, float]] = {}
    for row in rows:
        group = row["group"]
        totals[group] = totals.get(group, 0) + row["count"]
        points.setdefault(group, {})[row["window_start"]] = row["count_per_second"]
    times = sorted({row["window_start"] for row in rows})
    chosen = sorted(totals, key=lambda group: (-totals[group], group or ""))[:top]
    found = {group: [(time, points[group].get(time, 0.0)) for time in times] for group in chosen}
    return found, len(totals) - len(chosen)


def _label(group: str | None) -> str:
    if group is None:
        return "all"
    shown = group if len(group) <= _GROUP_LETTERS else f"{group[: _GROUP_LETTERS - 1]}…"
    return _plain("\u200b" + shown)  # one that begins with an underscore would be left out of the legend


def _plain(text: str) -> str:
    """Text in which nothing begins a formula."""
    return text.replace("$", r"\$")


def _matplotlib() -> tuple[Any, Any]:
    """Its figures and dates; a figure made by itself is drawn by Agg, and needs no window."""
    try:
        from matplotlib import dates, figure
    except ImportError:
        raise MissingExtra("matplotlib", "spark") from None
    return figure, dates


Mode = Literal["overwrite", "append"]
MODES = ("overwrite", "append")


def check(table: str, mode: str) -> None:
    """Raise for a table that cannot be written, before anything runs; nothing is made yet."""
    one_of("mode", mode, MODES)
    require_deltalake()
    if "://" in table or not os.path.exists(table) or os.path.isdir(os.path.join(table, "_delta_log")):
        return
    if not os.path.isdir(table) or os.listdir(table):
        raise NotATable(f"{table} is there and is no Delta table", hint="choose a new or empty folder")


def write(table: str, rows: pyarrow.Table, mode: Mode, *, now_ns: int) -> int:
    """Write the rows; "append" leaves out windows that the table has, or that are not over yet.

    Returns how many rows were written.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    delta = require_deltalake()
    found = rows.set_column(0, "window_start", _utc(rows["window_start"]))
    found = found.set_column(1, "window_end", _utc(found["window_end"]))
    try:
        if mode == "append":
            now = pa.scalar(now_ns // 1000, pa.int64()).cast(found["window_end"].type)
            found = found.filter(pc.less_equal(found["window_end"], now))
            last = _last_end(delta, table)
            if last is not None:
                found = found.filter(pc.greater_equal(found["window_start"], last))
        if mode == "overwrite" or found.num_rows:
            options = {"schema_mode": "overwrite"} if mode == "overwrite" else {}
            delta.write_deltalake(table, found, mode=mode, **options)
    except (delta.exceptions.DeltaError, OSError) as error:
        raise PipelineFailed(
            f"the table {table} was not written: {str(error).partition(chr(10))[0]}",
            hint="mend it and run it again",
        ) from error
    return int(found.num_rows)


def _utc(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(pa.timestamp("us", tz="UTC"))


def _last_end(delta: Any, table: str) -> Any:
    """The end of the last window in the table; None when it has none."""
    import pyarrow.compute as pc

    if not delta.DeltaTable.is_deltatable(table):
        return None
    ends = delta.DeltaTable(table).to_pyarrow_table(columns=["window_end"])["window_end"]
    return pc.max(_utc(ends)) if len(ends) else None
