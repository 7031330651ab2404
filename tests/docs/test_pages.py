"""Python blocks of these pages run, each in a folder of its own, and print what the page says they print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PAGES = (
    "codecs.md",
    "events.md",
    "keys.md",
    "payloads.md",
    "pipelines.md",
    "retries.md",
    "sql.md",
    "streams.md",
)
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\s*```text\n(.*?)```)?", re.DOTALL)


def blocks():
    for page in PAGES:
        for number, (code, output) in enumerate(BLOCK.findall((ROOT / "docs" / page).read_text()), 1):
            yield pytest.param(code, output, id=f"{page}-{number}")


@pytest.mark.parametrize(("code", "output"), list(blocks()))
def test_a_block_prints_what_the_page_says(code: str, output: str, tmp_path: Path):
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.stdout, done.stderr) == (output, "")
