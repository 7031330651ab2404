"""Arguments and options that several ready pipelines have."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import flag
from penstock.spark.pipelines.engine import Choice

SourceArgument = Annotated[str, typer.Argument(metavar="SOURCE", help="The topic to read.")]
SinkArgument = Annotated[str, typer.Argument(metavar="SINK", help="The topic to write; it must be there.")]
EngineOption = Annotated[
    str, typer.Option("--engine", metavar="auto|python|spark", help="What does the work.")
]
OnceOption = Annotated[bool, flag("--once", help="End when all that is there now is done.")]
TriggerOption = Annotated[
    str | None, typer.Option("--every", metavar="TIME", help="How often a batch begins; else at once.")
]
TimeOption = Annotated[
    str,
    typer.Option(
        "--time", metavar="written_at|timestamp", help="Which time counts: the log's, or the producer's."
    ),
]


def say_engine(choice: Choice) -> None:
    """Which engine was chosen, and why, on stderr."""
    output.say(str(choice))
