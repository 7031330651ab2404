"""Errors of the user's own code, told by what they are and the line of the user's file."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import PenstockError, PipelineFailed


def line_of(error: BaseException, path: str) -> str:
    """`line 7`, if the error passed through this file; else nothing."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}"
    passed = traceback.extract_tb(error.__traceback__)
    lines = [each.lineno for each in passed if os.path.abspath(each.filename) == os.path.abspath(path)]
    return f"line {lines[-1]}" if lines else ""


@contextmanager
def blamed(what: str, path: str) -> Iterator[None]:
    """Whatever is raised becomes `PipelineFailed`; what is Penstock's own says enough already."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:  # the user's code may raise anything, and Spark does
        told = str(error).strip().partition("\n")[0]
        line = line_of(error, path)
        raise PipelineFailed(
            f"{what} failed: {type(error).__name__}: {told}", hint=f"{path}, {line}" if line else ""
        ) from error
