"""Where a topic came from: a small file in its folder, so that an import can go on and an export agrees.

`topics/<name>/origin.json` is there before the topic is, and is marked whole behind the last message.
A topic whose origin is not whole is an import, or a copy, that was cut short.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.errors import AlreadyExists, ConflictError, DataError
from penstock.files import Files
from penstock.files import replace as put_in_place
from penstock.locks import Claimed, claim
from penstock.store.store import Store
from penstock.store.topic import Topic
from penstock.topic.open_topic import OpenTopic

ORIGIN = "origin.json"
_LOCK = "origin.lock"
_VERSION = 1


@dataclass(frozen=True)
class Origin:
    """What a topic was made from."""

    #: "diskq" or "topic".
    kind: str
    #: The folder, or STORE/TOPIC, as an absolute path.
    source: str
    whole: bool = False
    #: What else its kind keeps: for diskq, the settings and the bounds of segments.
    facts: dict[str, Any] = field(default_factory=dict)


def read_origin(topic: OpenTopic) -> Origin | None:
    """The topic's origin; None for one that was made here."""
    path = os.path.join(topic.folder, ORIGIN)
    try:
        with open(path, "rb") as file:
            record = json.loads(file.read())
        if record.pop("version") != _VERSION:
            raise DataError(f"{path} was written by a newer Penstock", hint="upgrade")
        return Origin(**record)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path} is damaged: {error}", hint="remove it: the topic stays, and is as if it were made here"
        ) from error


def topic_to_fill(store: Store, name: str, origin: Origin, options: dict[str, Any]) -> Topic:
    """A new topic of that origin, or the one that an earlier run was filling from the same source.

    Its origin is there before the topic is, so wherever a run is killed the next one knows it again.
    Raises `AlreadyExists` for any other topic of that name.
    """
    try:
        return store.create_topic_holding({ORIGIN: _record(origin)}, name, options)
    except AlreadyExists:
        made = store.topic(name)
        _refuse_unless_cut_short(made.open_topic, origin.kind, origin.source)
        return made


def write_origin(topic: OpenTopic, origin: Origin) -> None:
    """Put the origin into the topic's folder, durably."""
    replace_file(topic.files, os.path.join(topic.folder, ORIGIN), _record(origin))


def mark_whole(topic: OpenTopic, origin: Origin) -> None:
    """Note that all messages have come in."""
    write_origin(topic, replace(origin, whole=True))


@contextmanager
def sole_importer(topic: OpenTopic) -> Iterator[None]:
    """Be the only process that imports into a topic; raise `ConflictError` while another one does."""
    try:
        fd = claim(os.path.join(topic.folder, _LOCK))
    except Claimed as error:
        raise ConflictError(
            f"topic {topic.name!r} is being imported by another process{error}",
            hint="wait until that process is done",
        ) from None
    try:
        yield
    finally:
        os.close(fd)


def _refuse_unless_cut_short(topic: OpenTopic, kind: str, source: str) -> None:
    origin = read_origin(topic)
    if origin is None or origin.whole or origin.kind != kind:
        raise AlreadyExists(
            f"topic {topic.name!r} is there already", hint="choose another name, or drop the topic first"
        )
    if origin.source != source:
        raise AlreadyExists(
            f"topic {topic.name!r} is there already: an import of {origin.source} that was cut short",
            hint="import that one again to go on, or drop the topic first",
        )


def _record(origin: Origin) -> bytes:
    return json.dumps({"version": _VERSION, **asdict(origin)}, indent=1).encode()


def replace_file(files: Files, path: str, data: bytes) -> None:
    """Put a small file in place: readers, and a crash, leave the old one or the new one."""
    put_in_place(files, path, data)
    files.sync_dir(os.path.dirname(path))
