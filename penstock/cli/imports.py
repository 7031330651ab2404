"""`penstock import diskq | jsonl | csv | parquet | arrow`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

import typer

from penstock import Store, Topic
from penstock.cli import output
from penstock.cli.arguments import JsonOption, StoreOption, flag, open_to_write
from penstock.cli.options import grouped
from penstock.errors import InvalidOption, UnknownTopic, UsageError
from penstock.exchange.csv_files import CsvRows
from penstock.exchange.diskq_folder import look
from penstock.exchange.diskq_import import import_diskq
from penstock.exchange.file_import import (
    DASH,
    FileImported,
    Progress,
    RecordReader,
    import_lines,
    opened,
)
from penstock.exchange.follow import Follower
from penstock.exchange.records import FieldChoice, refuse_all
from penstock.exchange.text_lines import JsonLines, Lines
from penstock.parse import identifier, topic_name

app = typer.Typer(no_args_is_help=True)

PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="The file; - is stdin.")]
TopicOption = Annotated[
    str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic; made if it is not there.")
]
ValueOption = Annotated[
    str | None,
    typer.Option("--value", metavar="FIELD", help="The value is this field; else the whole record."),
]
KeyOption = Annotated[str | None, typer.Option("--key", "-k", metavar="FIELD", help="The key is this field.")]
TimeOption = Annotated[str | None, typer.Option("--time", metavar="FIELD", help="The time is this field.")]
UnitOption = Annotated[
    str, typer.Option("--time-unit", metavar="s|ms|us|ns", help="What a number of time counts, since 1970.")
]
MessagesOption = Annotated[
    bool, flag("--messages", help="Records are whole messages, as `penstock export` writes them.")
]
KeepOption = Annotated[
    bool, flag("--keep-partitions", help="With --messages: each goes into the partition it came from.")
]
ProducerOption = Annotated[
    str | None,
    typer.Option(
        "--producer", metavar="ID", help="Send under this id, also from stdin; else the file is it."
    ),
]
FollowOption = Annotated[
    bool, flag("--follow", "-f", help="Wait for what is to come; a folder's files are followed each.")
]
PatternOption = Annotated[
    str, typer.Option("--pattern", metavar="GLOB", help="With --follow: which files of a folder.")
]
StrictOption = Annotated[
    bool, flag("--strict", help="With --follow: a line that is no record ends it; else it is left out.")
]


@dataclass(frozen=True)
class ImportedFile:
    """What became of a file."""

    topic: str
    source: str
    messages: int
    #: Records that had been stored before.
    skipped: int
    seconds: float


@dataclass(frozen=True)
class ImportedFolder:
    """What became of a diskq folder."""

    topic: str
    source: str
    messages: int
    #: Messages that a run before had imported.
    before: int
    partitions: int
    seconds: float
    consumers: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@app.callback()
def group(store: StoreOption = "") -> None:
    """Import go-diskq folders and files; run again, nothing is stored twice."""


@app.command()
def diskq(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The folder of a go-diskq stream.")],
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic; it must be new.")],
    owned_ok: Annotated[
        bool, flag("--owned-ok", help="The producer whose owner file is there is dead for certain.")
    ] = False,
    sync: Annotated[
        str | None, typer.Option("--sync", metavar="disk|os", help="What acknowledged means in the topic.")
    ] = None,
    payloads: Annotated[
        str | None,
        typer.Option(
            "--payloads", metavar="PLACE", help="Where large values lie: files, s3://bucket/prefix."
        ),
    ] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Import a go-diskq folder: partitions, offsets, keys, times, data, and groups as consumers.

    An import that was killed goes on where it was when it is started again.
    """
    topic_name(topic)
    look(path)  # what is no diskq folder is said before a store is made
    line = output.CountLine()
    began = time.monotonic()
    with open_to_write(store, create=True) as data, line:
        given = {"sync": sync, "payloads": payloads}
        options = {name: value for name, value in given.items() if value is not None}
        done = import_diskq(
            data,
            path,
            topic,
            owned_ok=owned_ok,
            progress=line.show,
            **options,
        )
    result = ImportedFolder(
        topic, path, done.messages, done.before, done.partitions, round(time.monotonic() - began, 3),
        list(done.consumers), list(done.notes),
    )  # fmt: skip
    if as_json:
        output.put_json(result)
        return
    before = output.were_there(done.before)
    output.put_text(
        f"{output.counted(done.messages, 'message')} imported into {topic} "
        f"({output.counted(done.partitions, 'partition')}) in {result.seconds:g} s{before}"
    )
    if done.consumers:
        output.put_text(f"groups that are consumers now: {', '.join(done.consumers)}")


