"""`penstock topic copy STORE/TOPIC STORE/TOPIC`."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, flag, open_to_read, open_to_write
from penstock.cli.exchange.progress import CountLine
from penstock.errors import InvalidOption
from penstock.exchange.topic_copy import copy_topic
from penstock.parse import topic_name


@dataclass(frozen=True)
class CopiedTopic:
    """What was copied."""

    source: str
    target: str
    messages: int
    #: Messages that a run before had brought over.
    before: int
    partitions: int
    seconds: float
    consumers: list[str] = field(default_factory=list)


def copy(
    source: Annotated[str, typer.Argument(metavar="STORE/TOPIC", help="What is copied.")],
    target: Annotated[str, typer.Argument(metavar="STORE/TOPIC", help="Where to; the topic must be new.")],
    consumers: Annotated[
        bool, flag("--consumers", help="Consumers stand in the copy where they stand in the source.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy a topic into another store, with its options and the offsets of its messages.

    A copy that was killed goes on where it was when it is started again.
    """
    (from_store, from_topic), (to_store, to_topic) = _address(source), _address(target)
    began = time.monotonic()
    with open_to_read(from_store) as opened:
        found = opened.topic(from_topic)
        with open_to_write(to_store, create=True) as other:
            with CountLine() as line:
                done = copy_topic(found, other, to_topic, consumers=consumers, progress=line.show)
    result = CopiedTopic(
        source, target, done.messages, done.before, done.partitions, round(time.monotonic() - began, 3),
        list(done.consumers),
    )  # fmt: skip
    if as_json:
        output.put_json(result)
        return
    before = f" ({output.counted(done.before, 'message')} were there)" if done.before else ""
    output.put_text(
        f"{output.counted(done.messages, 'message')} copied to {target} in {result.seconds:g} s{before}"
    )
    if done.consumers:
        output.put_text(f"consumers: {', '.join(done.consumers)}")


def _address(text: str) -> tuple[str, str]:
    store, slash, topic = text.rpartition("/")
    if not slash or not store or not topic:
        raise InvalidOption(f"{text!r} is not STORE/TOPIC", hint="such as ./penstock-data/orders")
    topic_name(topic)
    return os.path.expanduser(store), topic
