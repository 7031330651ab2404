"""The command as a whole: its verbs in order, and its exit code."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.cli import (
    consumer,
    dead,
    events,
    exports,
    failures,
    imports,
    output,
    pipeline,
    spark,
    stream,
    topic,
)
from penstock.cli.arguments import StoreOption, flag
from penstock.cli.backup import backup, restore
from penstock.cli.failures import Exit
from penstock.cli.read import read
from penstock.cli.repair import repair
from penstock.cli.run import run as run_pipeline
from penstock.cli.serve import serve
from penstock.cli.sql import sql
from penstock.cli.status import status
from penstock.cli.vacuum import vacuum
from penstock.cli.verify import verify
from penstock.cli.write import write
from penstock.errors import PenstockError

#: Typer's base of "the call was not understood", wherever this version of it keeps that.
_NotUnderstood: type[Exception] = typer.BadParameter.__mro__[2]

_EXAMPLES = """
Try: [bold]penstock write orders paid --key customer-7[/], then [bold]penstock read orders[/].
The store is a folder, ./penstock-data unless you say otherwise; any number of programs may use it.
"""

_ORDER = (
    "write", "read", "sql", "import", "export", "topic", "consumer", "dead", "pipeline", "run", "spark",
    "events",
    "serve", "stream", "status", "vacuum", "verify", "repair", "backup", "restore",
)  # fmt: skip


class _Verbs(TyperGroup):
    """The verbs in the order people need them."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return sorted(super().list_commands(ctx), key=lambda name: _ORDER.index(name))


app = typer.Typer(
    name="penstock",
    cls=_Verbs,
    help="The event stream you pip install: durable, ordered, replayable topics in a folder.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.command(rich_help_panel="Messages")(write)
app.command(rich_help_panel="Messages")(read)
app.command(rich_help_panel="Messages")(sql)
app.add_typer(imports.app, name="import", rich_help_panel="Messages")
app.add_typer(exports.app, name="export", rich_help_panel="Messages")
app.add_typer(topic.app, name="topic", rich_help_panel="Topics and consumers")
app.add_typer(consumer.app, name="consumer", rich_help_panel="Topics and consumers")
app.add_typer(dead.app, name="dead", rich_help_panel="Topics and consumers")
app.add_typer(pipeline.app, name="pipeline", rich_help_panel="Pipelines")
app.command("run", rich_help_panel="Pipelines")(run_pipeline)
app.add_typer(spark.app, name="spark", rich_help_panel="Pipelines")
app.add_typer(events.app, name="events", rich_help_panel="Live events")
app.command(rich_help_panel="Live events")(serve)
app.add_typer(stream.app, name="stream", rich_help_panel="Streams of subjects")
app.command(rich_help_panel="Health")(status)
app.command(rich_help_panel="Health")(vacuum)
app.command(rich_help_panel="Health")(verify)
app.command(rich_help_panel="Health")(repair)
app.command(rich_help_panel="Health")(backup)
app.command(rich_help_panel="Health")(restore)


def _print_version(wanted: bool) -> None:
    if wanted:
        output.put_text(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def penstock(
    store: StoreOption = "",
    version: Annotated[
        bool, flag("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The event stream you pip install: durable, ordered, replayable topics in a folder."""


class _ToStderr(logging.Handler):
    """What the library logs, told as the command tells things: `warning: …`."""

    def emit(self, record: logging.LogRecord) -> None:
        output.say(f"{record.levelname.lower()}: {record.getMessage()}")


@cache
def _command() -> Any:
    """The verbs as typer runs them; made once, since that takes a tenth of a second."""
    return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; nothing is raised but KeyboardInterrupt."""
    handler = _ToStderr(logging.WARNING)
    logger = logging.getLogger("penstock")
    logger.addHandler(handler)
    try:
        ended = _command().main(args=list(arguments), prog_name="penstock", standalone_mode=False)
    except _NotUnderstood as error:
        return _not_understood(error)
    except typer.Abort:
        return Exit.INTERRUPTED
    except (PenstockError, OSError) as error:
        return failures.report(error)
    finally:
        logger.removeHandler(handler)
    return ended if isinstance(ended, int) else Exit.OK


def _not_understood(error: Exception) -> int:
    """A call that typer could not make sense of; asking for nothing shows the help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return Exit.USAGE  # the help was printed when the error was made
    path = context.command_path if context is not None else "penstock"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    failures.tell(message[:1].lower() + message[1:].rstrip("."), f"{path} --help")
    return Exit.USAGE
