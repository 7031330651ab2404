"""The code stays in order: what no linter checks, and where it stands today.

Each rule has its line in `STILL`: how many places break it, or which. That may only shrink: a rule that is
broken more often fails, and so does a line that could be lowered. Run by `make check`.
"""

import ast
import builtins
import keyword
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tests.kit import source
from tests.kit.source import ROOT, Module
from tests.unit.test_layers import LATE

# What is left to do; lower a line when you made it better. Numbers count places, sets name them.
STILL: dict[str, int | set[str]] = {
    "private names of other modules": 0,
    "class names used twice": set(),
    "groups of modules that import each other": 0,
    "public things without a docstring": 0,
    "docstrings that begin with “The same”": 0,
    "files over 450 lines": set(),
    "small files with one importer": set(),
    "parts that do not say their order": set(),
    # What users' classes ask an open topic for: all that another engine below them would have to offer.
    "names of OpenTopic that cross the seam": {
        "active",
        "alter",
        "appender",
        "begin",
        "begin_all",
        "bodies",
        "check",
        "clock",
        "close",
        "consumers",
        "folder",
        "growth",
        "log",
        "logs",
        "name",
        "named_if_closed",
        "numbers",
        "on_appended",
        "opened_logs",
        "options",
        "publish_dropped",
        "read_only",
        "record",
        "refresh",
        "require_open",
        "topics",
        "tree",
        "write",
        "write_without_waiting",
        "writers",
    },
}

# Small files with one importer that stay: families have one file a member.
FAMILIES = ("penstock.cli.", "penstock.codecs.", "penstock.exchange.", "penstock.spark.pipelines.")
LINES_MOST = 450
LINES_LEAST = 60

# Other ways to hold the same thing have its name.
TWINS = {"aio", "client", "testing"}

# Words of module names that need no line in docs/glossary.md, since every programmer knows them.
PLAIN_WORDS = set(
    re.findall(
        r"\w+",
        """
        access aio app append archived arguments arrow asgi backup batch body buffer catch checksum chunk
        cli client clock column commit connection consume copy csv database definition delay delayed
        descriptor encode encoded engine error exchange executor export expression fact failure file filter
        finding folder follow format gzip header health http idempotency identity import input java json
        jsonl layout limit line load lock log long lzop main mapped migration mini name old only open option
        origin output ownership parquet parse part payload penstock plan poll process progress publish
        publisher push pyspark query queue read reader record recovery repair retention retry route routing
        row run s3 scan schema search serve server single sink source spark sse stat state static status
        storage stream sync table tarantool target task testing text timer tool transaction trial ttl up
        user value verify view websocket wheel window worker write writer zstd
        """,
    )
)

# What tests outside tests/kit and tests/unit/<part> may import; of a pipeline the function of the same name.
PUBLIC = {
    "penstock", "penstock.aio", "penstock.client.events", "penstock.errors", "penstock.spark",
    "penstock.store.replay", "penstock.testing",
}  # fmt: skip
PIPELINES = {
    "archive", "compact", "dedup", "enrich", "mirror", "quality", "redrive", "replay_table", "rollup",
    "sessions", "sweep", "upsert",
}  # fmt: skip

#: Whether a test may import more than `penstock` itself; a quick look before a thorough one.
INTERNAL = re.compile(r"penstock\.[a-z]|from penstock import [^\n]*\b[a-z]")

