"""Every Python block of the README runs, and prints what the README says it prints."""

import re
import subprocess
import sys
from pathlib import Path

from tests.kit.patience import PATIENCE_S

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\s*```text\n(.*?)```)?", re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    return [(code, output) for code, output in BLOCK.findall(README.read_text()) if "spark" not in code]


def test_readme_blocks_print_what_it_says(tmp_path: Path):
    """They build on each other, in one folder, as a reader who types them in would have it."""
    for code, output in blocks():
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (without_bars(done.stdout), done.stderr) == (output, ""), code


def without_bars(said: str) -> str:
    """DuckDB draws a bar when a busy machine takes seconds over a query."""
    return said if "▕" not in said else said.rpartition("elapsed)")[2].lstrip()
