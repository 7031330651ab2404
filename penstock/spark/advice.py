"""One line, once for each running Spark, on what would make reading faster in a session of the user's own.

A session starts many Python processes in which sources are planned. What they share is the folder in
which Spark keeps the session's files and which it removes at the end: a mark there says that it was said.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

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
