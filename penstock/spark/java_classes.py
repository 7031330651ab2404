"""Spark's Java classes kept ready on disk, which takes half of a session's start.

Java loads and checks some fifteen thousand classes each time Spark starts. It can write them to a file as it
ends (AppCDS), and map that file the next time. `prepare` makes one in the user's cache by a
rehearsal of what sessions do; `session()` uses it when there is one. It belongs to one Java and one PySpark:
another one has another name. Its name holds its size too, since Java crashes on one that was cut short.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from penstock.errors import MissingExtra, Unavailable
from penstock.spark.java import cache_folder, find_java, real_java

#: Java says nothing when it cannot use the file: it starts without, as it would have without us.
_QUIET = "-Xlog:cds*=off,class+path*=off"
_ENDING = ".jsa"
#: A start on a busy machine, the rehearsal and the writing of the file.
_MOST_S = 600


def java_options(environment: Mapping[str, str]) -> str:
    """What Java is told so that it uses the file; empty when there is none."""
    found = find_classes(environment)
    return "" if found is None else f"-XX:SharedArchiveFile={found} {_QUIET}"


def find_classes(environment: Mapping[str, str]) -> Path | None:
    """The file for this Java and this PySpark, if it was prepared and is whole."""
    folder = cache_folder(environment)
    for path in folder.glob(f"spark-{signature(environment)}-*{_ENDING}"):
        size = path.stem.rpartition("-")[2]
        if size.isdecimal() and " " not in str(path) and path.stat().st_size == int(size):
            return path
    return None


def prepare(environment: Mapping[str, str]) -> Path:
    """Make the file, or make it anew; returns where it is.

    Raises `MissingExtra` without PySpark or Java, `Unavailable` when the rehearsal failed.
    """
    folder = cache_folder(environment)
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"spark-{os.getpid()}.draft"
    command = [sys.executable, "-m", "penstock.spark.rehearsal", str(draft)]
    try:
        # Java has the same pipes, so this returns when it has ended too.
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_S, check=False)
        if done.returncode or not draft.exists():
            last = (done.stderr.strip().splitlines() or ["no file was written"])[-1]
            raise Unavailable(f"Spark's rehearsal failed: {last}")
        forget(environment)
        path = folder / f"spark-{signature(environment)}-{draft.stat().st_size}{_ENDING}"
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def forget(environment: Mapping[str, str]) -> int:
    """Remove all such files of this user, of whichever Java and PySpark; returns how many there were."""
    found = list(cache_folder(environment).glob(f"spark-*-*{_ENDING}"))
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def signature(environment: Mapping[str, str]) -> str:
    """A text that differs for another Java, and for another PySpark."""
    try:
        import pyspark
    except ImportError:
        raise MissingExtra("pyspark", "spark") from None
    java = os.path.realpath(real_java(find_java(environment), environment) or "java")
    spark = os.path.dirname(pyspark.__file__)
    facts = (java, os.stat(java).st_mtime_ns, spark, pyspark.__version__, os.stat(spark).st_mtime_ns)
    return sha256(repr(facts).encode()).hexdigest()[:16]
