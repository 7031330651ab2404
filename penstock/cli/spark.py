"""`penstock spark prepare|forget`: Spark's Java classes kept ready, so that sessions start in less time."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption

app = typer.Typer(help="Have Spark start in less time.", no_args_is_help=True)


@dataclass(frozen=True)
class PreparedFacts:
    """What was made."""

    path: str
    bytes: int
    seconds: float


@dataclass(frozen=True)
class ForgottenFacts:
    """What was removed."""

    files: int


@app.command()
def prepare(as_json: JsonOption = False) -> None:
    """Write Spark's Java classes to a file in the user's cache (some 160 MB), which every session then uses.

    Do it again after another Java or PySpark was installed.
    """
    from penstock.spark import java_classes

    began = time.monotonic()
    made = java_classes.prepare(os.environ)
    facts = PreparedFacts(str(made), made.stat().st_size, round(time.monotonic() - began, 3))
    if as_json:
        output.put_json(facts)
    else:
        output.put_text(f"{output.size(facts.bytes)} in {facts.path}, made in {facts.seconds:.0f} s")


@app.command()
def forget(as_json: JsonOption = False) -> None:
    """Remove what `prepare` made."""
    from penstock.spark import java_classes

    facts = ForgottenFacts(java_classes.forget(os.environ))
    if as_json:
        output.put_json(facts)
    else:
        output.put_text(f"{output.counted(facts.files, 'file')} removed")
