"""What Spark can read by itself: the files of a topic's archive, chosen and cut by offsets on the driver.

    archive (Parquet)   [ 0 ……………………… next )          read by Spark itself: columns and filters pushed down
    log                            [ next ………… end )  read through Python

Rows that pass through Python cost time by their bytes; those in Parquet files do not pass through it. So
the archive is read up to where it stands, and the log only from there on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from penstock.errors import (
    ForeignArchive,
    InvalidOption,
    MissingExtra,
    NotAnArchive,
    NotATable,
)
from penstock.lake.history import History
from penstock.lake.layout import LakeFile
from penstock.lake.storage import storage
from penstock.log.log import Log
from penstock.spark.source.filters import FilterBounds
from penstock.spark.source.survey import may_hold, other_history
from penstock.store import Store
from penstock.topic.open_topic import OpenTopic

#: Look for an archive of the topic among the store's pipelines.
AUTO = "auto"


class NativePast(NamedTuple):
    """The part of a topic that lies in an archive."""

    #: Where the table lies.
    table: str
    #: The files to be read.
    files: tuple[LakeFile, ...]
    #: For each partition the first offset that is not in them: the log is read from there on.
    next: dict[int, int]
    #: Whether the log may have more than they: else no Python need be started.
    has_tail: bool

    @property
    def paths(self) -> list[str]:
        """Where the files lie."""
        return [os.path.join(self.table, each.path) for each in self.files]

    @property
    def rows(self) -> int:
        """How many messages the files hold."""
        return sum(each.rows for each in self.files)


def find_past(store: Store, topic: OpenTopic, archive: str | None, bounds: FilterBounds) -> NativePast | None:
    """What an archive has of a topic, within these bounds; None when there is none that serves.

    An archive that is named and does not serve raises; one that was only found does not. Raises
    `HistoryChanged` when the store was put back to an earlier state since the archive was written.
    """
    if archive is None:
        return None
    places = list(_found(store, topic.name)) if archive == AUTO else [archive]
    found = [
        past for each in places if (past := _looked_at(store, topic, each, bounds, asked=archive != AUTO))
    ]
    return max(found, key=lambda past: sum(past.next.values()), default=None)


def _found(store: Store, topic: str) -> Iterator[str]:
    """Tables that the topic is archived into by pipelines of the store, as far as they are folders."""
    for each in store.pipelines():
        table = each.identity.get("table")
        is_of_topic = each.kind == "archive" and each.identity.get("topic") == topic
        if is_of_topic and isinstance(table, str) and os.path.isdir(table):
            yield table


def _looked_at(
    store: Store, topic: OpenTopic, table: str, bounds: FilterBounds, *, asked: bool
) -> NativePast | None:
    place = storage(table)
    if not place.is_local:
        raise InvalidOption(
            f"{table} is not a folder: Spark itself would need jars to read it",
            hint='option history="s3://…" of format("penstock") reads it through Python',
        )
    history = History(place, store.id, topic.record.id)
    try:
        history.look()
    except (ForeignArchive, MissingExtra, NotATable, NotAnArchive):
        if asked:
            raise
        return None  # of an earlier topic of that name, of another kind, gone: the log is read alone
    for error in other_history(history.all_known, topic, place.uri):
        error.hint = "archive=None reads the log alone; archive into another table from now on"
        raise error
    held = {log.partition: history.known(log.partition) for log in topic.logs()}
    if any(
        log.bounds().start < held[log.partition].first for log in topic.logs() if held[log.partition].files
    ):
        return None  # the log reaches further back than the table
    files = [file for each in held.values() for file in each.files if _may_pass(file, topic.name, bounds)]
    begin = {n: each.next for n, each in held.items() if each.files}
    has_tail = any(_may_add(log, topic.name, begin.get(log.partition, 0), bounds) for log in topic.logs())
    return NativePast(place.uri, tuple(files), begin, has_tail)


def _may_add(log: Log, topic: str, begin: int, bounds: FilterBounds) -> bool:
    """Whether a partition has offsets from `begin` on that may be within the bounds."""
    first, stop = max(begin, bounds.offsets.first), min(log.bounds().end, bounds.offsets.stop)
    return bounds.has(topic, log.partition) and first < stop


def _may_pass(file: LakeFile, topic: str, bounds: FilterBounds) -> bool:
    """Whether rows of a file may be within the bounds."""
    return (
        bounds.has(topic, file.partition)
        and file.first < bounds.offsets.stop
        and file.stop > bounds.offsets.first
        and may_hold(file, bounds.written)
    )
