"""`penstock events`: push an event, and listen to keys; in a store's folder or at a server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, StoreOption, open_to_write
from penstock.client.events import Events as RemoteEvents
from penstock.errors import InvalidOption, OutOfRange
from penstock.events.event import Event, Pushed
from penstock.events.events import Events
from penstock.keys import Prefix, spoken_key, spoken_prefix

app = typer.Typer(no_args_is_help=True)

TopicOption = Annotated[
    str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic they are in; made at first use.")
]
UrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="A server's address, instead of a store.")
]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar="PENSTOCK_TOKEN", metavar="TOKEN", help="What the server asks for."),
]


@app.callback()
def group(store: StoreOption = "") -> None:
    """Push live events, and listen to them."""


@app.command()
def push(
    key: Annotated[str, typer.Argument(metavar="KEY", help='A text, or an array: ["chat",345].')],
    data: Annotated[str, typer.Argument(metavar="[DATA]", help="JSON; else it is a text.")] = "null",
    topic: TopicOption = "events",
    url: UrlOption = None,
    token: TokenOption = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Push an event. When this returns it is on disk, and the listeners of its key are told."""
    value = _data(data)
    if url is not None:
        pushed = RemoteEvents(url, token=token, topic=topic).push(spoken_key(key), value)
    else:
        with open_to_write(store, create=True) as opened:
            pushed = opened.events(topic).push(spoken_key(key), value)
    _tell(pushed, topic, as_json)


@app.command()
def listen(
    key: Annotated[list[str] | None, typer.Argument(metavar="[KEY]…", help="Keys to listen to.")] = None,
    prefix: Annotated[
        list[str] | None,
        typer.Option("--prefix", metavar="PREFIX", help="All keys that begin so; repeatable."),
    ] = None,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on from there; else from now.")
    ] = None,
    rewind: Annotated[
        int | None, typer.Option("--rewind", min=1, metavar="N", help="Begin with the last N events.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="End after N.")] = None,
    topic: TopicOption = "events",
    url: UrlOption = None,
    token: TokenOption = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Print events as they come, one a line, in JSON (with or without --json), until Ctrl-C.

    What is missing is told on stderr.
    """
    keys, prefixes = [spoken_key(each) for each in key or ()], [spoken_prefix(each) for each in prefix or ()]
    if not keys and not prefixes:
        raise InvalidOption("nothing to listen to", hint="name a KEY, or a --prefix")
    if url is not None:
        remote = RemoteEvents(url, token=token, topic=topic)
        with remote.subscribe(keys, cursor, prefixes=prefixes, rewind=rewind) as heard:
            _print(_told_of_gaps(heard), limit)
        return
    with open_to_write(store, create=True) as opened:
        _print(_heard(opened.events(topic), keys, prefixes, cursor, rewind), limit)


def _heard(
    events: Events, keys: list[bytes], prefixes: Sequence[Prefix], cursor: str | None, rewind: int | None
) -> Iterator[Event]:
    answer = events.subscribe(keys, cursor, prefixes=prefixes, rewind=rewind)
    while True:
        if answer.gap is not None:
            output.say(f"events are missing: {msgspec.json.encode(answer.gap).decode()}")
        yield from answer.events
        answer = events.subscribe(keys, answer.next, prefixes=prefixes)


def _told_of_gaps(heard: Iterator[Event]) -> Iterator[Event]:
    while True:
        try:
            yield next(heard)
        except OutOfRange as gap:
            output.say(str(gap.args[0]))


def _print(events: Iterator[Event], limit: int | None) -> None:
    for count, event in enumerate(events, 1):
        output.put_text(msgspec.json.encode(event).decode())
        if count == limit:
            return


def _data(text: str) -> object:
    """JSON if it is; else the text itself."""
    try:
        return msgspec.json.decode(os.fsencode(text))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return text


def _tell(pushed: Pushed, topic: str, as_json: bool) -> None:
    if as_json:
        output.put_json(pushed)
    else:
        output.put_text(f"{topic}: event {pushed.first}")
