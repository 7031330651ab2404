"""`penstock read`: messages of a topic, from a place to a place, or as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Annotated, Literal, NamedTuple

import typer

from penstock import Message, Reader, Topic
from penstock.cli import output
from penstock.cli.arguments import (
    PLACE_HELP,
    StoreOption,
    TopicArgument,
    flag,
    open_to_read,
    open_to_write,
    parse_place,
    typed_key,
    typed_prefix,
)
from penstock.cli.formats import FORMATS, Format
from penstock.cli.options import grouped
from penstock.errors import InvalidOption
from penstock.keys import Prefix
from penstock.message import Batch
from penstock.place import Place

_BATCH = 1000


class OnGap(StrEnum):
    """What to do where messages are missing."""

    RAISE = "raise"
    SKIP = "skip"


class ReaderKind(StrEnum):
    """How readers of one consumer share messages."""

    STREAM = "stream"
    QUEUE = "queue"


class _Wanted(NamedTuple):
    """What to read, as it was typed."""

    start: Place | None
    stop: Place | None
    limit: int | None
    partition: int | None
    consumer: str | None
    follow: bool
    on_gap: Literal["raise", "skip"]
    kind: Literal["stream", "queue"]
    key: bytes | None
    prefix: Prefix | None

    @property
    def by_key(self) -> bool:
        return self.key is not None or self.prefix is not None


@dataclass(frozen=True)
class WantedOptions:
    """Which messages are read, and by whom."""

    follow: Annotated[bool, flag("--follow", "-f", help="Wait for what is to come.")] = False
    start: Annotated[
        str | None, typer.Option("--from", metavar="PLACE", help=f"Where to begin: {PLACE_HELP}.")
    ] = None
    stop: Annotated[
        str | None, typer.Option("--to", metavar="PLACE", help="Where to end; the message there is left out.")
    ] = None
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="At most N messages.")
    ] = None
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, metavar="N", help="Only this partition.")
    ] = None
    consumer: Annotated[
        str | None,
        typer.Option(
            "--consumer",
            "-c",
            metavar="NAME",
            help="Go on where this consumer stands, and commit what was printed; made at first use.",
        ),
    ] = None
    key: Annotated[
        str | None,
        typer.Option(
            "--key", "-k", metavar="KEY", help='Only messages of this key; ["chat",345] is an array.'
        ),
    ] = None
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="KEY", help="Only messages whose key begins like this.")
    ] = None
    kind: Annotated[
        ReaderKind,
        typer.Option("--kind", help="How readers of a consumer share: by partition, or by message."),
    ] = ReaderKind.STREAM
    on_gap: Annotated[
        OnGap,
        typer.Option("--on-gap", help="Where messages are gone or damaged: fail, or go on behind them."),
    ] = OnGap.RAISE

    def wanted(self) -> _Wanted:
        """These, checked."""
        found = _Wanted(
            None if self.start is None else parse_place(self.start),
            None if self.stop is None else parse_place(self.stop),
            self.limit, self.partition, self.consumer, self.follow, self.on_gap.value, self.kind.value,
            None if self.key is None else typed_key(self.key),
            None if self.prefix is None else typed_prefix(self.prefix),
        )  # fmt: skip
        if found.by_key and (self.follow or self.consumer is not None or self.on_gap is OnGap.SKIP):
            raise InvalidOption(
                "--key and --prefix look up what is there", hint="leave --follow, --consumer and --on-gap out"
            )
        if self.follow and self.stop is not None:
            raise InvalidOption("--follow never ends, so it has no --to", hint="give one of them")
        return found


@grouped
def read(
    topic: TopicArgument,
    asked: WantedOptions,
    format: Annotated[
        Format | None, typer.Option("--format", help="How messages are printed.", show_default="text")
    ] = None,
    store: StoreOption = "",
    as_json: Annotated[bool, flag("--json", help="Short for --format json.")] = False,
) -> None:
    """Print the messages of a topic.

    Ends at the present end unless --follow is given. Without a consumer nothing is stored.
    """
    form = FORMATS[_chosen_format(format, as_json)]
    wanted = asked.wanted()
    with (open_to_read if wanted.consumer is None else open_to_write)(store) as opened:
        (_print_by_key if wanted.by_key else _print)(opened.topic(topic), wanted, form)


def _print(topic: Topic, wanted: _Wanted, form: Callable[[Message], bytes]) -> None:
    if wanted.consumer is not None and wanted.start is not None:
        _refuse_to_move(topic, wanted.consumer)
    # A queue gives no promise of order: it is read until nothing is left for this reader.
    stops = None if wanted.follow or wanted.kind == "queue" else _stops(topic, wanted)
    with topic.reader(
        consumer=wanted.consumer,
        start="earliest" if wanted.start is None else wanted.start,
        partitions=None if wanted.partition is None else (wanted.partition,),
        follow=wanted.follow,
        on_gap=wanted.on_gap,
        kind=wanted.kind,
    ) as reader:
        for batch, messages in _batches(reader, wanted.limit, stops):
            if any(message.codec == "reference" for message in messages):  # bodies may be large: one by one
                for message in messages:
                    output.put(form(message))
            else:
                output.put(b"".join(map(form, messages)))
            if wanted.consumer is not None:
                _commit(reader, batch, messages)


def _print_by_key(topic: Topic, wanted: _Wanted, form: Callable[[Message], bytes]) -> None:
    if topic.options.index != "key":
        raise InvalidOption(
            f"topic {topic.name!r} has no index of its keys",
            hint=f"`penstock topic alter {topic.name} --index key` gives it one",
        )
    scan = topic.scan(
        partition=wanted.partition,
        start="earliest" if wanted.start is None else wanted.start,
        stop="latest" if wanted.stop is None else wanted.stop,
        key=wanted.key,
        prefix=wanted.prefix,
    )
    for message in islice(scan.messages(), wanted.limit):
        output.put(form(message))


def _batches(
    reader: Reader, limit: int | None, stops: dict[int, int] | None
) -> Iterator[tuple[Batch, list[Message]]]:
    """Batches, and what of them is to be printed: up to `limit` in all, and below `stops`."""
    left = dict(stops or {})
    while limit is None or limit > 0:
        batch = reader.receive_batch(max_messages=_BATCH if limit is None else min(limit, _BATCH))
        messages = list(batch)
        if not messages:
            return
        if stops is not None:
            number, stop = messages[0].partition, stops.get(messages[0].partition, 0)
            if messages[-1].offset + 1 >= stop:
                messages = [message for message in messages if message.offset < stop]
                left.pop(number, None)
        if messages:
            yield batch, messages
        if limit is not None:
            limit -= len(messages)
        if stops is not None and not left:
            return


def _stops(topic: Topic, wanted: _Wanted) -> dict[int, int]:
    """The offset to stop at, for each partition that has something to read; fixed before reading begins."""
    start = "earliest" if wanted.start is None else wanted.start
    stop = "latest" if wanted.stop is None else wanted.stop
    if isinstance(stop, dict):  # partitions it does not name are read to their end
        stop = {number: end for number, _, end in topic.scan().ranges} | stop
    ranges = topic.scan(partition=wanted.partition, start=start, stop=stop).ranges
    if wanted.consumer is not None:
        return {number: stop for number, _, stop in ranges}
    return {number: stop for number, first, stop in ranges if first < stop}


def _commit(reader: Reader, batch: Batch, printed: list[Message]) -> None:
    if len(printed) == len(batch):
        reader.commit(batch)
        return
    for message in printed:
        reader.commit(message)


def _refuse_to_move(topic: Topic, consumer: str) -> None:
    if any(each.consumer == consumer for each in topic.consumers()):
        raise InvalidOption(
            f"consumer {consumer!r} has a position already, so --from has no meaning",
            hint=f"`penstock consumer seek {topic.name} {consumer} PLACE` moves it",
        )


def _chosen_format(format: Format | None, as_json: bool) -> Format:
    if as_json and format not in (None, Format.JSON):
        raise InvalidOption(f"--json and --format {format} contradict each other")
    return Format.JSON if as_json else format or Format.TEXT
