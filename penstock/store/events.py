"""Opening the live events of a topic, which is made at first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from penstock.errors import InvalidOption, UnknownTopic
from penstock.faces.events import Events
from penstock.options import KIB
from penstock.store.topic import Topic
from penstock.store.transaction import Transaction
from penstock.topic import outgoing
from penstock.topic.framing import FRAME_BYTES, FRAME_MESSAGES

#: What events are kept in: a total order, found by key, for an hour.
OPTIONS = {"index": "key", "retention": "1h", "sync": "disk"}
#: What a message takes in a frame besides its key and value.
_BESIDES_BYTES = 16


def open_events(
    name: str, find: Callable[[str], Topic], create: Callable[[str], Topic], begin: Callable[[], Transaction]
) -> Events:
    """The events in a topic, which `create` makes when there is none."""
    try:
        topic = find(name)
    except UnknownTopic:
        topic = create(name)
    if topic.options.partitions != 1 or topic.options.index != "key":
        raise InvalidOption(
            f"topic {name!r} cannot hold events: it needs one partition and an index of its keys",
            hint='alter(index="key") gives it one; partitions cannot be taken away',
        )

    def append(
        values: Sequence[bytes], keys: Sequence[bytes], headers: Sequence[Mapping[str, bytes] | None] | None
    ) -> int:
        """One frame is there or not; more of them need a transaction."""
        size = sum(map(len, values)) + sum(map(len, keys)) + _BESIDES_BYTES * len(values)
        size += sum(8 + len(n) + len(v) for each in headers or () for n, v in (each or {}).items())
        if len(values) <= FRAME_MESSAGES and (size <= FRAME_BYTES - 64 * KIB or len(values) == 1):
            return topic.write_many(values, keys=keys, headers=headers)[0].offset
        with begin() as tx:
            tx.write_many(topic, values, keys=keys, headers=headers)
        return tx.stored[topic.name][0].first

    return Events(topic._partitions, append, partial(_append_at_once, topic))


def _append_at_once(
    topic: Topic, values: Sequence[bytes], keys: Sequence[bytes],
    headers: Sequence[Mapping[str, bytes] | None] | None,
) -> int | None:  # fmt: skip
    """The first offset of events that are on disk; None where that takes more than one frame and its sync."""
    partitions = topic._partitions
    options, tree = partitions.options, partitions.record.tree
    is_plain = options.sync == "disk" and options.payloads is None and not options.codecs
    if not is_plain or len(partitions) != 1 or partitions.read_only:
        return None
    drafts = partitions.encode(outgoing.many(values, keys, headers, None, None, options.value_bytes))
    if len(drafts) != 1:
        return None
    try:
        appended = partitions.log(0).write_at_once(drafts, tree=tree)
    except FileNotFoundError:
        return None  # the topic was dropped at this moment, and what was stored is gone with it
    return None if appended is None else appended.first
