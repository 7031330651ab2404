"""The options of `format("penstock")` for reading, understood and checked.

Names and values are spelled as those of Spark's Kafka source, so that a query moves by changing format
and address; what they mean is in docs/spark.md. Spark hands over all of them as text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

from penstock.errors import InvalidOption
from penstock.parse import TIME_MAX_NS, consumer_name, size, topic_name
from penstock.place import EARLIEST, LATEST, Spot
from penstock.spark.source import schema
from penstock.spark.source.filters import FilterBounds, from_text
from penstock.spark.source.kafka_options import hint_for

if TYPE_CHECKING:
    from penstock.lake.storage import Storage


_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_JSON_SPOTS = {-2: EARLIEST, -1: LATEST}
_NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class Places:
    """Where to begin or end: one place for all partitions, and other places for some topics or partitions."""

    everywhere: Spot
    each: Mapping[tuple[str, int], Spot] = field(default_factory=dict)
    topics: Mapping[str, Spot] = field(default_factory=dict)

    def of(self, topic: str, partition: int) -> Spot:
        """Return where to begin, or to end, in a partition."""
        return self.each.get((topic, partition), self.topics.get(topic, self.everywhere))


def parse_places(side: str, given: Mapping[str, str], topics: Sequence[str], default: Spot) -> Places:
    """Understand the options of one side, "starting" or "ending"; `topics` are those read by name."""
    names = [f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"]
    found = [name for name in names if name.lower() in given]
    if len(found) > 1:
        raise InvalidOption(f"{' and '.join(found)} are given", hint="one of them is enough")
    if not found:
        return Places(default)
    name, text = found[0], given[found[0].lower()]
    if name == names[1]:
        return Places(_moment(name, "", int(text) if text.isdecimal() and text.isascii() else text))
    if name == names[2]:
        return Places(default, _each(name, _by_topic(name, text, topics, ""), _moment))
    return _offsets(name, text, topics, default)


def _offsets(name: str, text: str, topics: Sequence[str], default: Spot) -> Places:
    """A word for everything, or JSON with a word or offsets for each topic."""
    named = _WORDS.get(text.strip().lower())
    if named is not None:
        return Places(named)
    found = _by_topic(name, text, topics, '"earliest", "latest" or ')
    words = {topic: _WORDS[each.lower()] for topic, each in found.items() if isinstance(each, str)}
    numbers = {topic: each for topic, each in found.items() if topic not in words}
    return Places(default, _each(name, numbers, _spot), words)


def _by_topic(name: str, text: str, topics: Sequence[str], words: str) -> dict[str, Any]:
    """What JSON says of each topic: places of its partitions or, where `words` are offered, one of them."""
    example = topics[0] if topics else "orders"
    hint = f'write {words}{{"{example}": {{"0": 12}}}}'
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        why = str(error) if isinstance(error, _SaidTwice) else "is not understood"
        raise InvalidOption(f"{name}={text!r} {why}", hint=hint) from None
    if not isinstance(found, dict) or not all(_has_shape(each, words) for each in found.values()):
        raise InvalidOption(f"{name}={text!r} has the wrong shape", hint=hint)
    strangers = [other for other in found if topics and other not in topics]
    if strangers:
        raise InvalidOption(
            f"{name} names topic {strangers[0]!r}, but {', '.join(map(repr, topics))} is read", hint=hint
        )
    return found


def _has_shape(each: Any, words: str) -> bool:
    return isinstance(each, dict) or (bool(words) and isinstance(each, str) and each.lower() in _WORDS)


class _SaidTwice(ValueError):
    """A name stands twice in one JSON object, of which JSON would take the last."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _SaidTwice(f"says {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


def _each(
    name: str, found: Mapping[str, Any], read: Callable[[str, str, Any], Spot]
) -> dict[tuple[str, int], Spot]:
    """A place for each partition."""
    return {
        (topic, _partition(name, number)): read(name, number, place)
        for topic, each in found.items()
        for number, place in each.items()
    }


def _partition(name: str, number: str) -> int:
    if not (number.isascii() and number.isdecimal()):
        raise InvalidOption(f"{name} names partition {number!r}", hint="partitions are numbers from 0 on")
    return int(number)


def _spot(name: str, number: str, offset: Any) -> Spot:
    if isinstance(offset, bool) or not isinstance(offset, int) or not -2 <= offset < 2**63:
        raise InvalidOption(
            f"{name} has {offset!r} for partition {number}", hint="an offset, -2 (earliest) or -1 (latest)"
        )
    return _JSON_SPOTS.get(offset) or Spot("offset", offset)


def _moment(name: str, number: str, time: Any) -> Spot:
    if isinstance(time, bool) or not isinstance(time, int) or not 0 <= time <= TIME_MAX_NS // _NS_PER_MS:
        where = f" for partition {number}" if number else ""
        raise InvalidOption(f"{name} has {time!r}{where}", hint="milliseconds since 1970, UTC")
    return Spot("time", time * _NS_PER_MS)


_NAMES = (
    "topic", "subscribe", "subscribePattern", "startingOffsets", "endingOffsets", "startingTimestamp",
    "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "maxOffsetsPerTrigger",
    "maxBytesPerTrigger", "minPartitions", "failOnDataLoss", "columns", "includeHeaders", "consumer",
    "important", "onDecodeError", "view", "history", "payload",
)  # fmt: skip
#: What Spark adds by itself, and what `penstock.spark.read` says to the source.
_SPARKS = ("path", "bounds", "cores")
#: Options that begin so are passed on to what opens the table: `history.AWS_REGION`.
_FOR_HISTORY = "history."
_CHOICES = ("topic", "subscribe", "subscribePattern")
_ONLY_STREAMS = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "consumer", "important")
_ONLY_BATCHES = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "view")
VIEWS = ("consumers", "segments", "waiting", "dead_letters", "payloads")


