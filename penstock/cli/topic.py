"""`penstock topic create | list | show | alter | drop`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from penstock import Topic
from penstock.cli import facts, output, units
from penstock.cli.arguments import (
    JsonOption,
    StoreOption,
    TopicArgument,
    YesOption,
    flag,
    open_to_read,
    open_to_write,
)
from penstock.cli.facts import ConsumerFacts, PartitionFacts, TopicFacts
from penstock.cli.topicoptions import Given, chosen, with_topic_options
from penstock.errors import InvalidOption
from penstock.options import TopicOptions, topic_changes, topic_name

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True)
class TopicDetails:
    """Everything about one topic."""

    topic: TopicFacts
    partitions: list[PartitionFacts]
    consumers: list[ConsumerFacts]


@dataclass(frozen=True)
class TopicChange:
    """What `create` and `alter` did: options before (null when it was created) and after."""

    topic: str
    created: bool
    before: dict[str, Any] | None
    after: dict[str, Any]


@app.callback()
def group(store: StoreOption = "") -> None:
    """Create, list, show, alter and drop topics."""


@app.command()
@with_topic_options
def create(
    topic: TopicArgument,
    options: Given,
    exists_ok: Annotated[
        bool, flag("--exists-ok", help="Accept a topic that is there, unless these options differ.")
    ] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make a topic, and the store if it is not there."""
    wanted = chosen(options, None)
    topic_name(topic)
    TopicOptions(**topic_changes(wanted))  # what is wrong fails before a store is made
    with open_to_write(store, create=True) as opened:
        is_new = topic not in [each.name for each in opened.topics()]
        made = opened.create_topic(topic, exists_ok=exists_ok, **wanted)
        result = TopicChange(topic, is_new, None, asdict(made.options))
    if as_json:
        output.put_json(result)
    else:
        output.put_text(f"topic {topic} {'created' if is_new else 'is there already'}")
        _put_options(result.after)


@app.command("list")
def list_topics(store: StoreOption = "", as_json: JsonOption = False) -> None:
    """All topics, with their sizes and ages."""
    with open_to_read(store) as opened:
        found = [facts.topic_facts(topic) for topic in opened.topics()]
    if as_json:
        output.put_json({"topics": found})
        return
    output.put_table("", found, facts.topic_columns(), empty="no topics yet")
    for each in found:
        if each.problem:
            output.say(f"warning: {each.topic}: {each.problem}")


@app.command()
def show(topic: TopicArgument, store: StoreOption = "", as_json: JsonOption = False) -> None:
    """One topic: its options, partitions and consumers."""
    with open_to_read(store) as opened:
        details = _details(opened.topic(topic))
    if as_json:
        output.put_json(details)
        return
    output.put_text(f"topic {topic}")
    _put_options(details.topic.options)
    output.put_text("")
    output.put_table("", details.partitions, _PARTITION_COLUMNS)
    if details.consumers:
        output.put_text("")
        output.put_table("", details.consumers, facts.consumer_columns())


@app.command()
@with_topic_options
def alter(
    topic: TopicArgument,
    options: Given,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Change a topic's options. Partitions can be added, not taken away."""
    if not options:
        raise InvalidOption("nothing to alter", hint="name an option, such as --retention 7d")
    with open_to_write(store) as opened:
        found = opened.topic(topic)
        before = asdict(found.options)
        found.alter(**chosen(options, found.options.payloads))
        result = TopicChange(topic, False, before, asdict(found.options))
    if as_json:
        output.put_json(result)
        return
    changes = {name: value for name, value in result.after.items() if value != before[name]}
    for name in changes:
        spoken, old, new = name.removesuffix("_s"), before[name], result.after[name]
        output.put_text(f"{spoken}: {_shown(name, old)} → {_shown(name, new)}")
    if not changes:
        output.put_text("nothing changed: it was so already")


@app.command()
def drop(
    topic: TopicArgument, yes: YesOption = False, store: StoreOption = "", as_json: JsonOption = False
) -> None:
    """Remove a topic with all its messages and positions, for good."""
    with open_to_write(store) as opened:
        found = facts.topic_facts(opened.topic(topic))
        messages = "messages" if found.messages is None else units.counted(found.messages, "message")
        consumers = units.counted(found.consumers, "consumer")
        output.confirm(f"Drop {topic} with {messages} and {consumers}, for good?", yes=yes)
        opened.drop_topic(topic)
    if as_json:
        output.put_json({"topic": topic, "dropped": True, "messages": found.messages})
    else:
        output.put_text(f"topic {topic} dropped")


_PARTITION_COLUMNS: tuple[output.Column[PartitionFacts], ...] = (
    ("partition", lambda p: str(p.partition), True),
    ("start", lambda p: str(p.start), True),
    ("end", lambda p: str(p.end), True),
    ("messages", lambda p: units.count(p.messages), True),
    ("bytes", lambda p: units.size(p.bytes), True),
    ("segments", lambda p: str(p.segments), True),
    ("oldest", lambda p: p.oldest or "-", False),
    ("newest", lambda p: p.newest or "-", False),
)


def _details(topic: Topic) -> TopicDetails:
    return TopicDetails(
        facts.topic_facts(topic), facts.partition_facts(topic.stats()), facts.consumer_facts(topic)
    )


def _put_options(options: dict[str, Any]) -> None:
    for name, value in options.items():
        output.put_text(f"  {name.removesuffix('_s'):<18} {_shown(name, value)}")


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if name == "codecs":
        return ", ".join(value) or "all"
    if name == "key_retention":
        return ", ".join(f"{pattern}={units.duration(age)}" for pattern, age in value) or "none"
    if name == "payloads":
        above = value["above"]
        return f"{value['place']}, {'no more' if above is None else f'above {units.size(above)}'}"
    if name.endswith("_s"):
        return units.duration(value)
    return units.size(value) if name.endswith("bytes") else str(value)
