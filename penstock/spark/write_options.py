"""The options of `df.write.format("penstock")` and `df.writeStream`, understood and checked.

topic        where all rows go; wins over a column `topic`, as with Spark's Kafka sink
keyColumn    with rows that become JSON: the column that is the message's key as well
txnAppId     a name for the writer: what it wrote before is not written again
txnVersion   batch only: the number of this write among those of `txnAppId`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.errors import InvalidOption
from penstock.options import identifier, topic_name
from penstock.spark.options import store_path

_NAMES = ("topic", "keyColumn", "txnAppId", "txnVersion")
#: What Spark, or whoever calls it, passes on to every sink.
_SPARKS = ("path", "checkpointLocation", "queryName")
_VERSION_MAX = 2**63 - 1


class WriteOptions(NamedTuple):
    """What a write asks for."""

    store: str
    #: None: the column `topic` says it, row by row.
    topic: str | None
    key_column: str | None
    app: str | None
    version: int | None


def parse(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Understand the options of a write; raises `InvalidOption` that names the wrong one."""
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower() for name in (*_NAMES, *_SPARKS)}
    for name in given:
        if name not in known:
            raise InvalidOption(f"unknown option {name!r}", hint=f"options: {', '.join(_NAMES)}")
    if not given.get("path"):
        raise InvalidOption(
            "which store?", hint='.start("data") names its folder' if streaming else '.save("data") names it'
        )
    app = given.get("txnappid")
    return WriteOptions(
        store=store_path(given["path"]),
        topic=topic_name(given["topic"]) if "topic" in given else None,
        key_column=given.get("keycolumn"),
        app=None if app is None else identifier("txnAppId", app),
        version=_version(given.get("txnversion"), app, streaming=streaming),
    )


def _version(text: str | None, app: str | None, *, streaming: bool) -> int | None:
    if streaming:
        if text is not None:
            raise InvalidOption("txnVersion is for batch writes", hint="a stream counts its batches itself")
        return None
    if (text is None) != (app is None):
        raise InvalidOption("txnAppId and txnVersion belong together", hint="give both, or neither")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and int(text) <= _VERSION_MAX):
        raise InvalidOption(f"txnVersion={text!r} is not a whole number from 0 on")
    return int(text)
