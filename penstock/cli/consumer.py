"""`penstock consumer list | show | seek | drop`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from penstock import Topic
from penstock.cli import facts, output, units
from penstock.cli.arguments import (
    PLACE_HELP,
    ConsumerArgument,
    JsonOption,
    StoreOption,
    TopicArgument,
    YesOption,
    flag,
    open_to_read,
    open_to_write,
    parse_place,
)
from penstock.cli.facts import ConsumerFacts, ConsumerPartition
from penstock.errors import OffsetTrimmed, UnknownConsumer
from penstock.options import Place, consumer_name

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True)
class Move:
    """A position before and after; `before` is null where there was none."""

    partition: int
    before: int | None
    after: int
    start: int
    end: int
    #: Messages it will get again (negative), or will not get at all (positive).
    skipped: int


@dataclass(frozen=True)
class Seek:
    """What a seek does, or would do."""

    topic: str
    consumer: str
    dry_run: bool
    partitions: list[Move]


@app.callback()
def group(store: StoreOption = "") -> None:
    """List, show, move and drop consumers."""


@app.command("list")
def list_consumers(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Only of this topic.", show_default=False)
    ] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """All consumers, and how far behind they are."""
    with open_to_read(store) as opened:
        topics = opened.topics() if topic is None else [opened.topic(topic)]
        found = [each for one in topics for each in facts.consumer_facts(one)]
    if as_json:
        output.put_json({"consumers": found})
    else:
        output.put_table("", found, facts.consumer_columns(), empty="no consumers yet")


@app.command()
def show(
    topic: TopicArgument, consumer: ConsumerArgument, store: StoreOption = "", as_json: JsonOption = False
) -> None:
    """One consumer: where it stands in each partition."""
    with open_to_read(store) as opened:
        found = _find(opened.topic(topic), consumer)
    if as_json:
        output.put_json(found)
        return
    title = f"{consumer} of {topic}: {units.count(found.lag)} behind, last commit {found.updated or '-'}"
    output.put_table(title + (", important" if found.important else ""), found.partitions, _POSITION_COLUMNS)


@app.command()
def seek(
    topic: TopicArgument,
    consumer: ConsumerArgument,
    place: Annotated[str, typer.Argument(metavar="PLACE", help=f"Where to go: {PLACE_HELP}.")],
    create: Annotated[bool, flag("--create", help="Make the consumer if it is not there.")] = False,
    dry_run: Annotated[bool, flag("--dry-run", help="Only show what would change.")] = False,
    yes: YesOption = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Move a consumer to another place; shows the change and asks first.

    Partitions that an offset by partition does not name stay where they are. A reader that is open
    under this name loses its place.
    """
    consumer_name(consumer)
    wanted = parse_place(place)
    with open_to_read(store) if dry_run else open_to_write(store) as opened:
        found = opened.topic(topic)
        plan = Seek(topic, consumer, dry_run, _moves(found, consumer, wanted, create))
        if not as_json:
            _put_moves(plan)
        if not dry_run:
            if as_json and not yes:
                _put_moves(plan, to_stderr=True)
            output.confirm(f"Move {consumer}?", yes=yes)
            found.seek_consumer(consumer, {move.partition: move.after for move in plan.partitions})
    if as_json:
        output.put_json(plan)
    elif not dry_run:
        output.put_text(f"{consumer} moved")


@app.command()
def drop(
    topic: TopicArgument,
    consumer: ConsumerArgument,
    yes: YesOption = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Forget a consumer and its positions."""
    with open_to_write(store) as opened:
        found = opened.topic(topic)
        lag = _find(found, consumer).lag
        output.confirm(f"Drop consumer {consumer} of {topic} ({units.count(lag)} behind)?", yes=yes)
        found.drop_consumer(consumer)
    if as_json:
        output.put_json({"topic": topic, "consumer": consumer, "dropped": True, "lag": lag})
    else:
        output.put_text(f"consumer {consumer} of {topic} dropped")


_POSITION_COLUMNS: tuple[output.Column[ConsumerPartition], ...] = (
    ("partition", lambda p: str(p.partition), True),
    ("position", lambda p: "-" if p.position is None else str(p.position), True),
    ("start", lambda p: str(p.start), True),
    ("end", lambda p: str(p.end), True),
    ("lag", lambda p: units.count(p.lag), True),
)
_MOVE_COLUMNS: tuple[output.Column[Move], ...] = (
    ("partition", lambda m: str(m.partition), True),
    ("from", lambda m: "-" if m.before is None else str(m.before), True),
    ("to", lambda m: str(m.after), True),
    ("", lambda m: _in_words(m), False),
)


def _find(topic: Topic, consumer: str) -> ConsumerFacts:
    for found in facts.consumer_facts(topic):
        if found.consumer == consumer:
            return found
    raise UnknownConsumer(f"no consumer {consumer!r} of {topic.name!r}")


def _moves(topic: Topic, consumer: str, place: Place, create: bool) -> list[Move]:
    """From where to where, partition by partition; refuses places that are not in the log."""
    try:
        before = {p.partition: p.position for p in _find(topic, consumer).partitions}
    except UnknownConsumer as error:
        if not create:
            raise UnknownConsumer(f"{error.args[0]}; --create makes it") from None
        before = {}
    if isinstance(place, dict):
        place = {**{number: at for number, at in before.items() if at is not None}, **place}
    bounds = {number: (start, end) for number, start, end in topic.scan().ranges}
    moves = []
    for number, after, _ in topic.scan(start=place).ranges:
        (start, end), old = bounds[number], before.get(number)
        if after < start and after != old:
            raise OffsetTrimmed(
                f"offset {after} of {topic.name!r} partition {number} is gone: the first one left is {start}",
                partition=number, offset=after, first=start,
            )  # fmt: skip
        moves.append(Move(number, old, after, start, end, after - max(start if old is None else old, start)))
    return moves


def _put_moves(plan: Seek, *, to_stderr: bool = False) -> None:
    title = f"{plan.consumer} of {plan.topic}"
    if to_stderr:
        output.say(title)
        for move in plan.partitions:
            output.say(f"  partition {move.partition}: {move.before} → {move.after}, {_in_words(move)}")
    else:
        output.put_table(title, plan.partitions, _MOVE_COLUMNS)


def _in_words(move: Move) -> str:
    if not move.skipped:
        return "stays"
    if move.skipped > 0:
        return f"skips {units.counted(move.skipped, 'message')}"
    return f"reads {units.counted(-move.skipped, 'message')} again"
