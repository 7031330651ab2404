"""A topic whose past lies in an archive, for scans: table and log as one offset space.

Where retention overtakes a scan on its way, the scan goes on in the table, if that has it by then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock import arrow
from penstock.errors import InvalidOption, OffsetTrimmed
from penstock.lake.cut import first_offset, shared
from penstock.log.log import Log
from penstock.message import Rows
from penstock.options import MIB, Spot
from penstock.topic.partitions import Partitions

if TYPE_CHECKING:
    from penstock.lake.history import History

#: Small enough that the objects made of a batch stay in the processor's cache.
BATCH_BYTES = MIB
BATCH_MESSAGES = 65_536


class Past:
    """The archive of a topic; raises when it is not, and `MissingExtra` when it cannot be read here."""

    def __init__(
        self, partitions: Partitions, table: str | os.PathLike[str], options: Mapping[str, str] | None
    ) -> None:
        arrow.require_pyarrow()
        from penstock.lake.history import History
        from penstock.lake.storage import storage

        record = partitions.record
        self._topic = record.name
        self._history: History = History(storage(table, options), partitions.topics.store_id, record.id)
        self._history.look()

    def resolve(self, log: Log, spot: Spot) -> int:
        """The offset that a place means now; an offset is left as it is."""
        bounds = log.bounds()
        if spot.kind in ("offset", "latest"):
            return log.resolve(spot)
        held = self._history.held(log.partition, bounds.start)
        if spot.kind == "time":
            found = self._history.written_since(held, spot.value, bounds.start)
            return log.resolve(spot) if found is None else found
        first = first_offset(held, bounds.start)
        return first if spot.kind == "earliest" else max(first, bounds.end - 1)

    def rows(self, log: Log, first: int, stop: int, names: arrow.Names) -> Iterator[Sequence[Rows]]:
        """Messages from `first` up to `stop`, in order, wherever they lie; Arrow's `names` are enough.

        Raises `OffsetTrimmed` for what is neither in the log nor in the table.
        """
        cursor = log.cursor(first, far=True)
        while cursor.offset < stop:
            log_start = log.bounds().start
            if cursor.offset < log_start:
                yield from self._archived(log, cursor.offset, stop, log_start, names)
                cursor.offset = min(stop, log_start)
                continue
            try:
                rows = cursor.read(BATCH_MESSAGES, BATCH_BYTES, stop)
            except OffsetTrimmed:  # retention was quicker; the table may have it
                continue
            if not rows:
                return
            yield rows

    def _archived(
        self, log: Log, start: int, stop: int, log_start: int, names: arrow.Names
    ) -> Iterator[Sequence[Rows]]:
        from penstock.lake.rows import ArchivedRows, columns_for

        held = self._history.held(log.partition, log_start)
        shares = shared(start, stop, held, log_start)
        if shares.lost:
            raise self._lost(log.partition, *shares.lost[0])
        for batch in self._history.read(held, *shares.archived, columns_for(names)):
            yield [ArchivedRows(self._topic, log.partition, batch)]

    def _lost(self, partition: int, first: int, stop: int) -> OffsetTrimmed:
        error = OffsetTrimmed(
            f"offsets {first} to {stop - 1} of {self._topic!r} partition {partition} are gone, and the table "
            f"{self._history.place.uri} does not have them: the first one left is {stop}",
            partition=partition, offset=first, first=stop,
        )  # fmt: skip
        error.hint = "retention waits for an archive that is important"
        return error


def past_of(
    partitions: Partitions, table: str | os.PathLike[str] | None, options: Mapping[str, str] | None
) -> Past | None:
    """The topic's archive; None when no table is named."""
    if table is None:
        if options:
            raise InvalidOption("storage_options without history", hint='history="s3://…" names the table')
        return None
    return Past(partitions, table, options)
