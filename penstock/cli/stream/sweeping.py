"""`penstock stream sweep`: bodies of a stream without a message, and messages without a body."""

from __future__ import annotations

from penstock.cli import running
from penstock.cli.arguments import JsonOption, StoreOption
from penstock.cli.pipelines import sweep as pipeline
from penstock.cli.pipelines.arguments import EngineOption
from penstock.cli.stream.arguments import DEFAULT_STREAM, NameOption


def sweep(
    apply: pipeline.ApplyOption = False,
    grace: pipeline.GraceOption = "24h",
    limit: pipeline.MostOption = 100,
    engine: EngineOption = "auto",
    name: NameOption = DEFAULT_STREAM,
    master: running.MasterOption = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Find bodies without a message and messages without a body; exit code 3 when there are such messages.

    It is `penstock pipeline sweep` of the stream's topic. Nothing is deleted without --apply.
    """
    pipeline.sweep(
        name,
        apply=apply,
        grace=grace,
        limit=limit,
        engine=engine,
        master=master,
        store=store,
        as_json=as_json,
    )
