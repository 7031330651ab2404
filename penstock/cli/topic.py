"""`penstock topic create | list | show | alter | split | drop | copy`."""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

import typer

from penstock import Topic
from penstock.cli import facts, output
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
from penstock.errors import InvalidOption
from penstock.exchange.topic_copy import copy_topic
from penstock.options import FILES, Payloads, TopicOptions, topic_changes
from penstock.parse import one_of, size, topic_name

#: Those that were given on the command line, by name, as they were spelled.
Given = dict[str, Any]

#: Each option in the order of the help: its type, what stands for its value, and what it does.
_OPTIONS: dict[str, tuple[Any, str, str]] = {
    "partitions": (int, "N", "How many logs it is divided into, at least."),
    "retention": (str, "AGE", "Older messages go: 7d, 12h; none keeps them for ever."),
    "max_bytes": (str, "SIZE", "The oldest go beyond this size per partition; or none."),
    "sync": (str, "disk|os", "What acknowledged means; cannot be changed later."),
    "segment_bytes": (str, "SIZE", "How large the files become."),
    "segment_age": (str, "AGE", "How old a file becomes before the next."),
    "max_message_bytes": (str, "SIZE", "The largest value."),
    "partitioner": (str, "range|diskq|kafka", "How a key chooses its partition."),
    "codecs": (str, "NAMES", "Codecs writers may use: raw,zstd,10001; none allows all."),
    "compress": (str, "zstd|none", "Compress each batch as a whole."),
    "index": (str, "key|none", "Let messages be read by their key."),
    "key_retention": (
        list[str],
        "PATTERN=AGE",
        "Messages of these keys go sooner: 'progress.*=10m'; once for each pattern, all anew; or none.",
    ),
    "autopartitioning": (
        str,
        "disabled|up|paused",
        "Split partitions that are written to too fast; paused: by hand only.",
    ),
    "max_partitions": (int, "N", "No more active ones by splits that happen by themselves; 64."),
    "stabilization_window": (str, "AGE", "For so long a partition is written to too fast; 5m."),
    "up_utilization_percent": (int, "N", "Too fast is this share of its speed; 90."),
    "partition_write_speed": (str, "SIZE", "So many bytes a second a partition is meant for; 1MiB."),
    "partition_write_burst": (str, "SIZE", "So many bytes may come at once; none is one second's worth."),
    "write_quota": (str, "on|off", "Hold writers to that speed, all together."),
    "payloads": (str, "PLACE", "Where large values lie: files, s3://bucket/prefix; or none."),
    "payloads_above": (str, "SIZE", "Values above this size lie there; 64KiB."),
}
_SWITCHES = {name for name, (_, metavar, _) in _OPTIONS.items() if metavar == "on|off"}
#: Of these the word "none" is no limit, or no such thing.
_MAY_BE_NONE = (
    "retention", "max_bytes", "codecs", "compress", "index", "partition_write_burst", "payloads",
)  # fmt: skip


def with_topic_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each that a topic has, in the place of its parameter `options`."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        parameters += _parameters() if each.name == "options" else [each]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        spelled = {name: arguments.pop(name) for name in _OPTIONS}
        command(**arguments, options={name: value for name, value in spelled.items() if value is not None})

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameters() -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None,
            annotation=Annotated[
                kind | None, typer.Option(f"--{name.replace('_', '-')}", metavar=metavar, help=does)
            ],
        )
        for name, (kind, metavar, does) in _OPTIONS.items()
    ]  # fmt: skip


def chosen(given: Given, payloads: Payloads | None) -> dict[str, Any]:
    """The options for `create_topic` and `Topic.alter`, of a topic that has these payloads."""
    options = {name: value for name, value in given.items() if not name.startswith("payloads")}
    if "codecs" in options:
        options["codecs"] = options["codecs"].split(",")
    for name in options.keys() & _SWITCHES:
        one_of(f"--{name.replace('_', '-')}", options[name], ("on", "off"))
        options[name] = options[name] == "on"
    if "key_retention" in options:
        options["key_retention"] = _key_retention(options["key_retention"])
    place = _chosen_payloads(payloads, given.get("payloads"), given.get("payloads_above"))
    if place is not None:
        options["payloads"] = place
    return {
        name: None if name in _MAY_BE_NONE and value in ("none", ["none"]) else value
        for name, value in options.items()
    }


def _key_retention(given: list[str]) -> dict[str, str]:
    """Each is PATTERN=AGE; the one word "none" takes all of them away."""
    if given == ["none"]:
        return {}
    found = {}
    for each in given:
        pattern, equals, age = each.rpartition("=")
        if not equals:
            raise InvalidOption(f"--key-retention {each!r} has no '='", hint="write it like 'progress.*=10m'")
        found[pattern] = age
    return found


