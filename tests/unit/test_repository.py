"""The repository keeps its promises: commands, extras, licence, and nothing of one machine in its text."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.require import absent, require

ROOT = Path(__file__).parents[2]
USER_EXTRAS = {"arrow", "codecs", "spark", "server", "sql", "kafka", "s3", "tarantool", "cli"}
TARGETS = ["help", "setup", "demo", "parts", "test", "test-all", "check", "bench", "docs", "clean"]

# Written so that these lines do not match themselves.
MACHINE_PATH = re.compile(r"(?<![\w.\-/])/(?:work|root|home)(?:/|(?![\w.\-]))")
REGISTRY = re.compile(
    r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|jsdelivr\.net|repo\d?\.maven|crates\.io"
    r"|docker\.io|ghcr\.io|quay\.io|index[-_]url",
    re.IGNORECASE,
)


def tracked_files() -> list[Path]:
    """Files that are, or would be, committed."""
    require("git")
    if not (ROOT / ".git").exists():
        absent("git", "this is not a git checkout")
    # The checkout may belong to another user than the one who runs the tests, as in containers.
    command = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def text_of(path: Path) -> str:
    data = path.read_bytes()
    return "" if b"\0" in data else data.decode("utf-8", errors="replace")


def mentions(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number} {line.strip()[:100]}"
        for path in tracked_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_no_text_names_a_path_of_one_machine():
    assert mentions(MACHINE_PATH) == []


def test_no_text_names_a_package_registry():
    assert mentions(REGISTRY) == []


def test_canary_machine_paths_and_registries_are_recognised():
    for folder in ("work", "root", "home"):
        assert MACHINE_PATH.search(f"open('/{folder}/me/data')")
        assert MACHINE_PATH.search(f"cd /{folder}")
    assert not MACHINE_PATH.search("docs/work/notes, ./home/x, /workers, a/root")
    assert REGISTRY.search("https://" + "pypi" + ".org/simple")


def test_base_install_needs_msgspec_alone():
    assert [re.split(r"[^\w-]", name)[0] for name in project()["dependencies"]] == ["msgspec"]


def test_extras_are_named_as_promised_and_all_holds_every_one_for_users():
    extras = project()["optional-dependencies"]
    assert set(extras) == USER_EXTRAS | {"all", "dev", "bench"}
    (everything,) = extras["all"]
    assert set(re.fullmatch(r"penstock\[(.*)\]", everything)[1].split(",")) == USER_EXTRAS


def test_every_dependency_has_an_upper_bound():
    listed = [
        *project()["dependencies"],
        *(name for extra in project()["optional-dependencies"].values() for name in extra),
    ]
    assert [name for name in listed if not re.search(r"<|==|^penstock\[", name)] == []


@pytest.mark.parametrize("target", TARGETS)
def test_make_target_exists(target):
    require("make")
    # Without MAKEFLAGS: they are those of the `make test` that may be running this.
    environment = {
        name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}
    }
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_ci_script_is_executable():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_licence_is_apache_2():
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License\n                           Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
    assert project()["license"] == "Apache-2.0"


def test_changelog_tells_of_this_version():
    assert project()["version"] in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
