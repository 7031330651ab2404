"""Every Python block of docs/producers.md runs, one after another, as someone who types them in would."""

import re
import subprocess
import sys
from pathlib import Path

from tests.kit.patience import PATIENCE_S

PAGE = Path(__file__).parents[2] / "docs" / "producers.md"


def test_the_blocks_run_and_print_what_they_say(tmp_path: Path):
    printed = []
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        printed += done.stdout.splitlines()
    assert printed == ["2 written, 3 skipped", "None"]