@dataclass(frozen=True)
class TopicChoice:
    """Which topics are read: some by name, or all that a pattern matches, also those made later."""

    names: tuple[str, ...] = ()
    pattern: str | None = None

    def among(self, there: Iterable[str]) -> tuple[str, ...]:
        """The chosen ones of those there are; names that were given are taken as they are."""
        if self.pattern is None:
            return self.names
        return tuple(sorted(name for name in there if re.fullmatch(self.pattern, name)))

    def __str__(self) -> str:
        return f"pattern {self.pattern!r}" if self.pattern is not None else ", ".join(self.names)


@dataclass(frozen=True)
class ReadOptions:
    """What a read asks for."""

    store: str
    topics: TopicChoice
    starting: Places
    ending: Places
    columns: tuple[str, ...]
    #: `columns` or `includeHeaders` was given, so `.schema(…)` must not say otherwise.
    columns_given: bool
    #: At least so many tasks, if there are as many messages; 0 leaves it to the amount of data.
    min_partitions: int
    #: How many tasks Spark runs at the same time; 0 when that is not known.
    cores: int
    #: Offsets that retention took before they were read are an error; else they are skipped.
    fail_on_data_loss: bool
    #: Most messages and bytes of a micro-batch; None is no limit.
    max_rows: int | None
    max_bytes: int | None
    #: The query's progress is kept under this name.
    consumer: str | None
    #: Retention waits for this consumer; None leaves it as it was declared.
    important: bool | None
    on_decode_error: Literal["fail", "null"]
    #: Which partitions, offsets and times are planned at all.
    bounds: FilterBounds
    #: Facts about the topics instead of their messages.
    view: str | None
    #: The archive in which messages lie that the log has no longer. Holds secrets, which its text does not.
    history: Storage | None
    #: A value that lies outside the log is fetched, or told by where it lies.
    payload: Literal["fetch", "reference"]
    #: Names of all options that were given, lower-case.
    given: frozenset[str]


def parse(options: Mapping[str, str]) -> ReadOptions:
    """Understand the options of a read; raises `InvalidOption` that names the wrong one."""
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    view = _view(given)
    topics = _topics(given, view)
    headers = _flag(given, "includeHeaders", default=False)
    consumer = given.get("consumer")
    columns = schema.chosen(given.get("columns"), include_headers=headers)
    return ReadOptions(
        store=store_path(given.get("path", "")),
        topics=topics,
        starting=parse_places("starting", given, topics.names, EARLIEST),
        ending=parse_places("ending", given, topics.names, LATEST),
        columns=columns,
        columns_given="columns" in given or headers,
        min_partitions=_count(given, "minPartitions") or 0,
        cores=_count(given, "cores") or 0,
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
        max_rows=_count(given, "maxOffsetsPerTrigger"),
        max_bytes=_bytes(given, "maxBytesPerTrigger"),
        consumer=None if consumer is None else consumer_name(consumer),
        important=_important(given),
        on_decode_error=_decode_error(given),
        bounds=_bounds(given),
        view=view,
        history=_history(given, topics),
        payload=_payload(given, columns),
        given=frozenset(given),
    )


def refuse_for_batch(asked: ReadOptions) -> None:
    """Raise when an option was given that means something for streams only."""
    _refuse(asked, _ONLY_STREAMS, "is for streams: spark.readStream")


def refuse_for_stream(asked: ReadOptions) -> None:
    """Raise when an option was given that means something for batch reads only."""
    _refuse(asked, _ONLY_BATCHES, "is for batch reads: spark.read")


def store_path(path: str) -> str:
    """The store's folder as an absolute path: executors may run in another folder."""
    if not path:
        hint = """.load("data") names its folder; of a table, OPTIONS (path 'data')"""
        raise InvalidOption("which store?", hint=hint)
    if path == ":memory:":
        raise InvalidOption("a store in memory cannot be read by Spark", hint="open it in a folder")
    address = urlsplit(path)
    if address.scheme == "file" and address.netloc in ("", "localhost"):
        path = unquote(address.path)
    elif "://" in path:
        raise InvalidOption(f"{path} is not a folder of this machine", hint="load(…) takes the store's path")
    return os.path.abspath(path)


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in (*_NAMES, *_SPARKS)}
    for name in given:
        if name not in known and not name.startswith(_FOR_HISTORY):
            raise InvalidOption(f"unknown option {name!r}", hint=hint_for(name, _NAMES))


