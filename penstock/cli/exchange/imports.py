"""`penstock import diskq | jsonl | csv | parquet | arrow`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import typer

from penstock import Store, Topic
from penstock.cli import output
from penstock.cli.arguments import JsonOption, StoreOption, flag, open_to_write
from penstock.cli.exchange.progress import CountLine
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
    line = CountLine()
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
    before = f" ({output.counted(done.before, 'message')} were there)" if done.before else ""
    output.put_text(
        f"{output.counted(done.messages, 'message')} imported into {topic} "
        f"({output.counted(done.partitions, 'partition')}) in {result.seconds:g} s{before}"
    )
    if done.consumers:
        output.put_text(f"groups that are consumers now: {', '.join(done.consumers)}")


@app.command()
def jsonl(
    path: PathArgument, topic: TopicOption, value: ValueOption = None, key: KeyOption = None,
    time: TimeOption = None, time_unit: UnitOption = "ns", messages: MessagesOption = False,
    keep_partitions: KeepOption = False, producer: ProducerOption = None, follow: FollowOption = False,
    pattern: PatternOption = "*", strict: StrictOption = False, store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Import a file of lines, each a JSON document, which is the value unless a field of it is.

    Each line is stored once, however often the file is sent; with --follow also files that grow.
    """
    choice = _choice(value, key, time, time_unit, messages, keep_partitions)
    following = _Following(pattern, strict) if follow else None
    _import_lines(store, path, topic, lambda name: JsonLines(name, choice), producer, following, as_json)


@app.command()
def csv(
    path: PathArgument, topic: TopicOption, value: ValueOption = None, key: KeyOption = None,
    time: TimeOption = None, time_unit: UnitOption = "ns", messages: MessagesOption = False,
    keep_partitions: KeepOption = False,
    delimiter: Annotated[str, typer.Option("--delimiter", metavar="CHAR", help="Between fields.")] = ",",
    producer: ProducerOption = None, follow: FollowOption = False, pattern: PatternOption = "*",
    strict: StrictOption = False, store: StoreOption = "", as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Import a CSV file with a line of names; a row is a JSON object unless a column is the value."""
    choice = _choice(value, key, time, time_unit, messages, keep_partitions)
    CsvRows(path, choice, delimiter)

    def reader(name: str) -> RecordReader:
        return CsvRows(name, choice, delimiter)

    following = _Following(pattern, strict) if follow else None
    _import_lines(store, path, topic, reader, producer, following, as_json)


@app.command()
def parquet(
    path: PathArgument, topic: TopicOption, value: ValueOption = None, key: KeyOption = None,
    time: TimeOption = None, time_unit: UnitOption = "ns", messages: MessagesOption = False,
    producer: ProducerOption = None, store: StoreOption = "", as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Import a Parquet file; with --value by columns, else each row is a JSON object."""
    _import_table(
        store,
        path,
        topic,
        "parquet",
        _choice(value, key, time, time_unit, messages, False),
        producer,
        as_json,
    )


@app.command()
def arrow(
    path: PathArgument, topic: TopicOption, value: ValueOption = None, key: KeyOption = None,
    time: TimeOption = None, time_unit: UnitOption = "ns", messages: MessagesOption = False,
    producer: ProducerOption = None, store: StoreOption = "", as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Import an Arrow file or stream; with --value by columns, else each row is a JSON object."""
    _import_table(
        store, path, topic, "arrow", _choice(value, key, time, time_unit, messages, False), producer, as_json
    )


def _choice(
    value: str | None, key: str | None, time: str | None, unit: str, messages: bool, keep: bool
) -> FieldChoice:
    choice = FieldChoice(value, key, time, unit, messages, keep)
    choice.check()
    return choice


class _Following(NamedTuple):
    """How files are followed."""

    pattern: str
    is_strict: bool


def _name_bad_line(error: UsageError) -> None:
    output.say(f"left out: {error}")


def _import_lines(
    store: str, path: str, topic: str, reader: Callable[[str], RecordReader], producer: str | None,
    following: _Following | None, as_json: bool,
) -> None:  # fmt: skip
    if following is not None and (path == DASH or producer is not None):
        raise InvalidOption("--follow is for files, each of which is its own producer")
    if path != DASH and following is None:
        with opened(path) as file:  # a column that is not there is said before a store is made
            reader(path).begin(Lines(file, path))

    def run(made: Topic, progress: Progress) -> FileImported:
        if following is None:
            name = "stdin" if path == DASH else path
            return import_lines(made, path, reader(name), producer=producer, progress=progress)
        on_bad = refuse_all if following.is_strict else _name_bad_line
        with Follower(
            made, path, reader, pattern=following.pattern, progress=progress, on_bad=on_bad
        ) as follower:
            try:
                return follower.run()
            except KeyboardInterrupt:
                bad = f", {output.counted(follower.done.bad, 'line')} left out" if follower.done.bad else ""
                output.say(f"{output.counted(follower.done.messages, 'message')} stored{bad}")
                raise

    _import(store, path, topic, producer, run, as_json)


def _import_table(
    store: str, path: str, topic: str, kind: str, choice: FieldChoice, producer: str | None, as_json: bool
) -> None:
    from penstock.exchange.arrow_files import import_table

    def run(made: Topic, progress: Progress) -> FileImported:
        return import_table(made, path, kind, choice, producer=producer, progress=progress)

    _import(store, path, topic, producer, run, as_json)


def _import(
    store: str, path: str, topic: str, producer: str | None, run: Callable[[Topic, Progress], FileImported],
    as_json: bool,
) -> None:  # fmt: skip
    topic_name(topic)
    if producer is not None:
        identifier("--producer", producer)
    if path != DASH and not os.path.exists(path):
        raise InvalidOption(f"{path} is not there", hint="name a file; - is stdin")
    line = CountLine()
    began = time.monotonic()
    with open_to_write(store, create=True) as data, line:
        done = run(_topic(data, topic), line.show)
    result = ImportedFile(topic, path, done.messages, done.skipped, round(time.monotonic() - began, 3))
    if as_json:
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
