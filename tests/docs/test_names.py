"""What the documentation names is there: files, and functions in them (`log/append.py:Appender.append`)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`((?:tests/|penstock/)?[a-z_0-9]+(?:/[a-z_0-9]+)*\.py)(?::([A-Za-z_.]+))?`")
#: History is told as it was.
NOT_READ = {"CHANGELOG.md"}
#: Files of users, in examples.
THEIRS = {"transformations/copy.py"}

# Named on the way to where they will be; this may only shrink.
NOT_YET = set()


def pages() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
    return [page for page in found if page.name not in NOT_READ]


def names_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield (file, name in it or "") of code spans that name a file of ours."""
    yield from ((found[1], found[2] or "") for found in NAMED.finditer(text) if found[1] not in THEIRS)


def file_of(name: str) -> Path | None:
    """The file that a page means: of the package, of the tests, or of the repository."""
    places = [ROOT / "penstock" / name, ROOT / name, ROOT / "tests" / name]
    return next((path for path in places if path.is_file()), None)


def defines(path: Path, name: str) -> bool:
    """Whether a file defines a name, or a class in it that method."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for part in name.split("."):
        node = next((each for each in body if part in _names(each)), None)
        if node is None:
            return False
        body = getattr(node, "body", [])
    return True


def _names(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {each.id for each in targets if isinstance(each, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def test_every_file_and_function_that_is_named_is_there():
    wrong = set()
    for page in pages():
        for name, inside in names_of(page.read_text(encoding="utf-8")):
            path = file_of(name)
            if path is None or (inside and not defines(path, inside)):
                wrong.add(f"{name}:{inside}" if inside else name)
    assert wrong <= NOT_YET, f"named in the documentation and not there: {sorted(wrong - NOT_YET)}"
    assert wrong == NOT_YET, f"there by now, take out of NOT_YET: {sorted(NOT_YET - wrong)}"


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("`log/append.py`", True),
        ("`log/append.py:Appender.append`", True),
        ("`tests/require.py:require`", True),
        ("`log/tip.py`", False),
        ("`log/append.py:Appender.prepend`", False),
        ("`log/append.py:Tip`", False),
    ],
)
def test_canary_names_that_are_not_there_are_seen(text, there):
    ((name, inside),) = names_of(text)
    path = file_of(name)
    assert (path is not None and (not inside or defines(path, inside))) is there
