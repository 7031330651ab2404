"""A Spark session that works where pip installed it: Java found, workers in this Python, quick settings."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import InvalidOption, MissingExtra
from penstock.spark.java import find_java, quiet_home
from penstock.spark.java_classes import java_options
from penstock.spark.worker import PYTHON, refuse_wrong_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger("penstock.spark")

_UNIX_SOCKETS_OPTION = "spark.python.unix.domain.socket.enabled"
#: Set by Spark for its Python processes when that is true.
_UNIX_SOCKETS = "PYTHON_UNIX_DOMAIN_ENABLED"


def advise() -> None:
    """Where a process of Spark's plans: say what would make the session faster, once in a session."""
    from pyspark import SparkFiles

    folder = SparkFiles._root_directory if SparkFiles._is_running_on_worker else None
    if folder and os.environ.get(_UNIX_SOCKETS, "").lower() != "true":
        _advise(folder)


def advise_session(spark: SparkSession) -> None:
    """Where the driver itself plans: say what would make the session faster, once in a session."""
    from pyspark import SparkFiles

    if str(spark.conf.get(_UNIX_SOCKETS_OPTION, "")).lower() != "true":
        _advise(SparkFiles.getRootDirectory())


def _advise(folder: str) -> None:
    if _is_first(folder):
        logger.warning(
            "reading would be about a third faster with %s=true in the session (penstock.spark.session() "
            "sets it)", _UNIX_SOCKETS_OPTION,
        )  # fmt: skip


def _is_first(folder: str) -> bool:
    try:
        os.close(os.open(os.path.join(folder, "penstock-advised"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:
        return False
    return True


_LOGGING = Path(__file__).with_name("log4j2.properties")
_DRIVER_JAVA = "spark.driver.extraJavaOptions"
_EXECUTOR_JAVA = "spark.executor.extraJavaOptions"
#: In options of Java that are about archives of classes already.
_CLASSES = "Archive"
#: Arrow for Java else checks bounds and owners at each access of each row: a tenth of a scan's time. What it
#: reads was made by Arrow's own code in the Python worker.
_ARROW_JAVA = "-Darrow.enable_unsafe_memory_access=true"

#: Measured: a scan takes 2.0 s through Unix sockets, 3.1 s through TCP.
_ALWAYS = {
    "spark.app.name": "penstock",
    _UNIX_SOCKETS_OPTION: "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    # A query killed while it wrote its first offsets leaves a file, and could else never begin again.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
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
    Raises `UsageError` when PYSPARK_PYTHON names a Python of this machine that lacks Penstock.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("pyspark", "spark") from None
    settings = _settings(master or "local[*]", conf)
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if settings["spark.master"].startswith("local"):
        refuse_wrong_python(os.environ.get(PYTHON, sys.executable))
    if _CLASSES not in settings[_DRIVER_JAVA]:
        settings[_DRIVER_JAVA] = f"{settings[_DRIVER_JAVA]} {java_options(os.environ)}".strip()
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
    changes: dict[str, str | None] = {PYTHON: environment.get(PYTHON, sys.executable)}
    if "PYSPARK_GATEWAY_PORT" not in environment:  # else spark-submit has started Java already
        changes["JAVA_HOME"] = quiet_home(find_java(environment), environment)
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
