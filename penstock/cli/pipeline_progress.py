"""A running pipeline on the command line: its progress, how it is stopped, and its summary.

SIGTERM and the first Ctrl-C end a run behind its present batch; a second Ctrl-C ends it at once. Nothing is
lost either way: it goes on where it stopped.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, StoreOption, flag, open_to_write
from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption, NotAStore, OwnedElsewhere, UnknownTopic
from penstock.spark.pipelines.engine import Choice
from penstock.state.pipelines import RunFacts
from penstock.store import PipelineRun, Store, open_store

SourceArgument = Annotated[str, typer.Argument(metavar="SOURCE", help="The topic to read.")]
SinkArgument = Annotated[str, typer.Argument(metavar="SINK", help="The topic to write; see --create.")]
CreateOption = Annotated[
    bool, flag("--create", help="Make sinks that are not there, with the source's number of partitions.")
]
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


@contextmanager
def sinks_made(
    store: Store, source: str, *sinks: str | None, create: bool, watched: Watched, into: str | None = None
) -> Iterator[None]:
    """Make the sinks of a pipeline that are not there yet, if that was asked for; else say how.

    `into` is the folder of another store in which they are, made as well. Where the pipeline is refused
    before it begins, what was made for it goes again.
    """
    origin = store.topic(source)  # if that is missing, too, it is said first
    undo = ExitStack()
    try:
        with nullcontext(store) if into is None else _other(into, create=create, undo=undo) as target:
            known = tuple(each.name for each in target.topics())
            missing = [each for each in dict.fromkeys(sinks) if each is not None and each not in known]
            if missing and not create:
                error = UnknownTopic(missing[0], known)
                error.hint = f"--create makes it, with as many partitions as {source!r} has"
                raise error
            for each in missing:
                target.create_topic(each, partitions=origin.options.partitions)
                undo.callback(_drop, store, into, each)
        yield
    except BaseException:
        if not watched.has_begun:
            undo.close()
        raise


def _other(place: str, *, create: bool, undo: ExitStack) -> Store:
    """The store that sinks are in, if it is not the one of the source."""
    folder = Path(os.path.abspath(place))
    is_new = not folder.exists() or not any(folder.iterdir())  # what else lies there is nobody's to remove
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        opened = open_to_write(place, create=create)
    except NotAStore as error:
        raise InvalidOption(error.args[0], hint="--create makes it, and the topic in it") from None
    if is_new:
        undo.callback(_remove_store, folder, missing)
    return opened


def _drop(store: Store, into: str | None, topic: str) -> None:
    with nullcontext(store) if into is None else open_to_write(into) as target:
        target.drop_topic(topic)


def _remove_store(folder: Path, made: Sequence[Path]) -> None:
    """Remove a store that nobody else has come to use, and the folders that were made for it."""
    try:
        with open_store(folder, create=False, exclusive=True) as store:
            if store.topics():
                return
    except OwnedElsewhere:
        return
    for each in folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    with suppress(OSError):  # somebody put something beside it
        for each in made:
            each.rmdir()
    output.say(f"removed store {folder} again")


def say_engine(choice: Choice) -> None:
    """Which engine was chosen, and why, on stderr."""
    output.say(str(choice))


NameOption = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="What the pipeline is called; a restart goes on by it."),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="Spark's master: local[2], spark://host:7077; else local[*]."
    ),
]


@dataclass(frozen=True)
class StreamOptions:
    """How a pipeline that follows a topic is run."""

    create: CreateOption = False
    once: OnceOption = False
    every: TriggerOption = None
    name: NameOption = None
    master: MasterOption = None
    store: StoreOption = ""
    as_json: JsonOption = False

    def run(self) -> dict[str, Any]:
        """What of it the pipeline's function takes."""
        return {"once": self.once, "trigger": self.every, "name": self.name, "master": self.master}


@dataclass(frozen=True)
class RunSummary:
    """How a run of a pipeline went; `result` is what its kind has to say besides."""

    pipeline: str
    kind: str
    batches: int
    rows: int
    seconds: float
    rows_per_second: float
    stopped: bool
    result: Any = None


@contextmanager
def followed(run: PipelineRun) -> Iterator[None]:
    """Show how a run goes, and let it be stopped by signals."""
    with _stopped_by_signals(run), _shown(run):
        yield


class Watched:
    """Follows a run: shows how it goes, and keeps it for the summary."""

    run: PipelineRun
    has_begun = False

    def __call__(self, run: PipelineRun) -> AbstractContextManager[None]:
        self.run, self.has_begun = run, True
        return followed(run)


def put_summary(run: PipelineRun, kind: str, result: Any, *, as_json: bool) -> None:
    """Tell how a run went, when it has ended."""
    facts = run.facts
    seconds = ((facts.ended or facts.updated) - facts.started) / NANOSECONDS
    summary = RunSummary(
        run.name, kind, facts.batches, facts.rows, round(seconds, 3),
        round(facts.rows / seconds, 1) if seconds > 0 else 0.0, run.was_asked_to_stop, result,
    )  # fmt: skip
    if as_json:
        output.put_json(summary)
        return
    how = "stopped" if summary.stopped else "done"
    output.put_text(f"{run.name}: {how}, {_amount(facts)}, {seconds:.1f} s")


@contextmanager
def _stopped_by_signals(run: PipelineRun) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and run.was_asked_to_stop:
            raise KeyboardInterrupt
        run.stop()
        output.say("stopping behind the present batch")

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _shown(run: PipelineRun) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{run.name}: starting") as status:
        run.on_report = lambda facts: status.update(_line(run.name, facts))
        yield


def _line(name: str, facts: RunFacts) -> str:
    return f"{name}: {_amount(facts)}, {output.count(round(facts.rows_per_second))} rows/s"


def _amount(facts: RunFacts) -> str:
    return f"{output.counted(facts.rows, 'row')} in {output.counted(facts.batches, 'batch', 'es')}"