@dataclass(frozen=True)
class ImportOptions:
    """What importing any file takes: the file, the topic, and which fields are key, value and time."""

    path: PathArgument
    topic: TopicOption
    value: ValueOption = None
    key: KeyOption = None
    time: TimeOption = None
    time_unit: UnitOption = "ns"
    messages: MessagesOption = False
    producer: ProducerOption = None
    store: StoreOption = ""
    as_json: JsonOption = False

    def choice(self, *, keep_partitions: bool = False) -> FieldChoice:
        """Return the fields to use; raise `InvalidOption` for options that exclude each other."""
        choice = FieldChoice(self.value, self.key, self.time, self.time_unit, self.messages, keep_partitions)
        choice.check()
        return choice


@dataclass(frozen=True)
class LineImport:
    """What only files of lines have: they may grow, and each line may have its partition."""

    keep_partitions: KeepOption = False
    follow: FollowOption = False
    pattern: PatternOption = "*"
    strict: StrictOption = False


@app.command()
@grouped
def jsonl(asked: ImportOptions, lines: LineImport) -> None:
    """Import a file of lines, each a JSON document, which is the value unless a field of it is.

    Each line is stored once, however often the file is sent; with --follow also files that grow.
    """
    choice = asked.choice(keep_partitions=lines.keep_partitions)
    _import_lines(asked, lines, lambda name: JsonLines(name, choice))


@app.command()
@grouped
def csv(
    asked: ImportOptions, lines: LineImport,
    delimiter: Annotated[str, typer.Option("--delimiter", metavar="CHAR", help="Between fields.")] = ",",
) -> None:  # fmt: skip
    """Import a CSV file with a line of names; a row is a JSON object unless a column is the value."""
    choice = asked.choice(keep_partitions=lines.keep_partitions)
    CsvRows(asked.path, choice, delimiter)  # a delimiter that is none is said first
    _import_lines(asked, lines, lambda name: CsvRows(name, choice, delimiter))


@app.command()
@grouped
def parquet(asked: ImportOptions) -> None:
    """Import a Parquet file; with --value by columns, else each row is a JSON object."""
    _import_table(asked, "parquet")


@app.command()
@grouped
def arrow(asked: ImportOptions) -> None:
    """Import an Arrow file or stream; with --value by columns, else each row is a JSON object."""
    _import_table(asked, "arrow")


def _name_bad_line(error: UsageError) -> None:
    output.say(f"left out: {error}")


def _import_lines(asked: ImportOptions, lines: LineImport, reader: Callable[[str], RecordReader]) -> None:
    path, producer = asked.path, asked.producer
    if lines.follow and (path == DASH or producer is not None):
        raise InvalidOption("--follow is for files, each of which is its own producer")
    if path != DASH and not lines.follow:
        with opened(path) as file:  # a column that is not there is said before a store is made
            reader(path).begin(Lines(file, path))

    def run(made: Topic, progress: Progress) -> FileImported:
        if lines.follow:
            return _follow(made, path, reader, lines, progress)
        name = "stdin" if path == DASH else path
        return import_lines(made, path, reader(name), producer=producer, progress=progress)

    _import(asked, run)


def _follow(
    topic: Topic, path: str, reader: Callable[[str], RecordReader], lines: LineImport, progress: Progress
) -> FileImported:
    """Import what comes until Ctrl-C, and say then what came."""
    on_bad = refuse_all if lines.strict else _name_bad_line
    with Follower(topic, path, reader, pattern=lines.pattern, progress=progress, on_bad=on_bad) as follower:
        try:
            return follower.run()
        except KeyboardInterrupt:
            bad = f", {output.counted(follower.done.bad, 'line')} left out" if follower.done.bad else ""
            output.say(f"{output.counted(follower.done.messages, 'message')} stored{bad}")
            raise


def _import_table(asked: ImportOptions, kind: str) -> None:
    from penstock.exchange.arrow_files import import_table

    choice = asked.choice()

    def run(made: Topic, progress: Progress) -> FileImported:
        return import_table(made, asked.path, kind, choice, producer=asked.producer, progress=progress)

    _import(asked, run)


def _import(asked: ImportOptions, run: Callable[[Topic, Progress], FileImported]) -> None:
    topic, path = asked.topic, asked.path
    topic_name(topic)
    if asked.producer is not None:
        identifier("--producer", asked.producer)
    if path != DASH and not os.path.exists(path):
        raise InvalidOption(f"{path} is not there", hint="name a file; - is stdin")
    line = output.CountLine()
    began = time.monotonic()
    with open_to_write(asked.store, create=True) as data, line:
        done = run(_topic(data, topic), line.show)
    result = ImportedFile(topic, path, done.messages, done.skipped, round(time.monotonic() - began, 3))
    if asked.as_json:
        output.put_json(result)
        return
    skipped = f", {output.counted(done.skipped, 'record')} skipped" if done.skipped else ""
    output.put_text(
        f"{output.counted(done.messages, 'message')} imported into {topic} in {result.seconds:g} s{skipped}"
    )


def _topic(store: Store, name: str) -> Topic:
    """The topic, made if it is not there."""
    try:
        return store.topic(name)
    except UnknownTopic:
        made = store.create_topic(name, exists_ok=True)
        output.say(f"created topic {name} (1 partition)")
        return made
