"""docs/spark-cases.md names tests that exist, and its numbers add up."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/spark-cases.md").read_text()
#: A module, and what its tests show: `` `query`: begins at a time · nothing new … ``
NAMED = re.compile(r"`([\w/.]+)`: ((?:(?!`[\w/.]+`: )[^|;()])+)")


def module(name: str) -> Path:
    return ROOT / name if name.endswith(".py") else ROOT / f"tests/spark/test_{name}.py"


def claims() -> list[tuple[str, str]]:
    """(module, what one of its tests shows), for each that a line of a table names."""
    found = []
    for line in PAGE.splitlines():
        if line.startswith("| ") and line.count("|") == 3:
            for name, shown in NAMED.findall(line.split("|")[2]):
                parts = re.split(r" · |\. |, so |, where ", shown)
                found += [(name, part.strip()) for part in parts if part.strip() and "**" not in part]
    return found


def slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", words.lower().replace("'", "")).strip("_")


def test_there_is_much_to_check():
    assert len(claims()) > 100


@pytest.mark.parametrize(("name", "shown"), sorted(set(claims())))
def test_every_test_that_the_page_names_exists(name, shown):
    tests = re.findall(r"^def test_(\w+)", module(name).read_text(), re.MULTILINE)
    pieces = [slug(piece) for piece in shown.split("…") if slug(piece)]
    assert any(all(piece in test for piece in pieces) for test in tests)


def test_the_numbers_add_up():
    rows = re.findall(r"^\| .*`.* \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    counts = [[int(number) for number in row] for row in rows]
    assert len(counts) == 15
    assert all(row[0] == sum(row[1:]) for row in counts)
    (total,) = re.findall(r"^\| \*\*all\*\* (.*)\|$", PAGE, re.MULTILINE)
    assert [int(number) for number in re.findall(r"\d+", total)] == [
        sum(each) for each in zip(*counts, strict=True)
    ]
