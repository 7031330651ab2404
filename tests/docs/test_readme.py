"""Every Python block of the README runs, and prints what the README says it prints."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\s*```text\n(.*?)```)?", re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    return [(code, output) for code, output in BLOCK.findall(README.read_text()) if "spark" not in code]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The blocks build on each other: they share a folder, as a reader who types them in would."""
    return tmp_path_factory.mktemp("readme")


@pytest.mark.parametrize("number", range(len(blocks())))
def test_readme_block_prints_what_it_says(number: int, folder: Path):
    code, output = blocks()[number]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (without_bars(done.stdout), done.stderr) == (output, "")


def without_bars(said: str) -> str:
    """DuckDB draws a bar when a busy machine takes seconds over a query."""
    return said if "▕" not in said else said.rpartition("elapsed)")[2].lstrip()
