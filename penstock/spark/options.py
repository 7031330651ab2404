"""The options of `spark.read.format("penstock")`, understood and checked.

Names and values are spelled as those of Spark's Kafka source, so that a query moves by changing format
and address:

    startingOffsets   earliest (default) · latest · {"orders": {"0": 12, "1": -2}}
    endingOffsets     latest (default) · earliest · {"orders": {"0": 40}}

Ranges are half-open. In JSON -2 is earliest and -1 latest; a partition left out begins at its beginning
and ends at its end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.errors import InvalidOption
from penstock.options import EARLIEST, LATEST, Spot, topic_name
from penstock.spark import schema

_NAMES = ("topic", "startingOffsets", "endingOffsets", "columns", "includeHeaders")
#: What Spark adds by itself.
_SPARKS = ("path",)
_JSON_SPOTS = {-2: EARLIEST, -1: LATEST}


@dataclass(frozen=True)
class Offsets:
    """Where to begin or end: one place for all partitions, and other places for some."""

    everywhere: Spot
    each: Mapping[int, Spot] = field(default_factory=dict)

    def of(self, partition: int) -> Spot:
        return self.each.get(partition, self.everywhere)


@dataclass(frozen=True)
class ReadOptions:
    """What a batch read asks for."""

    store: str
    topic: str
    starting: Offsets
    ending: Offsets
    columns: tuple[str, ...]
    #: `columns` or `includeHeaders` was given, so `.schema(…)` must not say otherwise.
    columns_given: bool


def parse(options: Mapping[str, str]) -> ReadOptions:
    """Understand the options of a batch read; raises `InvalidOption` that names the wrong one."""
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    if "topic" not in given:
        raise InvalidOption("which topic?", hint='.option("topic", "orders")')
    topic = topic_name(given["topic"])
    headers = _flag("includeHeaders", given.get("includeheaders", "false"))
    return ReadOptions(
        store=store_path(given.get("path", "")),
        topic=topic,
        starting=_offsets("startingOffsets", given.get("startingoffsets"), topic, EARLIEST),
        ending=_offsets("endingOffsets", given.get("endingoffsets"), topic, LATEST),
        columns=schema.chosen(given.get("columns"), include_headers=headers),
        columns_given="columns" in given or headers,
    )


def store_path(path: str) -> str:
    """The store's folder as an absolute path: executors may run in another folder."""
    if not path:
        raise InvalidOption("which store?", hint='.load("data") names its folder')
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
        if name not in known:
            raise InvalidOption(f"unknown option {name!r}", hint=f"options: {', '.join(_NAMES)}")


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise InvalidOption(f"{name}={value!r} is neither true nor false")
    return value.lower() == "true"


def _offsets(name: str, text: str | None, topic: str, default: Spot) -> Offsets:
    if text is None:
        return Offsets(default)
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if named is not None:
        return Offsets(named)
    return Offsets(default, _each(name, text, topic))


def _each(name: str, text: str, topic: str) -> dict[int, Spot]:
    """Offsets per partition, from JSON."""
    hint = f'write "earliest", "latest" or {{"{topic}": {{"0": 12}}}}'
    try:
        found = json.loads(text)
    except ValueError:
        raise InvalidOption(f"{name}={text!r} is not understood", hint=hint) from None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise InvalidOption(f"{name}={text!r} has the wrong shape", hint=hint)
    strangers = [other for other in found if other != topic]
    if strangers:
        raise InvalidOption(f"{name} names topic {strangers[0]!r}, but {topic!r} is read", hint=hint)
    return {
        _partition(name, number): _spot(name, number, offset)
        for number, offset in found.get(topic, {}).items()
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
