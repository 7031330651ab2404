"""The Python of docs/lake.md runs, block after block, and prints what the page says."""

import re
from pathlib import Path

from tests.kit.pipelines import archive_module
from tests.kit.pipelines import executors_module as executors
from tests.lake.conftest import spread_here

PAGE = Path(__file__).parents[2] / "docs" / "lake.md"
BLOCK = re.compile(r"```python\n(.*?)```\n```text\n(.*?)```", re.DOTALL)


def test_blocks_print_what_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(executors, "spread", spread_here)
    monkeypatch.setattr(archive_module, "session", lambda master: object())
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for code, output in blocks:
        exec(code, names)
        assert capsys.readouterr().out == output
