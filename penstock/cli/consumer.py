"""`penstock consumer list | show | add | alter | seek | kick | drop`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from penstock import Topic
from penstock.cli import facts, output
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
from penstock.cli.facts import ConsumerFacts, ConsumerPartition, MemberFacts
from penstock.cli.options import grouped
from penstock.errors import AlreadyExists, InvalidOption, OffsetTrimmed, UnknownConsumer
from penstock.parse import consumer_name
from penstock.place import Place

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True)
class PositionMove:
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
    partitions: list[PositionMove]


@dataclass(frozen=True)
class ConsumerOptionFacts:
    """What a consumer asks of its topic."""

    important: bool
    availability_period_s: float | None
    read_from: str | None
    read_from_ns: int | None
    read_speed: int | None
    read_burst: int | None


@dataclass(frozen=True)
class OptionsChange:
    """What `add` and `alter` did: options before (null when it was added) and after."""

    topic: str
    consumer: str
    created: bool
    before: ConsumerOptionFacts | None
    after: ConsumerOptionFacts


_Important = Annotated[
    bool | None,
    flag("--important/--not-important", help="Keep what it has not committed, however full the disk gets."),
]
_AvailabilityPeriod = Annotated[
    str | None,
    typer.Option(
        "--availability-period",
        metavar="AGE",
        help="Keep what it has not committed for so long: 7d; or none.",
    ),
]
_ReadFrom = Annotated[
    str | None,
    typer.Option(
        "--read-from", metavar="TIME", help="Pass over what was written before: 2h, an ISO time; or none."
    ),
]
_ReadSpeed = Annotated[
    str | None,
    typer.Option("--read-speed", metavar="SIZE", help="Its readers get so much a second: 1MiB; or none."),
]
_ReadBurst = Annotated[
    str | None,
    typer.Option("--read-burst", metavar="SIZE", help="And so much at once; none is one second's worth."),
]


@dataclass(frozen=True)
class AskedOptions:
    """What a consumer asks of its topic, as it was typed."""

    important: _Important = None
    availability_period: _AvailabilityPeriod = None
    read_from: _ReadFrom = None
    read_speed: _ReadSpeed = None
    read_burst: _ReadBurst = None

    def changes(self) -> dict[str, Any]:
        """Return what was given, as the library takes it; "none" takes a limit away."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: None if value == "none" else value for name, value in given.items()}


@app.callback()
def group(store: StoreOption = "") -> None:
    """List, show, add, alter, move, kick and drop consumers."""


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
    title = f"{consumer} of {topic}: {output.count(found.lag)} behind, last commit {found.updated or '-'}"
    output.put_table(title + (", important" if found.important else ""), found.partitions, _POSITION_COLUMNS)
    if found.members:
        output.put_text("")
        output.put_table("", found.members, _MEMBER_COLUMNS)