#: A name in a comment or docstring: set in backticks, perhaps dotted, perhaps called.
NAME = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\([^`\n]*\))?`")
#: Words in backticks that are no names of the package: files, settings, fields and options of others.
NOT_OURS = set(
    re.findall(
        r"\w+",
        """
        AWS_ACCESS_KEY_ID AWS_ENDPOINT_URL AWS_REGION JAVA_HOME db df false fixed headers_encoding
        includeHeaders kafka key_encoding keyColumn null optimize ping python3 session_end session_start
        synchronous transformWithState true value_ value_encoding varuint window_start writeStream z_order
        zlib_ng _raw aws_ killed Scope __cause__ orders_16
        """,
    )
)
#: A line of a package's docstring that says what one of its files is, or what a few are.
MEMBERS = re.compile(r"^    ([a-z_0-9]+(?:, [a-z_0-9]+)*)  +\S", re.MULTILINE)
#: Not imported by others: what is run, and what is for users' own tests.
RUN = {"penstock.__main__", "penstock.spark.rehearsal", "penstock.testing"}

KNOWN = source.modules()
EDGES = source.graph(KNOWN)


def check(rule: str, found: Collection[str]) -> None:
    """Fail when a rule is broken more often than `STILL` says, and when its line could be lowered."""
    __tracebackhide__ = True
    allowed = STILL[rule]
    listed = "\n  ".join(sorted(found))
    if isinstance(allowed, int):
        assert len(found) <= allowed, f"{rule}: {len(found)}, {allowed} are left to do:\n  {listed}"
        assert len(found) == allowed, f"{rule}: only {len(found)} are left: lower the line in STILL to that"
        return
    assert set(found) <= allowed, f"{rule}: {sorted(set(found) - allowed)}"
    assert set(found) == allowed, f"{rule}: done, take out of STILL: {sorted(allowed - set(found))}"


# Names.


def test_no_module_uses_a_private_name_of_another():
    check(
        "private names of other modules",
        [
            f"{module.name}:{line} {name}"
            for module in KNOWN.values()
            for line, name in source.private_reaches(module)
        ],
    )


def test_a_class_name_is_one_class():
    homes = defaultdict(set)
    for module in KNOWN.values():
        if module.part not in TWINS:
            for each in source.classes(module):
                homes[each.name].add(module.name)
    check("class names used twice", {name for name, modules in homes.items() if len(modules) > 1})


def test_words_of_module_names_are_plain_or_in_the_glossary():
    known = PLAIN_WORDS | glossary_words()
    unknown = {
        f"{module.name}: {word}"
        for module in KNOWN.values()
        for word in re.findall(r"[a-z0-9]+", module.stem)
        if not known & spellings(word)
    }
    assert not unknown, f"give these words a line in docs/glossary.md, or choose others: {sorted(unknown)}"


def glossary_words() -> set[str]:
    """Every word of the glossary's first column."""
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").lower().splitlines()
    heads = [line.split("|")[1] for line in lines if line.startswith("|")]
    return {word for head in heads for word in re.findall(r"\w+", head)}


def spellings(word: str) -> set[str]:
    """A word as it stands, and in the singular."""
    return {word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)}


# Order.


def test_no_modules_import_each_other():
    """Imports in functions and for type checkers count."""
    edges = dict(EDGES)
    for module, part in LATE:
        edges[module] = {each for each in edges[module] if KNOWN[each].part != part}
    check("groups of modules that import each other", [" ↔ ".join(group) for group in source.cycles(edges)])


def test_the_late_imports_are_those_that_are_listed():
    used = {(module, KNOWN[each].part) for module, _ in LATE for each in EDGES[module]}
    assert used >= LATE, "take out of LATE what is not imported any more"


def test_the_seam_below_the_public_classes_is_known():
    """A network client and a Kafka cluster will be other things of these few names."""
    above = [m for m in KNOWN.values() if m.part in {"events", "store", "streams"}]
    used = {
        name
        for module in [*above, KNOWN["penstock.topic.writer"]]
        for name in source.used_of(module, "OpenTopic", "open_topic")
    }
    check("names of OpenTopic that cross the seam", used)


def test_canary_what_is_asked_of_an_open_topic_is_seen():
    text = (
        "class A:\n"
        "    def __init__(self, topic: OpenTopic | None, every: dict[str, OpenTopic]):\n"
        "        self._held = topic\n"
        "        every.get('x'), topic.name\n"
        "    def f(self, other):\n"
        "        return self._held.append(1), other.open_topic.log(0), other.stats()\n"
    )
    assert set(source.used_of(module_of(text), "OpenTopic", "open_topic")) == {"name", "append", "log"}


@pytest.mark.parametrize("part", ["consume", "delay", "log", "store", "topic"])
def test_modules_of_a_part_import_only_what_stands_before_them(part):
    """The docstring of the part's `__init__` says it: `Order: a b < c < d e`, bottom first."""
    heights = stated_order(KNOWN[f"penstock.{part}"])
    members = {m.name: m for m in KNOWN.values() if m.part == part and not m.is_package}
    if not heights:
        assert part in STILL["parts that do not say their order"], "say the order in its __init__"
        return
    assert part not in STILL["parts that do not say their order"], "done: take it out of STILL"
    assert {m.stem for m in members.values()} == set(heights), "every module has its place in the order"
    wrong = [
        f"{module.name}:{each.line} imports {each.module}"
        for module in members.values()
        for each in source.imports_of(module, KNOWN)
        if each.module in members and heights[members[each.module].stem] >= heights[module.stem]
    ]
    assert not wrong, "\n".join(wrong)


def stated_order(package: Module) -> dict[str, int]:
    """The height of each module by its part's docstring; nothing when it does not say."""
    found = re.search(
        r"^Order: (.*?)(?:\n\n|\Z)", ast.get_docstring(package.tree) or "", re.MULTILINE | re.DOTALL
    )
    levels = found[1].rstrip(".").split("<") if found else []
    return {name: height for height, level in enumerate(levels) for name in level.split()}


# Size.


def test_no_file_is_too_long():
    check("files over 450 lines", {m.name for m in KNOWN.values() if m.lines > LINES_MOST})


def test_every_file_is_imported_or_run():
    imported = {target for targets in EDGES.values() for target in targets}
    assert {m.name for m in KNOWN.values() if not m.is_package} - imported == RUN


def test_a_small_file_has_more_than_one_importer_or_belongs_to_a_family():
    importers = Counter(target for targets in EDGES.values() for target in targets)
    alone = [
        module.name
        for module in KNOWN.values()
        if not module.is_package
        and module.lines < LINES_LEAST
        and importers[module.name] == 1
        and not module.name.startswith(FAMILIES)
    ]
    check("small files with one importer", set(alone))


# Words.


def test_public_things_have_a_docstring():
    check("public things without a docstring", [n for m in KNOWN.values() for n in source.undocumented(m)])


def test_every_module_and_class_has_a_docstring():
    methods = {name for m in KNOWN.values() for name in source.undocumented(m)}
    classes = {f"{m.name}.{each.name}" for m in KNOWN.values() for each in source.classes(m)}
    assert not methods & (classes | set(KNOWN))


def test_a_docstring_says_what_the_thing_is():
    """Nothing that makes a stranger look for the docstring before it."""
    check(
        "docstrings that begin with “The same”",
        [name for m in KNOWN.values() for name, text in source.docstrings(m) if text.startswith("The same")],
    )


def slow_types(module: Module) -> Iterator[str]:
    """Types that are made anew with each call: `list[int]()` takes 15 times as long as `[]`."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        called, given = node.func, node.args[1:2]
        is_alias = isinstance(called, ast.Subscript) and isinstance(called.value, ast.Name)
        if is_alias and called.value.id in dir(builtins):
            yield f"{module.name}:{node.lineno} calls {ast.unparse(called)}"
        if isinstance(called, ast.Name) and called.id == "isinstance" and isinstance(given[0], ast.BinOp):
            yield f"{module.name}:{node.lineno} asks isinstance for a union"


def test_no_type_is_made_anew_with_each_call():
    assert not [each for module in KNOWN.values() for each in slow_types(module)]


def test_canary_a_type_that_is_made_anew_is_seen():
    text = "a = list[int]()\nisinstance(a, bytes | None)\nread(list[int])\nisinstance(a, (bytes, int))\n"
    assert len(list(slow_types(module_of(text)))) == 2


def test_names_in_comments_and_docstrings_exist():
    """What is set in backticks and looks like a name of ours is one: a stranger looks for it."""
    there = {name for module in KNOWN.values() for name in source.names_in(module)} | set(dir(builtins))
    gone = {
        f"{module.name}:{line} `{name}`"
        for module in KNOWN.values()
        for line, text in source.words_of(module)
        for name in NAME.findall(text)
        if not set(name.split(".")) <= there | NOT_OURS and not keyword.iskeyword(name)
    }
    assert not gone, "\n".join(sorted(gone))


def test_canary_a_name_that_is_gone_is_seen():
    module = module_of('"""See `Log.wholly_gone` and `log`."""\n# `also_gone()`\n')
    found = [name for _, text in source.words_of(module) for name in NAME.findall(text)]
    assert sorted(found) == ["Log.wholly_gone", "also_gone", "log"]


def test_lists_of_modules_name_modules():
    """The docstring of a package may say what its files are: indented, names first."""
    for package in (module for module in KNOWN.values() if module.is_package):
        members = {m.stem for m in KNOWN.values() if m.name.rpartition(".")[0] == package.name}
        listed = MEMBERS.findall(ast.get_docstring(package.tree) or "")
        words = {word for line in listed for word in re.findall(r"\w+", line)}
        assert words <= members, f"{package.name}: {sorted(words - members)}"


def test_a_word_of_the_glossary_has_one_meaning():
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    words = Counter(
        word.strip() for line in lines if line.startswith("|") for word in line.split("|")[1].split(",")
    )
    assert [word for word, count in words.items() if count > 1] == []


def test_every_decision_is_in_the_index_once():
    folder = ROOT / "docs" / "decisions"
    linked = re.findall(r"\]\((\d{4}-[^)]*\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(path.name for path in folder.glob("[0-9]*.md"))


# Tests.


def test_tests_reach_internals_by_their_doors():
    """Only tests/kit and tests/unit/<part> import internal modules."""
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if not may_import_internals(path)
        for line, name in internal_imports(path.read_text(encoding="utf-8"))
    ]
    assert not found, "import these by a door of tests/kit:\n  " + "\n  ".join(found)


def test_every_folder_of_tests_is_told_of():
    told = re.findall(
        r"^(\w+)/ ", ast.get_docstring(ast.parse((ROOT / "tests/__init__.py").read_text())), re.MULTILINE
    )
    there = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    assert sorted(told) == sorted(there)


def may_import_internals(path: Path) -> bool:
    kind, *rest = path.relative_to(ROOT / "tests").parts
    return kind == "kit" or (kind == "unit" and len(rest) > 1)


def internal_imports(text: str) -> Iterator[tuple[int, str]]:
    """Imports, and patches by a dotted name, that are no public name of the package."""
    if not INTERNAL.search(text):
        return
    tree = ast.parse(text)
    for line, name in source.imported_names(tree, module="tests"):
        if name.split(".")[0] == "penstock" and not is_public(name):
            yield line, name
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="setattr" | "delattr"), args=[ast.Constant(value=str(name)), *_]
            ) if name.startswith("penstock."):
                yield node.lineno, name


def is_public(name: str) -> bool:
    """Whether users are told to import it."""
    module, _, last = name.rpartition(".")
    if name in PUBLIC:
        return True
    if (name in KNOWN and name != "penstock.spark.session") or last.startswith("_"):
        return False
    return module in PUBLIC or (last in PIPELINES and module == f"penstock.spark.pipelines.{last}")


@pytest.mark.parametrize(
    "text",
    [
        "from penstock.log.frame import encode",
        "from penstock.log import frame",
        "from penstock import codecs",
        "import penstock.log",
        "def late():\n    from penstock.state.database import Database",
        "monkeypatch.setattr('penstock.log.append.NOW', 1)",
        "from penstock.spark.pipelines.archive import wanted",
    ],
)
def test_canary_an_internal_import_is_seen(text):
    assert len(list(internal_imports(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import penstock",
        "from penstock import Retry, aio",
        "from penstock.errors import Corrupt",
        "from penstock.client.events import Events",
        "from penstock.spark import session",
        "from penstock.spark.pipelines.archive import archive",
        "from penstock.store.replay import plan_replay, replay",
    ],
)
def test_public_imports_are_free(text):
    assert list(internal_imports(text)) == []


def module_of(text: str, name: str = "penstock.topic.example") -> Module:
    return Module(name, ROOT / "example.py", text, ast.parse(text))


def test_canary_private_reaches_are_seen():
    text = (
        "from penstock.log.log import _now\n"
        "class A:\n"
        "    def f(self, other, log):\n"
        "        self._mine = other._mine\n"
        "        log._theirs()\n"
        "        return self._asdict(), log._replace(a=1), log.__dict__, self._of_its_base\n"
    )
    assert sorted(source.private_reaches(module_of(text))) == [
        (1, "_now"),
        (5, "_theirs"),
        (6, "_of_its_base"),
    ]


def test_canary_a_private_name_of_an_imported_module_is_seen_beside_one_of_our_own():
    text = "from penstock.log import log\ndef _now(): ...\ndef f(other): return log._now(), other._now()\n"
    assert list(source.private_reaches(module_of(text))) == [(3, "_now")]


def test_canary_cycles_are_seen():
    assert source.cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == [["a", "b", "c"]]
    text = "def f():\n  from penstock.log import log\nif TYPE_CHECKING:\n  from penstock.store.store import A"
    assert {each.module for each in source.imports_of(module_of(text), KNOWN)} == {
        "penstock.log.log",
        "penstock.store.store",
    }


def test_canary_missing_docstrings_are_seen():
    text = (
        '"""A."""\nclass B:\n    """The same."""\n    def c(self): ...\n    def _d(self): ...\ndef e(): ...\n'
    )
    assert list(source.undocumented(module_of(text, "m"))) == ["m.B.c", "m.e"]
    assert dict(source.docstrings(module_of(text, "m")))["m.B"] == "The same."
    text = '"""A."""\nclass B(io.RawIOBase):\n    """B."""\n    def readable(self): ...\n'
    assert list(source.undocumented(module_of(text, "m"))) == [], "it has that of its base"


def test_canary_the_order_of_a_part_is_read():
    package = module_of('"""A part.\n\nOrder: a b < c\n< d.\n\nMore."""\n')
    assert stated_order(package) == {"a": 0, "b": 0, "c": 1, "d": 2}


@pytest.mark.parametrize(("found", "fails"), [(["x"] * 2, True), (["x"] * 3, False), (["x"] * 4, True)])
def test_canary_a_line_may_only_be_lowered(monkeypatch, found, fails):
    monkeypatch.setitem(STILL, "rule", 3)
    monkeypatch.setitem(STILL, "names", {"x"})
    if fails:
        with pytest.raises(AssertionError):
            check("rule", found)
        with pytest.raises(AssertionError):
            check("names", {"x", "y"} if len(found) > 3 else set())
    else:
        check("rule", found)
        check("names", {"x"})
