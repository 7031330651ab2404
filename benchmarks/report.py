"""`python -m benchmarks.report [FILE]`: writes the figures of one run into README.md, and draws summary.svg.

Only what stands between the two marks of README.md is replaced: the method and what was measured earlier are
written by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.headlines import chosen, told
from benchmarks.plot import bars
from benchmarks.rows import Row, row_from
from benchmarks.table import DETAILS, render

HERE = Path(__file__).parent
LATEST = HERE / "results" / "latest.json"
BEGIN, END = "<!-- figures: written by `make bench-report` -->", "<!-- end of the figures -->"
_PLOT = "summary.svg"
#: Smaller runs show that it works, not how fast it is.
_MESSAGES, _REPEAT = 100_000, 3
_SMALL = "**A small run: it shows that everything runs, not how fast it is, nor which targets are met.**\n"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=LATEST, help="the JSON of one run")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md and summary.svg lie")
    arguments = parser.parse_args(words)
    try:
        found = json.loads(arguments.file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        print(
            f"There is no {arguments.file}: run `make bench` first, or name the JSON of a run.",
            file=sys.stderr,
        )
        return 2
    readme = arguments.folder / "README.md"
    page = readme.read_text(encoding="utf-8")
    if BEGIN not in page or END not in page:
        print(f"{readme} has no place for the figures: put in the lines {BEGIN} and {END}.", file=sys.stderr)
        return 2
    text, picture = figures(found)
    readme.write_text(replaced(page, text), encoding="utf-8")
    (arguments.folder / _PLOT).write_text(picture, encoding="utf-8")
    print(f"{readme} and {_PLOT}: {len(found['rows'])} rows of {found['date']}")
    return 0


def replaced(page: str, text: str) -> str:
    """The page with other figures."""
    before, rest = page.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


def figures(found: dict[str, Any]) -> tuple[str, str]:
    """What goes between the marks, and the picture."""
    rows = [row_from(each) for each in found["rows"]]
    small = found["sizes"]["messages"] < _MESSAGES or found["sizes"]["repeat"] < _REPEAT
    notice, verdict = (_SMALL, "") if small else ("", _verdict(rows))
    parts = [notice, _top(found, rows), "## Results\n", verdict, *_tables(rows), _without_figures(rows)]
    picture = bars(chosen(rows), "Penstock beside SQLite in the same run: to the right is faster")
    return "\n".join(part for part in parts if part), picture


def _top(found: dict[str, Any], rows: Sequence[Row]) -> str:
    sizes = found["sizes"]
    size = f"{sizes['messages']:,} messages of 220 bytes, medians of {sizes['repeat']}"
    lines = ["\n".join(told(rows)), "", f"![The same as bars]({_PLOT})", "", f"{_where(found)} {size}."]
    return "\n".join(lines) + "\n"


def _where(found: dict[str, Any]) -> str:
    machine = found["machine"]
    return (
        f"Measured on {found['date'][:10]} at commit {found['commit'] or 'unknown'}: {machine['cpu']}, "
        f"{machine['memory']}, {machine['kernel']}, {machine['file system']}, Python {machine['python']}, "
        f"SQLite {machine['sqlite']}."
    )


def _verdict(rows: Sequence[Row]) -> str:
    judged = [row for row in rows if row.status in ("ok", "short")]
    short = [f"`{row.name}`" for row in judged if row.status == "short"]
    met = f"{len(judged) - len(short)} of {len(judged)} targets are met."
    return f"{met} Short of theirs: {', '.join(short)}.\n" if short else f"{met}\n"


def _tables(rows: Sequence[Row]) -> Iterator[str]:
    """A table for each subject, in the order of the run."""
    measured = [row for row in rows if row.ours]
    for subject, group in groupby(measured, key=lambda row: row.name.split("/")[0]):
        yield f"### {subject}\n"
        yield render(list(group), without=DETAILS) + "\n"


def _without_figures(rows: Sequence[Row]) -> str:
    silent = [f"- `{row.name}` {row.status}: {row.failed or row.skipped}" for row in rows if not row.ours]
    return "\n".join(["### Not measured\n", *silent, ""]) if silent else ""


if __name__ == "__main__":
    sys.exit(main())