@app.command()
@grouped
def add(
    topic: TopicArgument,
    consumer: ConsumerArgument,
    asked: AskedOptions,
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help=f"Where it begins: {PLACE_HELP}.")
    ] = "earliest",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Declare a consumer before its first reader."""
    changes = asked.changes()
    with open_to_write(store) as opened:
        try:
            opened.topic(topic).add_consumer(consumer, start=parse_place(start), **changes)
        except AlreadyExists as error:
            raise InvalidOption(error.args[0], hint="`penstock consumer alter` changes it") from None
        after = _options(_find(opened.topic(topic), consumer))
    _put_change(OptionsChange(topic, consumer, True, None, after), as_json)


@app.command()
@grouped
def alter(
    topic: TopicArgument,
    consumer: ConsumerArgument,
    asked: AskedOptions,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Change what a consumer asks of its topic."""
    changes = asked.changes()
    if not changes:
        raise InvalidOption("nothing to alter", hint="name an option, such as --important")
    with open_to_write(store) as opened:
        found = opened.topic(topic)
        before = _options(_find(found, consumer))
        found.alter_consumer(consumer, **changes)
        after = _options(_find(found, consumer))
    _put_change(OptionsChange(topic, consumer, False, before, after), as_json)


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
def kick(
    topic: TopicArgument,
    consumer: ConsumerArgument,
    pid: Annotated[
        int | None, typer.Argument(metavar="[PID]", help="Only this process.", show_default=False)
    ] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Take their partitions from processes that read for a consumer, so that others go on.

    For one that is stopped or stuck. When it wakes it cannot commit what it had, and joins again.
    """
    with open_to_write(store) as opened:
        kicked = opened.topic(topic).kick_consumer(consumer, pid)
    if pid is not None and not kicked:
        raise InvalidOption(
            f"process {pid} does not read for {consumer!r}", hint=f"penstock consumer show {topic} {consumer}"
        )
    if as_json:
        output.put_json({"topic": topic, "consumer": consumer, "kicked": kicked})
    else:
        who = f"kicked process {', '.join(map(str, kicked))}" if kicked else "nobody reads for it now"
        output.put_text(f"{consumer} of {topic}: {who}")


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
        output.confirm(f"Drop consumer {consumer} of {topic} ({output.count(lag)} behind)?", yes=yes)
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
    ("lag", lambda p: output.count(p.lag), True),
    ("read by", lambda p: "" if p.pid is None else str(p.pid), True),
)
_MEMBER_COLUMNS: tuple[output.Column[MemberFacts], ...] = (
    ("pid", lambda m: "?" if m.pid is None else str(m.pid), True),
    ("host", lambda m: m.host, False),
    ("joined", lambda m: m.joined or "-", False),
    ("partitions", lambda m: ",".join(map(str, m.partitions)) or "-", False),
    ("state", lambda m: _state(m), False),
)
_MOVE_COLUMNS: tuple[output.Column[PositionMove], ...] = (
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


def _state(member: MemberFacts) -> str:
    said = {"stopped": member.stopped, "kicked": member.kicked, "chose its partitions": member.fixed}
    return ", ".join(word for word, holds in said.items() if holds)


def _options(found: ConsumerFacts) -> ConsumerOptionFacts:
    return ConsumerOptionFacts(
        found.important, found.availability_period_s, found.read_from, found.read_from_ns,
        found.read_speed, found.read_burst,
    )  # fmt: skip


def _put_change(change: OptionsChange, as_json: bool) -> None:
    if as_json:
        output.put_json(change)
        return
    if change.created:
        output.put_text(f"consumer {change.consumer} of {change.topic} added")
    for name, show_option in _SPOKEN.items():
        before = None if change.before is None else show_option(change.before)
        after = show_option(change.after)
        if before is None:
            output.put_text(f"  {name:<20} {after}")
        elif before != after:
            output.put_text(f"{name}: {before} → {after}")
    if change.before == change.after:
        output.put_text("nothing changed")


_SPOKEN: dict[str, Callable[[ConsumerOptionFacts], str]] = {
    "important": lambda o: "yes" if o.important else "no",
    "availability_period": lambda o: output.duration(o.availability_period_s, none="none"),
    "read_from": lambda o: o.read_from or "none",
    "read_speed": lambda o: "none" if o.read_speed is None else f"{output.size(o.read_speed)}/s",
    "read_burst": lambda o: "none" if o.read_burst is None else output.size(o.read_burst),
}


def _moves(topic: Topic, consumer: str, place: Place, create: bool) -> list[PositionMove]:
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
        moves.append(
            PositionMove(number, old, after, start, end, after - max(start if old is None else old, start))
        )
    return moves


def _put_moves(plan: Seek, *, to_stderr: bool = False) -> None:
    title = f"{plan.consumer} of {plan.topic}"
    if to_stderr:
        output.say(title)
        for move in plan.partitions:
            output.say(f"  partition {move.partition}: {move.before} → {move.after}, {_in_words(move)}")
    else:
        output.put_table(title, plan.partitions, _MOVE_COLUMNS)


def _in_words(move: PositionMove) -> str:
    if not move.skipped:
        return "stays"
    if move.skipped > 0:
        return f"skips {output.counted(move.skipped, 'message')}"
    return f"reads {output.counted(-move.skipped, 'message')} again"
