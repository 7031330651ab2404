"""Every console block of docs/exchange.md prints what the page says, but for durations."""

import re
import shlex
from pathlib import Path

from tests.e2e.command import Command
from tests.exchange.diskq_files import fnv1, rows, write_folder

PAGE = Path(__file__).parents[2] / "docs" / "exchange.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
DURATION = re.compile(r"in [\d.]+ s")


def examples():
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        for example in block.split("$ ")[1:]:
            yield example.partition("\n")[::2]


def test_the_page_shows_what_the_commands_print(tmp_path):
    parts = [{0: []} for _ in range(3)]
    for row in rows(1000):
        parts[fnv1(row.key) % 3][0].append(row)
    write_folder(tmp_path / "events", parts, settings={"partition_count": 3}, groups={"billing": {0: 40}})
    (tmp_path / "orders.jsonl").write_text(
        '{"id": 7, "who": "anna", "at": "2026-01-31T12:00:00Z"}\n'
        '{"id": 8, "who": "ben", "at": "2026-01-31T12:00:01Z"}\n'
    )
    (tmp_path / "people.csv").write_text("id,name\n1,anna\n")
    cli = Command(tmp_path)
    found = list(examples())
    assert len(found) >= 7
    for command, printed in found:
        ended = cli.quick(*shlex.split(command)[1:])
        assert DURATION.sub("", ended.err + ended.out) == DURATION.sub("", printed), command
