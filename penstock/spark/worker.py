"""The Python that Spark's workers run: another one than this may lack Penstock."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from penstock.errors import UsageError

#: The variable by which Spark is told of it; else it takes the first `python3` on the PATH.
PYTHON = "PYSPARK_PYTHON"


def refuse_wrong_python(python: str) -> None:
    """Raise `UsageError` when this Python cannot import Penstock and PySpark."""
    found = shutil.which(python)
    if found is not None and os.path.abspath(found) == os.path.abspath(sys.executable):
        return
    done = None
    if found is not None:
        probe = [found, "-c", "import penstock, pyarrow, pyspark"]
        done = subprocess.run(probe, capture_output=True, text=True, timeout=60, check=False)
    if done is None or done.returncode:
        why = "is not there" if done is None else (done.stderr.strip().splitlines() or ["it failed"])[-1]
        raise UsageError(
            f"Spark's workers run {python}, which cannot read topics: {why}",
            hint=f"before the session is made: os.environ[{PYTHON!r}] = {sys.executable!r}",
        )
