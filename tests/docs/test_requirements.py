"""docs/requirements.md names each requirement once, and only tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    line.split(" | ")
    for line in (ROOT / "docs" / "requirements.md").read_text().splitlines()
    if re.match(r"\| [A-Z]\d", line)
]
#: How many statements each of the five systems makes.
COUNTS = {0: 35, 1: 64, 2: 39, 3: 24, 4: 22}


def test_each_requirement_stands_there_once():
    ids = [row[0].strip("| ") for row in ROWS]
    assert len(ids) > 50
    assert len(ids) == len(set(ids))


def test_no_requirement_of_the_five_systems_is_left_out():
    listed = {row[0].strip("| ") for row in ROWS}
    wanted = {f"S{system:03d}-{n:02d}" for system, count in COUNTS.items() for n in range(1, count + 1)}
    assert wanted - listed == set()


def test_every_proof_is_a_test_that_exists():
    missing = []
    for row in ROWS:
        for path, name in re.findall(r"`([\w/.]+\.py)::(\w+)`", row[3]):
            file = ROOT / "tests" / path
            if not file.exists() or not re.search(rf"def {name}\(", file.read_text()):
                missing.append(f"{path}::{name}")
    assert missing == []


def test_what_is_done_has_a_proof():
    assert [row[0] for row in ROWS if row[2].startswith("done") and "`" not in row[3]] == []
