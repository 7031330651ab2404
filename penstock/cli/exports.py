"""`penstock export diskq | jsonl | csv | parquet | arrow`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import (
    PLACE_HELP,
    JsonOption,
    StoreOption,
    TopicArgument,
    flag,
    open_to_read,
    parse_place,
)
from penstock.cli.options import grouped
from penstock.errors import InvalidOption
from penstock.exchange.diskq_export import export_diskq
from penstock.exchange.file_export import ExportRange, export_file
from penstock.exchange.file_import import DASH

app = typer.Typer(no_args_is_help=True)

PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="The file; - is stdout.")]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, metavar="N", help="Only this partition.")
]
FromOption = Annotated[str, typer.Option("--from", metavar="PLACE", help=f"Where to begin: {PLACE_HELP}.")]
ToOption = Annotated[
    str, typer.Option("--to", metavar="PLACE", help="Where to end; the message there is left out.")
]
OverwriteOption = Annotated[bool, flag("--overwrite", help="Replace a file that is there.")]


@dataclass(frozen=True)
class ExportedFile:
    """What was written."""

    topic: str
    path: str
    messages: int
    seconds: float


@dataclass(frozen=True)
class ExportedFolder:
    """The diskq folder that was written."""

    topic: str
    path: str
    messages: int
    partitions: int
    segments: int
    seconds: float
    groups: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@app.callback()
def group(store: StoreOption = "") -> None:
    """Write topics as go-diskq folders and as files."""


@app.command()
def diskq(
    topic: TopicArgument,
    path: Annotated[str, typer.Argument(metavar="PATH", help="The folder; it must be new or empty.")],
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding",
            metavar="fixed|varuint",
            help="How messages are written; else as they came, or fixed.",
        ),
    ] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Write a topic as a go-diskq folder: partitions, offsets, keys, times, data, and consumers as groups.

    What was imported from such a folder is as it was, byte for byte.
    """
    began = time.monotonic()
    with open_to_read(store) as opened:
        found = opened.topic(topic)
        with output.CountLine() as line:
            done = export_diskq(found, path, encoding=encoding, progress=line.show)
    result = ExportedFolder(
        topic, path, done.messages, done.partitions, done.segments, round(time.monotonic() - began, 3),
        list(done.groups), list(done.notes),
    )  # fmt: skip
    if as_json:
        output.put_json(result)
    else:
        output.put_text(
            f"{output.counted(done.messages, 'message')} of {topic} written to {path} "
            f"({output.counted(done.partitions, 'partition')}, {output.counted(done.segments, 'segment')}) "
            f"in {result.seconds:g} s"
        )


@dataclass(frozen=True)
class ExportOptions:
    """What is written, and where to; for every kind of file."""

    topic: TopicArgument
    path: PathArgument
    partition: PartitionOption = None
    start: FromOption = "earliest"
    stop: ToOption = "latest"
    overwrite: OverwriteOption = False
    store: StoreOption = ""
    as_json: JsonOption = False


@app.command()
@grouped
def jsonl(
    asked: ExportOptions,
    values: Annotated[bool, flag("--values", help="Only the values, which must be JSON.")] = False,
) -> None:
    """Write messages as lines of JSON, whole ones as `penstock read --json` prints them."""
    _export(asked, "jsonl", values=values)


@app.command()
@grouped
def csv(asked: ExportOptions) -> None:
    """Write messages as rows of a CSV file; bytes that are no text become base64."""
    _export(asked, "csv")


@app.command()
@grouped
def parquet(asked: ExportOptions) -> None:
    """Write messages as a Parquet file, by columns."""
    _export(asked, "parquet")


@app.command()
@grouped
def arrow(asked: ExportOptions) -> None:
    """Write messages as an Arrow stream, by columns."""
    _export(asked, "arrow")


def _export(asked: ExportOptions, kind: str, *, values: bool = False) -> None:
    topic, path = asked.topic, asked.path
    if path == DASH and asked.as_json:
        raise InvalidOption("--json would stand behind the file on stdout", hint="leave it out")
    wanted = ExportRange(asked.partition, parse_place(asked.start), parse_place(asked.stop))
    began = time.monotonic()
    with open_to_read(asked.store) as opened:
        found = opened.topic(topic)
        with output.CountLine() as line:
            count = export_file(
                found, path, kind, wanted=wanted, values=values, overwrite=asked.overwrite, progress=line.show
            )
    result = ExportedFile(topic, path, count, round(time.monotonic() - began, 3))
    if asked.as_json:
        output.put_json(result)
    elif path != DASH:
        output.put_text(
            f"{output.counted(count, 'message')} of {topic} written to {path} in {result.seconds:g} s"
        )
