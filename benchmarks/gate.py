"""`python -m benchmarks.gate REF`: this checkout against a commit, by turns; ends with 1 past the bound.

REF is checked out into a temporary folder and measured with the same Python and the same packages. Rows that
compute are compared in processor time, which a busy machine disturbs least; those that wait for the disk by
the wall clock.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gate_rows import BATCH, ROWS

ROOT = Path(__file__).parents[1]
_CHOSEN = ("write", "partitions", "many", "one", "read", "handle", "durable")
_WAITING = {"durable"}
_PATIENCE_S = 600


class Refused(Exception):
    """The comparison cannot be made; the message says why."""


@dataclass(frozen=True)
class Verdict:
    """What became of one row."""

    row: str
    clock: str
    ours: float = 0.0
    before: float = 0.0
    #: Why there is nothing to compare: the commit could not do this yet.
    missing: str = ""
    #: Why this checkout cannot do it, or no longer.
    broken: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.before

    def fails(self, bound: float) -> bool:
        return bool(self.broken) or (not self.missing and self.ratio < 1 - bound)

    def line(self, bound: float) -> str:
        if self.broken or self.missing:
            reason = f"BROKEN: {self.broken}" if self.broken else f"not compared: {self.missing}"
            return f"{self.row:<12}{reason}"
        mark = "SLOWER" if self.fails(bound) else "ok"
        return (
            f"{self.row:<12}{self.before:>12,.0f} /s{self.ours:>12,.0f} /s{self.ratio:>8.2f}  "
            f"{mark:<8}by {self.clock} time"
        )


def main(words: Sequence[str] | None = None) -> int:
    arguments = parse(words)
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=arguments.dir) as room:
            folder = Path(room).resolve()
            with checked_out(arguments.ref, folder / "before") as tree:
                rounds = take_turns(tree, folder, arguments)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 2
    verdicts = [judged(row, rounds) for row in arguments.rows]
    print(f"{'row':<12}{arguments.ref:>15}{'now':>15}{'ratio':>8}")
    print("\n".join(verdict.line(arguments.bound) for verdict in verdicts))
    failing = [verdict.row for verdict in verdicts if verdict.fails(arguments.bound)]
    if failing:
        print(f"More than {arguments.bound:.0%} slower than {arguments.ref}, or broken: {', '.join(failing)}")
    return 1 if failing else 0


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__)
    parser.add_argument("ref", help="the commit to compare with")
    parser.add_argument(
        "--rows", nargs="+", choices=ROWS, default=_CHOSEN, metavar="ROW", help=", ".join(ROWS)
    )
    parser.add_argument("--turns", type=int, default=5, help="how often each is measured")
    parser.add_argument("--messages", type=int, default=100_000, help=f"a multiple of {BATCH}")
    parser.add_argument("--bound", type=float, default=0.1, help="how much slower is too slow (0.1: 10 %%)")
    parser.add_argument("--dir", type=Path, default=Path(), help="where data is put meanwhile")
    arguments = parser.parse_args(words)
    if arguments.messages < BATCH or arguments.messages % BATCH or arguments.turns < 1:
        parser.error(f"--messages is a multiple of {BATCH}, --turns at least 1")
    return arguments


@contextmanager
def checked_out(ref: str, folder: Path) -> Iterator[Path]:
    """The files of a commit, in a worktree that is gone afterwards."""
    _git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", refused=f"There is no commit {ref!r} here.")
    _git("worktree", "add", "--quiet", "--detach", str(folder), ref, refused=f"{ref!r} cannot be checked out")
    try:
        yield folder
    finally:
        _git("worktree", "remove", "--force", str(folder), refused=f"{folder} cannot be removed")


def _git(*words: str, refused: str) -> None:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"{refused} {done.stderr.strip()}".strip())


def take_turns(tree: Path, folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The figures of each turn, by "before" and "ours"; who begins changes from turn to turn."""
    sides, rounds = [("before", tree), ("ours", ROOT)], []
    for turn in range(arguments.turns):
        rounds.append({side: measure(place, folder, arguments) for side, place in sides})
        sides.reverse()
        print(f"turn {turn + 1} of {arguments.turns}", file=sys.stderr, flush=True)
    return rounds


def measure(tree: Path, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The rows of one checkout, in a process of its own."""
    # -P: this folder is not searched for modules, else files here would hide some of the library's.
    program = [sys.executable, "-P", str(Path(__file__).with_name("gate_rows.py"))]
    done = subprocess.run(
        [*program, str(folder), str(arguments.messages), *arguments.rows],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        raise Refused(f"Measuring {tree} failed:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    if not Path(found["penstock"]).resolve().is_relative_to(tree.resolve()):
        raise Refused(f"Python found penstock in {found['penstock']}, not in {tree}.")
    rows: dict[str, Any] = found["rows"]
    return rows


def judged(row: str, rounds: list[dict[str, Any]]) -> Verdict:
    """Medians of a row over all turns."""
    clock = "wall" if row in _WAITING else "processor"
    sides = {side: [each[side][row] for each in rounds] for side in ("ours", "before")}
    ours_missing, before_missing = (sides[side][0].get("missing", "") for side in ("ours", "before"))
    if ours_missing or before_missing:
        return Verdict(row, clock, broken=ours_missing, missing=before_missing)
    ours, before = (median(each[clock] for each in sides[side]) for side in ("ours", "before"))
    return Verdict(row, clock, ours, before)


if __name__ == "__main__":
    sys.exit(main())
