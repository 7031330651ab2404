"""What tests require is what `make test` installs: one table for both."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import parts
from tests.kit.patience import PATIENCE_S
from tests.parts import PARTS
from tests.unit.test_repository import project

ROOT = Path(__file__).parents[2]
#: Programs that every Debian has, without which nothing here would run.
ALWAYS = {"head", "sh"}
#: Of this Python, which is always there: some calls take what follows its name.
OPTIONS = {"-c", "-m", "-W"}
#: Calls whose first argument is a program or a list that begins with one.
STARTS = {"run", "Popen", "which", "check_call", "check_output", "create_subprocess_exec"}


def calls_in(source: str) -> Iterator[tuple[str, list[ast.expr]]]:
    """Every call in `source`: the last part of its name, and its arguments."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments):
                yield name, arguments


def programs_of(source: str) -> set[str]:
    """Programs that a test starts or looks for by a literal name."""
    found = set()
    for name, arguments in calls_in(source):
        match name, arguments:
            case _, [ast.List(elts=[ast.Constant(value=str(program)), *_]), *_] if name in STARTS:
                found |= {program} - OPTIONS
            case "which" | "create_subprocess_exec", [ast.Constant(value=str(program)), *_]:
                found.add(program)
    return found


def required_by(source: str) -> set[str]:
    """Parts that a test requires by name."""
    found = set()
    for name, arguments in calls_in(source):
        named = {"require": arguments, "absent": arguments[:1], "module": arguments[-1:]}.get(name, [])
        found |= {each.value for each in named if isinstance(each, ast.Constant)}
    return found


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.name not in {"parts.py", "test_parts.py", "test_require.py"}:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_every_program_that_tests_start_has_a_line():
    known = ALWAYS | {program for part in PARTS.values() for program in part.programs}
    unknown = [f"{path}: {name}" for path, source in sources() for name in programs_of(source) - known]
    assert not unknown, f"give these a line in tests/parts.py: {unknown}"


def test_every_part_that_tests_require_has_a_line_and_every_line_is_required():
    required = {name for path, source in sources() for name in required_by(source)}
    assert required == set(PARTS)


def test_no_test_skips_by_itself_for_what_is_not_installed():
    """`pytest.importorskip` would skip in CI, too."""
    assert [
        path for path, source in sources() for name, _ in calls_in(source) if name == "importorskip"
    ] == []


def test_canary_programs_are_seen():
    source = 'subprocess.run(["lzop", "-d"])\nwhich("strace")\nrun([sys.executable, "-c"])\nPopen(["a/b"])'
    assert programs_of(source) == {"lzop", "strace", "a/b"}


@pytest.mark.parametrize("part", PARTS.values(), ids=lambda part: part.name)
def test_every_part_is_installed_by_debian_or_by_an_extra_that_make_setup_installs(part):
    installed = re.search(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    extras = set(filter(None, part.extra.split(",")))
    assert extras <= set(installed[1].split(",")) & set(project()["optional-dependencies"])
    assert part.package or part.extra
    assert part.programs or part.modules
    assert bool(part.modules) <= bool(part.extra)


def test_what_is_there_is_not_missing(tmp_path, monkeypatch):
    (tmp_path / "lzop").write_text("#!/bin/sh\n")
    (tmp_path / "lzop").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert PARTS["lzop"].missing() == []
    assert PARTS["git"].missing() == ["the program git"]
    assert "lzop" not in parts.missing_packages()
    assert "git" in parts.missing_packages()


def test_a_part_of_program_and_module_says_all_that_is_missing_and_how_to_install_it(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(parts, "find_spec", lambda name: None)
    assert PARTS["tarantool"].missing() == ["the program tarantool", "the Python module asynctnt"]
    assert (
        PARTS["tarantool"].how_to_install() == "apt-get install tarantool and pip install -e '.[tarantool]'"
    )


@pytest.fixture
def apt_get(tmp_path, monkeypatch):
    """An apt-get that writes down what it is asked, has no tarantool, and is all there is on PATH."""
    log = tmp_path / "log"
    log.touch()
    program = tmp_path / "apt-get"
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\ncase "$*" in *tarantool) exit 100;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return log


def test_as_root_each_missing_package_is_asked_for_by_itself(apt_get, monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    parts.main()
    update, *installs = apt_get.read_text().splitlines()
    assert update == "-qq update"
    packages = {part.package for part in PARTS.values() if part.package}
    assert {"chromium", "git", "lzop", "make", "tarantool"} <= packages
    assert {line.split()[-1] for line in installs} == packages
    assert "could not install tarantool" in capsys.readouterr().out


def test_others_are_told_what_to_install(apt_get, monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    parts.main()
    assert apt_get.read_text() == ""
    assert re.search(r"as root: apt-get install .*lzop", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("required", "outcome"), [("", "1 skipped"), ("git", "1 skipped"), ("all", "1 failed")]
)
def test_a_test_without_its_part_skips_here_and_fails_in_ci(required, outcome):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0",
         "tests/unit/codecs/test_lzop.py::test_the_program_reads_what_we_write[600]"],
        cwd=ROOT, env={"PATH": "", "PENSTOCK_REQUIRE": required}, capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert outcome in done.stdout.splitlines()[-1]
    assert "the program lzop not found: apt-get install lzop" in done.stdout
