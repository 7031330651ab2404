"""Opening a subject stream: in a topic, which is made at first use, or in another engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from penstock.errors import InvalidOption, UnknownTopic
from penstock.options import FILES, payloads
from penstock.payloads.open import open_bodies
from penstock.payloads.store import BodyStore
from penstock.state.streams import Streams
from penstock.store.topic import Topic
from penstock.streams.engine import StreamEngine
from penstock.streams.stream import Stream
from penstock.streams.topic_engine import TopicStreamEngine

#: What a stream is kept in: a total order, found by key, for a week; large bodies beside the log.
OPTIONS = {"index": "key", "retention": "7d", "payloads": "files"}


class StreamEngineOpener(Protocol):
    """Where streams can be kept besides the store: `penstock.Tarantool`."""

    def open(self, name: str, bodies: BodyStore) -> StreamEngine:
        """The engine of one stream, whose bodies are in `bodies`."""


def open_stream(
    name: str, options: dict[str, Any], find: Callable[[str], Topic], create: Callable[..., Topic] | None,
    streams: Streams, bodies: str | os.PathLike[str] | None,
) -> Stream:  # fmt: skip
    """The stream in a topic; `create` makes it when there is none, and compares options that are given.

    Without `create`, in a store that may only be read, there must be one.
    """
    place = None if bodies is None else open_bodies(bodies, exact=True)  # before anything is made
    try:
        topic = find(name)
    except UnknownTopic:
        if create is None:
            raise
        topic = create(name, exists_ok=True, **{**OPTIONS, **options})
    else:
        if options and create is not None:
            topic = create(name, exists_ok=True, **options)
    if topic.options.partitions != 1 or topic.options.index != "key":
        raise InvalidOption(
            f"topic {name!r} cannot hold a stream: it needs one partition and an index of its keys",
            hint='alter(index="key") gives it one; partitions cannot be taken away',
        )
    if create is not None:
        topic.open_topic.growth.keep_one("a stream")
    return Stream(TopicStreamEngine(topic, streams, place))


def open_elsewhere(
    name: str, engine: StreamEngineOpener, options: dict[str, Any], bodies: str | os.PathLike[str] | None,
    folder: str,
) -> Stream:  # fmt: skip
    """The stream in another engine; its bodies lie in the store's folder unless a place is named.

    There all bodies lie in one place, so `payloads` and `bodies` are the same.
    """
    chosen = payloads(options.pop("payloads", None))
    if options:
        raise InvalidOption(
            f"{', '.join(sorted(options))}: options of a topic, which a stream in {engine!r} is not",
            hint="payloads= is the one that it takes",
        )
    if bodies is not None:
        place = open_bodies(bodies, exact=True)
    elif chosen is None or chosen.place == FILES:
        place = open_bodies(os.path.join(folder, "payloads", "streams", name), exact=True)
    else:
        place = open_bodies(chosen.place, options=dict(chosen.options), exact=True)
    return Stream(engine.open(name, place))
