"""`penstock topic create | list | show | alter | drop`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
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
from penstock.errors import InvalidOption
from penstock.options import TopicOptions, size, topic_changes, topic_name
from penstock.payload_options import FILES, Payloads

app = typer.Typer(no_args_is_help=True)

_Partitions = Annotated[
    int | None, typer.Option("--partitions", metavar="N", help="How many logs it is divided into.")
]
_Retention = Annotated[
    str | None,
    typer.Option("--retention", metavar="AGE", help="Older messages go: 7d, 12h; none keeps them for ever."),
]
_MaxBytes = Annotated[
    str | None,
    typer.Option(
        "--max-bytes", metavar="SIZE", help="The oldest go beyond this size per partition; or none."
    ),
]
_Sync = Annotated[
    str | None,
    typer.Option("--sync", metavar="disk|os", help="What acknowledged means; cannot be changed later."),
]
_SegmentBytes = Annotated[
    str | None, typer.Option("--segment-bytes", metavar="SIZE", help="How large the files become.")
]
_SegmentAge = Annotated[
    str | None, typer.Option("--segment-age", metavar="AGE", help="How old a file becomes before the next.")
]
_MaxMessage = Annotated[
    str | None, typer.Option("--max-message-bytes", metavar="SIZE", help="The largest value.")
]
_Partitioner = Annotated[
    str | None,
    typer.Option("--partitioner", metavar="range|diskq|kafka", help="How a key chooses its partition."),
]
_Codecs = Annotated[
    str | None,
    typer.Option(
        "--codecs", metavar="NAMES", help="Codecs writers may use: raw,zstd,10001; none allows all."
    ),
]
_Compress = Annotated[
    str | None, typer.Option("--compress", metavar="zstd|none", help="Compress each batch as a whole.")
]

_Index = Annotated[
    str | None, typer.Option("--index", metavar="key|none", help="Let messages be read by their key.")
]
_KeyRetention = Annotated[
    list[str] | None,
    typer.Option(
        "--key-retention", metavar="PATTERN=AGE",
        help="Messages of these keys go sooner: 'progress.*=10m'; once for each pattern, all anew; or none.",
    ),
]  # fmt: skip
_Payloads = Annotated[
    str | None,
    typer.Option(
        "--payloads", metavar="PLACE", help="Where large values lie: files, s3://bucket/prefix; or none."
    ),
]
_PayloadsAbove = Annotated[
    str | None,
    typer.Option("--payloads-above", metavar="SIZE", help="Values above this size lie there; 64KiB."),
]


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
def create(
    topic: TopicArgument,
    partitions: _Partitions = None,
    retention: _Retention = None,
    max_bytes: _MaxBytes = None,
    sync: _Sync = None,
    segment_bytes: _SegmentBytes = None,
    segment_age: _SegmentAge = None,
    max_message_bytes: _MaxMessage = None,
    partitioner: _Partitioner = None,
    codecs: _Codecs = None,
    compress: _Compress = None,
    index: _Index = None,
    key_retention: _KeyRetention = None,
    payloads: _Payloads = None,
    payloads_above: _PayloadsAbove = None,
    exists_ok: Annotated[
        bool, flag("--exists-ok", help="Accept a topic that is there, unless these options differ.")
    ] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make a topic, and the store if it is not there."""
    options = _options(
        partitions=partitions, retention=retention, max_bytes=max_bytes, sync=sync,
        segment_bytes=segment_bytes, segment_age=segment_age, max_message_bytes=max_message_bytes,
        partitioner=partitioner, codecs=codecs and codecs.split(","), compress=compress, index=index,
        key_retention=key_retention and _lifetimes(key_retention),
        payloads=_chosen_payloads(None, payloads, payloads_above),
    )  # fmt: skip
    topic_name(topic)
    TopicOptions(**topic_changes(options))  # what is wrong fails before a store is made
    with open_to_write(store, create=True) as opened:
        is_new = topic not in [each.name for each in opened.topics()]
        made = opened.create_topic(topic, exists_ok=exists_ok, **options)
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
def alter(
    topic: TopicArgument,
    partitions: _Partitions = None,
    retention: _Retention = None,
    max_bytes: _MaxBytes = None,
    sync: _Sync = None,
    segment_bytes: _SegmentBytes = None,
    segment_age: _SegmentAge = None,
    max_message_bytes: _MaxMessage = None,
    partitioner: _Partitioner = None,
    codecs: _Codecs = None,
    compress: _Compress = None,
    index: _Index = None,
    key_retention: _KeyRetention = None,
    payloads: _Payloads = None,
    payloads_above: _PayloadsAbove = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Change a topic's options. Partitions can be added, not taken away."""
    options = _options(
        partitions=partitions, retention=retention, max_bytes=max_bytes, sync=sync,
        segment_bytes=segment_bytes, segment_age=segment_age, max_message_bytes=max_message_bytes,
        partitioner=partitioner, codecs=codecs and codecs.split(","), compress=compress, index=index,
        key_retention=key_retention and _lifetimes(key_retention),
    )  # fmt: skip
    if not options and payloads is None and payloads_above is None:
        raise InvalidOption("nothing to alter", hint="name an option, such as --retention 7d")
    with open_to_write(store) as opened:
        found = opened.topic(topic)
        options |= _options(payloads=_chosen_payloads(found.options.payloads, payloads, payloads_above))
        before = asdict(found.options)
        found.alter(**options)
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


def _options(**given: Any) -> dict[str, Any]:
    """The options that were given; "none" clears a limit."""
    limits = ("retention", "max_bytes", "codecs", "compress", "index", "payloads")
    return {
        name: None if name in limits and value in ("none", ["none"]) else value
        for name, value in given.items()
        if value is not None
    }


def _lifetimes(given: list[str]) -> dict[str, str]:
    """PATTERN=AGE, each; the one word "none" is no lifetimes."""
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
