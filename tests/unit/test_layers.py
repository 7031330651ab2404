"""The layer rule: a module imports only what lies below it.

A *part* is a folder or a single file directly under `penstock/`. Parts of one layer do not import each
other; modules of one part may. Imports inside functions count, and so do those for type checkers.
"""

import ast

import pytest

from tests.kit.source import ROOT, imported_names

# Bottom to top. The files of the lowest layer are small and may import each other.
LAYERS = (
    {
        "arrow", "byte_lock", "checksum", "clock", "codecs", "errors", "files", "findings", "growth_rules",
        "headers", "keys", "locks", "message", "options", "parse", "partition_tree", "place", "references",
        "uvarint", "wake", "websocket_frames",
    },
    {"log", "delay", "lake", "payloads"},
    {"state"},
    {"topic"},
    {"consume"},
    {"store"},
    {"events", "exchange", "sql", "streams", "sessions"},
    {"aio", "client", "tarantool"},
    {"spark", "serve"},
    {"cli"},
)  # fmt: skip
# Factories on a lower class: `Store.events`, `.stream`, `.sessions` and `.sql` load what they make when
# called, and so do the ways in and out.
LATE = {("penstock.store.store", part) for part in ("events", "exchange", "sql", "streams", "sessions")} | {
    ("penstock.store.topic", "exchange")
}
HEIGHT = {part: height for height, layer in enumerate(LAYERS) for part in layer}
TOP = len(LAYERS) - 1

# The package itself (`import penstock`): its public names reach into every layer.
PUBLIC = "(public names)"
# These may import anything, and only cli may import the public names.
FREE = {"__init__", "__main__", "testing"}


def imported_part(name: str) -> str | None:
    """The part of penstock that a dotted name lies in; None when it is not ours."""
    match name.split("."):
        case ["pyspark_penstock", *_]:
            return "pyspark_penstock"
        case ["penstock", part, *_] if part in HEIGHT or part in FREE:
            return part
        case ["penstock", *_]:
            return PUBLIC
    return None


def may_import(part: str, target: str) -> bool:
    if part == target or part in FREE:
        return True
    if part == "pyspark_penstock":
        return target == "spark"
    if target == PUBLIC:
        return HEIGHT[part] == TOP
    if target not in HEIGHT:
        return False
    return HEIGHT[target] < HEIGHT[part] or HEIGHT[target] == HEIGHT[part] == 0


def violations(source: str, *, module: str, is_package: bool = False) -> list[str]:
    """Every import in `source` that breaks the rule, as `module:line imports name`."""
    top, *rest = module.split(".")
    part = top if top != "penstock" else rest[0] if rest else "__init__"
    if part not in HEIGHT and part not in FREE and part != "pyspark_penstock":
        return [f"{module} is in no layer: give {part!r} a place in LAYERS"]
    return [
        f"{module}:{line} imports {name}"
        for line, name in imported_names(ast.parse(source), module=module, is_package=is_package)
        if (target := imported_part(name)) is not None
        and not may_import(part, target)
        and (module, target) not in LATE
    ]


def test_every_import_points_down():
    found = []
    for path in sorted(
        path for package in ("penstock", "pyspark_penstock") for path in (ROOT / package).rglob("*.py")
    ):
        is_package = path.name == "__init__.py"
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found += violations(path.read_text(encoding="utf-8"), module=module, is_package=is_package)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("penstock.log.frame", "import penstock.topic"),
        ("penstock.log.frame", "from penstock.topic.topic import Topic"),
        ("penstock.log.frame", "from penstock import topic"),
        ("penstock.log.frame", "from .. import topic"),
        ("penstock.log.frame", "from ..topic import Topic"),
        ("penstock.log.frame", "def late():\n    from ..topic import Topic"),
        ("penstock.log.frame", "if TYPE_CHECKING:\n    from penstock.store import Store"),
        ("penstock.log.frame", "import importlib\nimportlib.import_module('penstock.cli')"),
        ("penstock.log.frame", "from penstock.delay import ladder"),
        ("penstock.lake.table", "from penstock.log import frame"),
        ("penstock.log.frame", "import penstock"),
        ("penstock.log.frame", "from penstock import Topic"),
        ("penstock.log.frame", "from penstock.testing import Clock"),
        ("penstock.errors", "from .log import frame"),
        ("penstock.spark.source.source", "from penstock.serve import auth"),
        ("penstock.spark.source.source", "import pyspark_penstock"),
        ("penstock.helpers", ""),
        ("pyspark_penstock", "from penstock.store import Store"),
    ],
)
def test_canary_a_forbidden_import_is_reported(module, source):
    assert len(violations(source, module=module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "penstock.log.segment",
            "from . import frame\nfrom .frame import encode\nfrom ..errors import Corrupt",
        ),
        ("penstock.log.segment", "import os, msgspec\nfrom penstock import errors\nimport penstock.files"),
        ("penstock.locks", "from .files import Files\nfrom penstock.errors import OwnedElsewhere"),
        ("penstock.spark.pipelines.archive", "from ...store import Store\nfrom ..source import Source"),
        ("penstock.cli.read", "import penstock\nfrom penstock.spark import session"),
        ("penstock.testing", "import penstock.store"),
        ("penstock", "from .store import Store"),
        ("pyspark_penstock", "from penstock.spark.source.source import Source"),
    ],
)
def test_an_import_that_points_down_is_allowed(module, source):
    assert violations(source, module=module, is_package=module in {"penstock", "pyspark_penstock"}) == []


def test_relative_imports_of_a_package_start_at_the_package_itself():
    source = "from .frame import encode\nfrom ..topic import Topic"
    assert violations(source, module="penstock.log", is_package=True) == [
        "penstock.log:2 imports penstock.topic.Topic"
    ]