def _chosen_payloads(before: Payloads | None, place: str | None, above: str | None) -> Payloads | str | None:
    """What two options say of payloads; what they leave open stays as it was."""
    if place == "none":
        if above is not None:
            raise InvalidOption("--payloads-above needs a place", hint="--payloads files")
        return place
    if place is None and above is None:
        return None
    if place is None and before is None:
        raise InvalidOption("--payloads-above needs --payloads", hint="--payloads files")
    chosen = (
        before if before is not None and place in (None, before.place) else Payloads(place=place or FILES)
    )
    if above is not None:
        return replace(chosen, above=size("--payloads-above", above))
    return replace(chosen, above=Payloads.above) if chosen.above is None else chosen


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


@dataclass(frozen=True)
class SplitFacts:
    """What `split` did: the children, the lower range first."""

    topic: str
    partition: int
    children: list[PartitionFacts]


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


@app.callback()
def group(store: StoreOption = "") -> None:
    """Create, list, show, alter, split and drop topics."""


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
    with open_to_write(store, create=True, alone=True) as opened:
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
    if any(each.parents for each in details.partitions):
        output.put_text("")
        for line in facts.tree_lines(details.partitions):
            output.put_text(line)
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
    with open_to_write(store, alone=True) as opened:
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
def split(
    topic: TopicArgument,
    partition: Annotated[int, typer.Argument(help="The partition to split in two.")],
    at: Annotated[
        int | None, typer.Option("--at", metavar="HASH", help="The first hash of the upper half; the middle.")
    ] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Split a partition in two; it is only read from then on. Needs --autopartitioning up or paused."""
    with open_to_write(store, alone=True) as opened:
        found = opened.topic(topic)
        children = found.split(partition, at=at)
        rows = {each.partition: each for each in facts.partition_facts(found)}
    result = SplitFacts(topic, partition, [rows[number] for number in children])
    if as_json:
        output.put_json(result)
        return
    for each in result.children:
        output.put_text(f"partition {each.partition}: hashes {each.low} to {each.high - 1}")


@app.command()
def drop(
    topic: TopicArgument, yes: YesOption = False, store: StoreOption = "", as_json: JsonOption = False
) -> None:
    """Remove a topic with all its messages and positions, for good."""
    with open_to_write(store, alone=True) as opened:
        found = facts.topic_facts(opened.topic(topic))
        messages = "messages" if found.messages is None else output.counted(found.messages, "message")
        consumers = output.counted(found.consumers, "consumer")
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
    ("messages", lambda p: output.count(p.messages), True),
    ("bytes", lambda p: output.size(p.bytes), True),
    ("segments", lambda p: str(p.segments), True),
    ("oldest", lambda p: p.oldest or "-", False),
    ("newest", lambda p: p.newest or "-", False),
)


@app.command()
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
            with output.CountLine() as line:
                done = copy_topic(found, other, to_topic, consumers=consumers, progress=line.show)
    result = CopiedTopic(
        source, target, done.messages, done.before, done.partitions, round(time.monotonic() - began, 3),
        list(done.consumers),
    )  # fmt: skip
    if as_json:
        output.put_json(result)
        return
    before = output.were_there(done.before)
    output.put_text(
        f"{output.counted(done.messages, 'message')} copied to {target} in {result.seconds:g} s{before}"
    )
    if done.consumers:
        output.put_text(f"consumers: {', '.join(done.consumers)}")


def _details(topic: Topic) -> TopicDetails:
    return TopicDetails(facts.topic_facts(topic), facts.partition_facts(topic), facts.consumer_facts(topic))


def _put_options(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if name == "used_as" and value is None:
            continue
        output.put_text(f"  {name.removesuffix('_s'):<23} {_shown(name, value)}")


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if name == "codecs":
        return ", ".join(value) or "all"
    if name == "key_retention":
        return ", ".join(f"{pattern}={output.duration(age)}" for pattern, age in value) or "none"
    if name == "payloads":
        above = value["above"]
        return f"{value['place']}, {'no more' if above is None else f'above {output.size(above)}'}"
    if isinstance(value, bool):
        return "on" if value else "off"
    if name.endswith("_s"):
        return output.duration(value)
    if name.endswith(("_speed", "_burst")):
        return output.size(value) + ("/s" if name.endswith("_speed") else "")
    return output.size(value) if name.endswith("bytes") else str(value)


def _address(text: str) -> tuple[str, str]:
    store, slash, topic = text.rpartition("/")
    if not slash or not store or not topic:
        raise InvalidOption(f"{text!r} is not STORE/TOPIC", hint="such as ./penstock-data/orders")
    topic_name(topic)
    return os.path.expanduser(store), topic
