"""Spark's Python workers without tracebacks for what is no error.

Spark closes the pipe of a worker that it needs no longer: when a query ends, when a `LIMIT` is reached.
PySpark prints that as a `BrokenPipeError` of its own, on the terminal of a run that went well. This is
started in the place of `pyspark.daemon`, does what that does, and leaves those out; every other error is
printed as before.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any


def without_broken_pipes(print_error: Callable[..., None]) -> Callable[..., None]:
    """`traceback.print_exc`, but silent about a pipe that the other side closed."""

    def quiet(*arguments: Any, **named: Any) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            print_error(*arguments, **named)

    return quiet


if __name__ == "__main__":
    from pyspark.daemon import manager

    traceback.print_exc = without_broken_pipes(traceback.print_exc)
    manager()
