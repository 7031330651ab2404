"""Reading a topic by key: which messages hold one, over all its partitions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from penstock.errors import InvalidOption, OffsetTrimmed
from penstock.keys import Key, Match, Prefix, match
from penstock.log.log import Log
from penstock.message import Message, Rows
from penstock.topic.partitions import Partitions

#: So many messages are looked up at a time.
_AT_ONCE = 250


def wanted(partitions: Partitions, key: Key, prefix: Prefix | None) -> Match | None:
    """What `key=` and `prefix=` ask for; None when neither is given.

    Raises `InvalidOption` for a topic that has no index of its keys.
    """
    if key is None and prefix is None:
        return None
    asked = match(() if key is None else (key,), () if prefix is None else (prefix,))
    require_index(partitions)
    return asked


def require_index(partitions: Partitions) -> None:
    """Raise unless messages can be found by key; another process may have changed that."""
    if partitions.options.index != "key":
        partitions.refresh()
        if partitions.options.index != "key":
            raise InvalidOption(
                f"topic {partitions.name!r} has no index of its keys",
                hint='create it with index="key", or alter(index="key")',
            )


def rows_between(log: Log, asked: Match, first: int, stop: int, limit: int) -> Iterator[list[Rows]]:
    """Messages that hold a wanted key, `limit` at most, some at a time."""
    if limit <= 0 or first >= stop:
        return
    offsets = chain.from_iterable(log.keyed.ascending(asked, first, stop, limit))
    while chosen := list(islice(offsets, _AT_ONCE)):
        yield list(log.keyed.rows(chosen))


def latest(partitions: Partitions, asked: Match) -> Message[Any] | None:
    """The newest message that holds a wanted key: over several partitions, the one written last."""
    found = [message for log in partitions.logs() for message in _newest(log, asked)]
    return max(found, key=lambda message: message.written_at, default=None)


def _newest(log: Log, asked: Match) -> list[Message]:
    """The newest of one partition, if there is one."""
    while True:
        bounds = log.bounds()
        try:
            rows = log.keyed.rows(log.keyed.newest(asked, bounds.start, bounds.end, 1))
            return [message for each in rows for message in each.messages()]
        except OffsetTrimmed:
            continue  # retention took it at this moment
