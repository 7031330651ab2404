"""`penstock dead list | show | replay | drop`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import indent
from typing import Annotated, Any

import typer

from penstock import DeadLetter, DeadLetters
from penstock.cli import formats, output
from penstock.cli.arguments import (
    JsonOption,
    StoreOption,
    TopicArgument,
    YesOption,
    flag,
    open_to_read,
    open_to_write,
)
from penstock.cli.options import grouped
from penstock.clock import Clock
from penstock.errors import InvalidOption
from penstock.exchange.message_json import json_record
from penstock.store.replay import parse_rate

app = typer.Typer(no_args_is_help=True)

_Consumer = Annotated[
    str | None, typer.Option("--consumer", "-c", metavar="CONSUMER", help="Only those of this consumer.")
]
_Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only those whose reason or error says so.")
]
_Numbers = Annotated[
    list[int] | None, typer.Argument(metavar="[NUMBER]...", help="Their numbers.", show_default=False)
]
_All = Annotated[bool, flag("--all", help="All of them, or all that --consumer and --reason leave.")]


@dataclass(frozen=True)
class LetterChoice:
    """Which dead letters are meant."""

    numbers: _Numbers = None
    everything: _All = False
    consumer: _Consumer = None
    reason: _Reason = None


@app.callback()
def group(store: StoreOption = "") -> None:
    """List, show, replay and drop messages that consumers could not handle."""


@app.command("list")
def list_letters(
    topic: TopicArgument,
    consumer: _Consumer = None,
    reason: _Reason = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="At most so many.")] = 100,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Dead letters of a topic, the oldest first."""
    with open_to_read(store) as opened:
        found = opened.dead_letters(topic).list(consumer=consumer, reason=reason, limit=limit)
    if as_json:
        output.put_json({"topic": topic, "letters": [_record(letter) for letter in found]})
        return
    output.put_table("", found, _COLUMNS, empty=f"{topic} has no dead letters")


@app.command()
def show(
    topic: TopicArgument,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="Its number, as `list` tells it.")],
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """One dead letter: the message, and what went wrong."""
    with open_to_read(store) as opened:
        letter = opened.dead_letters(topic).show(number)
    if as_json:
        output.put_json(_record(letter))
        return
    output.put(formats.as_text(letter.message))
    for name, value in (
        ("consumer", _whose(letter)), ("reason", letter.reason), ("attempts", str(letter.attempts)),
        ("first error", letter.first_error), ("last error", letter.last_error),
        ("since", output.iso(letter.died_at) or ""),
    ):  # fmt: skip
        output.put_text(f"  {name}: {value or '-'}")
    if letter.traceback:
        output.put_text(f"  traceback:\n{indent(letter.traceback, '    ')}")


@app.command()
@grouped
def replay(
    topic: TopicArgument,
    choice: LetterChoice,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="At most so many a second: 500/s.")
    ] = None,
    yes: YesOption = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Deliver dead letters again to the consumer that rejected them, at once, with new attempts."""
    per_second = None if rate is None else parse_rate(rate)
    _settle(
        topic, choice, "replay", "replayed", store, yes=yes, as_json=as_json,
        act=lambda letters, chosen: letters.replay(chosen, rate=per_second),
    )  # fmt: skip


@app.command()
@grouped
def drop(
    topic: TopicArgument,
    choice: LetterChoice,
    yes: YesOption = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Forget dead letters."""
    _settle(
        topic, choice, "drop", "dropped", store, yes=yes, as_json=as_json,
        act=lambda letters, chosen: letters.drop(chosen),
    )  # fmt: skip


def _settle(
    topic: str, choice: LetterChoice, verb: str, done: str, store: str, *, yes: bool, as_json: bool,
    act: Callable[[DeadLetters, list[int]], int],
) -> None:  # fmt: skip
    """Choose letters, ask, then act on just those, also when more come meanwhile."""
    if bool(choice.numbers) == (
        choice.everything or choice.consumer is not None or choice.reason is not None
    ):
        raise InvalidOption(
            f"which dead letters of {topic}?", hint="give numbers, or --all, --consumer, --reason"
        )
    with open_to_write(store) as opened:
        letters = opened.dead_letters(topic)
        chosen = choice.numbers or [
            each.number for each in letters.list(consumer=choice.consumer, reason=choice.reason, limit=_ALL)
        ]
        if chosen:
            asked = f"{verb.capitalize()} {output.counted(len(chosen), 'dead letter')} of {topic}?"
            output.confirm(asked, yes=yes)
        count = act(letters, chosen) if chosen else 0
    if as_json:
        output.put_json({"topic": topic, done: count})
    else:
        output.put_text(f"{output.counted(count, 'dead letter')} of {topic} {done}")


_ALL = 2**31


def _whose(letter: DeadLetter) -> str:
    return letter.consumer if letter.session is None else f"session {letter.session[:8]}"


def _record(letter: DeadLetter) -> dict[str, Any]:
    """A letter as JSON."""
    return {
        "number": letter.number,
        "consumer": letter.consumer or None,
        "session": letter.session,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "first_error": letter.first_error,
        "last_error": letter.last_error,
        "traceback": letter.traceback or None,
        "died_at": output.iso(letter.died_at),
        "died_at_ns": letter.died_at,
        "message": json_record(letter.message),
    }


_COLUMNS: tuple[output.Column[DeadLetter], ...] = (
    ("number", lambda each: str(each.number), True),
    ("age", lambda each: output.age(each.died_at, Clock.now_ns()), True),
    ("consumer", lambda each: _whose(each), False),
    ("place", lambda each: f"{each.message.partition}:{each.message.offset}", False),
    ("attempts", lambda each: str(each.attempts), True),
    ("reason", lambda each: each.reason, False),
    ("last error", lambda each: each.last_error, False),
)
