"""Facts about topics as Spark tables: `option("view", …)`, one of `penstock.spark.source.options.VIEWS`.

Most views have few rows, which come from `state.db`; only the driver may open that, so it collects them all.
The view `payloads` has as many rows as there are bodies: tasks list those (`listings`, `listed`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from penstock.consume.dead_letters import DeadLetters
from penstock.consume.waiting_view import waiting_messages
from penstock.log.segment import read_head
from penstock.options import BodyLocation
from penstock.parse import utc
from penstock.payloads.names import path_of
from penstock.spark.source.body_places import BodyPlaces, places_of
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.survey import chosen_topics, opened, segments
from penstock.store import Store
from penstock.topic.open_topic import OpenTopic

#: How several bodies in one object are named.
_PACK = re.compile(r"\d{4}-\d\d-\d\d/[0-9a-f]{32}/pack")


class Listing(NamedTuple):
    """What one task lists."""

    topic: str
    places: BodyPlaces
    place: BodyLocation
    share: str


def listings(options: ReadOptions) -> list[Listing]:
    """All that is to be listed of the chosen topics, as it is now."""
    with opened(options) as store:
        found = {name: places_of(topic) for name, topic in chosen_topics(store, options).items()}
    return [
        Listing(name, places, place, share)
        for name, places in found.items()
        if places is not None
        for place in places.places
        for share in places.open(place).shares()
    ]


def listed(work: Listing) -> Iterator[tuple[Any, ...]]:
    """The rows of one share."""
    address = work.places.address(work.place)
    for found in work.places.open(work.place).list_share(work.share):
        yield (
            work.topic, work.place.address, found.name, f"{address}/{path_of(found.name)}", found.size,
            utc(found.modified_ns), is_pack(found.name),
        )  # fmt: skip


def is_pack(name: str) -> bool:
    """Whether a body of that name is several, of messages that were written together."""
    return _PACK.fullmatch(name) is not None


_DDL = {
    "consumers": (
        "topic string, consumer string, partition int, position bigint, end bigint, lag bigint, "
        "important boolean, updated timestamp, subject string"
    ),
    "segments": (
        "topic string, partition int, first bigint, stop bigint, bytes bigint, sealed boolean, "
        "repacked boolean, created timestamp"
    ),
    "waiting": (
        "topic string, consumer string, partition int, offset bigint, attempts int, due timestamp, "
        "key binary, last_error string"
    ),
    "dead_letters": (
        "topic string, number bigint, consumer string, partition int, offset bigint, reason string, "
        "attempts int, first_error string, last_error string, died_at timestamp, key binary, value binary"
    ),
    "payloads": (
        "topic string, place string, name string, path string, size bigint, modified timestamp, pack boolean"
    ),
}
_ALL = 2**31

Row = tuple[Any, ...]


def view_ddl(view: str) -> str:
    """The columns of a view as Spark's DDL."""
    return _DDL[view]


def view_rows(options: ReadOptions) -> list[Row]:
    """All rows of a view, as they are now."""
    assert options.view is not None
    with opened(options) as store:
        collect: Callable[[OpenTopic], Iterator[Row]] = {
            "consumers": lambda topic: chain(_consumers(topic), _durables(store, topic)),
            "segments": _segments, "waiting": _waiting,
            "dead_letters": lambda topic: _dead_letters(store.dead_letters(topic.name)),
        }[options.view]  # fmt: skip
        return [row for each in chosen_topics(store, options).values() for row in collect(each)]


def _consumers(topic: OpenTopic) -> Iterator[Row]:
    """A row for each consumer and partition; no position yet is null, and all of it is lag."""
    bounds = {log.partition: log.bounds() for log in topic.logs()}
    stored = {(each.consumer, each.partition): each for each in topic.consumers.positions(topic.record.id)}
    for record in topic.consumers.of_topic(topic.record.id):
        for number, (start, end, *_) in bounds.items():
            at = stored.get((record.name, number))
            lag = max(0, end - max(at.position if at is not None else start, start))
            yield (
                topic.name, record.name, number, None if at is None else at.position, end, lag,
                record.options.important, None if at is None else utc(at.updated), None,
            )  # fmt: skip


def _durables(store: Store, topic: OpenTopic) -> Iterator[Row]:
    """A row for each durable consumer of a stream and subject; its lag is the subject's, and counted."""
    positions = store.stream_records.positions(topic.record.id, None)
    if not positions:
        return
    stream, end = store.stream(topic.name), topic.log(0).bounds().end
    for durable, subject, position in positions:
        lag = stream.get_new_messages_count(subject, since=position)
        yield topic.name, durable, 0, position, end, lag, False, None, subject


def _segments(topic: OpenTopic) -> Iterator[Row]:
    for log in topic.logs():
        bounds, pieces = segments(log)
        for piece in pieces:
            try:
                head = read_head(log.folder, piece.base)
            except FileNotFoundError:
                continue  # retention took it at this moment
            yield (
                topic.name, log.partition, piece.base, piece.stop, piece.bytes,
                piece.base != bounds.segment, None if head is None else head.generation > 0,
                None if head is None else utc(head.created),
            )  # fmt: skip


def _waiting(topic: OpenTopic) -> Iterator[Row]:
    """Messages that a consumer tries again, and (without a consumer) those on their way into the topic."""
    for each in waiting_messages(topic):
        yield (
            topic.name, each.consumer, each.partition, each.offset, each.attempts,
            utc(each.due_ms * 1_000_000), each.key, each.last_error,
        )  # fmt: skip


def _dead_letters(letters: DeadLetters) -> Iterator[Row]:
    for each in letters.list(limit=_ALL):
        message = each.message
        yield (
            letters.topic, each.number, each.consumer, message.partition, message.offset, each.reason,
            each.attempts, each.first_error, each.last_error, utc(each.died_at), message.key,
            message.value,
        )  # fmt: skip