def _refuse(asked: ReadOptions, names: Iterable[str], why: str) -> None:
    for name in names:
        if name.lower() in asked.given:
            raise InvalidOption(f"{name} {why}")


def _topics(given: Mapping[str, str], view: str | None) -> TopicChoice:
    chosen = [name for name in _CHOICES if name.lower() in given]
    if not chosen and view is not None:
        return TopicChoice(pattern=".*")
    if not chosen:
        raise InvalidOption("which topic?", hint='.option("topic", "orders")')
    if len(chosen) > 1:
        raise InvalidOption(f"{' and '.join(chosen)} are given", hint="topics are chosen by one of them")
    text = given[chosen[0].lower()]
    if chosen[0] == "topic":
        return TopicChoice((topic_name(text),))
    if chosen[0] == "subscribePattern":
        return TopicChoice(pattern=_pattern(text))
    names = tuple(topic_name(name.strip()) for name in text.split(","))
    if len(set(names)) < len(names):
        raise InvalidOption(f"subscribe={text!r} names a topic twice")
    return TopicChoice(names)


def _pattern(text: str) -> str:
    if not text:
        raise InvalidOption("subscribePattern is empty", hint='.option("subscribePattern", "orders-.*")')
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidOption(f"subscribePattern={text!r} is not a pattern: {error}") from None
    return text


def _view(given: Mapping[str, str]) -> str | None:
    view = given.get("view")
    if view is not None and view not in VIEWS:
        raise InvalidOption(f"view={view!r} is not known", hint=f"views: {', '.join(VIEWS)}")
    return view


def _history(given: Mapping[str, str], topics: TopicChoice) -> Storage | None:
    options = {
        name.removeprefix(_FOR_HISTORY): value
        for name, value in given.items()
        if name.startswith(_FOR_HISTORY)
    }
    if "history" not in given:
        if options:
            raise InvalidOption(
                f"{_FOR_HISTORY}{min(options)} without history", hint='.option("history", "s3://…")'
            )
        return None
    if "view" in given or len(topics.names) != 1:
        raise InvalidOption(
            "history is for reading one topic: a table is the archive of one",
            hint="read each topic with its own table, and put them together by union",
        )
    from penstock.lake.storage import storage

    return storage(given["history"], options)


def _important(given: Mapping[str, str]) -> bool | None:
    if "important" not in given:
        return None
    if "consumer" not in given:
        raise InvalidOption("important without a consumer", hint='.option("consumer", "billing") names it')
    return _flag(given, "important", default=False)


def _bounds(given: Mapping[str, str]) -> FilterBounds:
    try:
        return from_text(given["bounds"]) if "bounds" in given else FilterBounds()
    except ValueError as error:
        raise InvalidOption(str(error), hint="it is for penstock.spark.read: use where=") from None


def _decode_error(given: Mapping[str, str]) -> Literal["fail", "null"]:
    choice = given.get("ondecodeerror", "fail").lower()
    if choice not in ("fail", "null"):
        raise InvalidOption(f"onDecodeError={choice!r} is not known", hint="choices: fail, null")
    return "null" if choice == "null" else "fail"


def _payload(given: Mapping[str, str], columns: Sequence[str]) -> Literal["fetch", "reference"]:
    choice = given.get("payload", "fetch").lower()
    if choice not in ("fetch", "reference"):
        raise InvalidOption(f"payload={choice!r} is not known", hint="choices: fetch, reference")
    asked = (schema.REFERENCE,) if choice == "reference" else columns
    refuse_reference(asked, is_archived="history" in given)
    return "reference" if choice == "reference" else "fetch"


def refuse_reference(columns: Sequence[str], *, is_archived: bool) -> None:
    """Raise when the column `reference` is asked of an archive."""
    if is_archived and schema.REFERENCE in columns:
        raise InvalidOption(
            "an archive holds whole values, and does not know where they lay",
            hint="with history leave payload at fetch, and the column `reference` out",
        )


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = given.get(name.lower())
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise InvalidOption(f"{name}={value!r} is neither true nor false")
    return value.lower() == "true"


def _count(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name.lower())
    if value is None:
        return None
    if not (value.isascii() and value.isdecimal()) or not 0 < int(value) < 2**63:
        raise InvalidOption(f"{name}={value!r} is not a whole number above 0")
    return int(value)


def _bytes(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name.lower())
    if value is None:
        return None
    found = size(name, value)
    if found < 1:
        raise InvalidOption(f"{name}={value!r} lets nothing through")
    return found
