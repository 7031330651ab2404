"""`penstock pipeline quality`: good messages into one topic, the others into another."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import output, pipeline_progress
from penstock.cli.arguments import open_to_write
from penstock.cli.options import grouped
from penstock.cli.pipeline_progress import SourceArgument
from penstock.errors import InvalidOption


@grouped
def quality(
    *,
    source: SourceArgument,
    good: Annotated[str, typer.Argument(metavar="GOOD", help="The topic of messages that keep all rules.")],
    bad: Annotated[str, typer.Argument(metavar="BAD", help="The topic of the others.")],
    rule: Annotated[
        list[str],
        typer.Option(
            "--rule", metavar="NAME=SQL", help="A condition that good messages fulfill; repeatable."
        ),
    ],
    asked: pipeline_progress.StreamOptions,
) -> None:
    """Divide messages by rules; those that break one get a header `quality` with the rules' names.

    SQL sees the columns of a message, and its value as `text`: --rule "small=length(text) < 1000".
    """
    from penstock.spark.pipelines import quality as pipeline

    rules = dict(_rule(each) for each in rule)
    watched = pipeline_progress.Watched()
    with (
        open_to_write(asked.store) as opened,
        pipeline_progress.sinks_made(opened, source, good, bad, create=asked.create, watched=watched),
    ):
        result = pipeline.quality(
            opened, source, good=good, bad=bad, rules=rules, **asked.run(), watch=watched,
        )  # fmt: skip
        pipeline_progress.put_summary(watched.run, "quality", result, as_json=asked.as_json)
        if not asked.as_json:
            told = [("all", result.failed), *result.rules.items()]
            output.put_table(f"{result.passed} good, {result.failed} bad", told, _COLUMNS)


def _rule(text: str) -> tuple[str, str]:
    name, equals, condition = text.partition("=")
    if not (name.strip() and equals and condition.strip()):
        raise InvalidOption(f"--rule {text!r}", hint="write it like 'has a key=key IS NOT NULL'")
    return name.strip(), condition.strip()


_COLUMNS: tuple[output.Column[tuple[str, int]], ...] = (
    ("rule", lambda each: each[0], False),
    ("broken by", lambda each: output.count(each[1]), True),
)
