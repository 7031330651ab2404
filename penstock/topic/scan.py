"""A lazy pass over a topic: batches on demand, in constant memory, to Python or to Arrow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Generic

from penstock import arrow
from penstock.errors import Corrupt, InvalidOption, OffsetTrimmed
from penstock.keys import Key, Match, Prefix, match
from penstock.lake.cut import first_offset, shared
from penstock.log.log import Log
from penstock.log.rows import MessageRows
from penstock.message import Batch, Message, Rows, V
from penstock.parse import MIB
from penstock.place import LATEST, Place, Spot, spot
from penstock.topic.open_topic import OpenTopic

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow

    from penstock.lake.history import History


_READ_BYTES = 64 * MIB
#: So many messages are looked up at a time.
_AT_ONCE = 250


def wanted(topic: OpenTopic, key: Key, prefix: Prefix | None) -> Match | None:
    """Understand `key=` and `prefix=`; None when neither is given.

    Raises `InvalidOption` for a topic that has no index of its keys.
    """
    if key is None and prefix is None:
        return None
    asked = match(() if key is None else (key,), () if prefix is None else (prefix,))
    require_index(topic)
    return asked


def require_index(topic: OpenTopic) -> None:
    """Raise unless messages can be found by key; another process may have changed that."""
    if topic.options.index != "key":
        topic.refresh()
        if topic.options.index != "key":
            raise InvalidOption(
                f"topic {topic.name!r} has no index of its keys",
                hint='create it with index="key", or alter(index="key")',
            )


def rows_between(log: Log, asked: Match, first: int, stop: int, limit: int) -> Iterator[list[Rows]]:
    """Messages that hold a wanted key, `limit` at most, some at a time."""
    if limit <= 0 or first >= stop:
        return
    offsets = chain.from_iterable(log.keys.ascending(asked, first, stop, limit))
    while chosen := list(islice(offsets, _AT_ONCE)):
        yield list(log.keys.rows(chosen))


def latest(topic: OpenTopic, asked: Match) -> Message[Any] | None:
    """The newest message that holds a wanted key: over several partitions, the one written last."""
    found = [message for log in topic.logs() for message in _newest(log, asked)]
    return max(found, key=lambda message: (message.written_at, message.partition), default=None)


def _newest(log: Log, asked: Match) -> list[Message]:
    """The newest of one partition, if there is one."""
    while True:
        bounds = log.bounds()
        try:
            rows = log.keys.rows(log.keys.newest(asked, bounds.start, bounds.end, 1))
            return [message for each in rows for message in each.messages()]
        except OffsetTrimmed:
            continue  # retention took it at this moment


#: Small enough that the objects made of a batch stay in the processor's cache.
BATCH_BYTES = MIB
BATCH_MESSAGES = 65_536


class TopicHistory:
    """The archive of a topic; raises when the table is not that, or cannot be read here (`MissingExtra`)."""

    def __init__(
        self, topic: OpenTopic, table: str | os.PathLike[str], options: Mapping[str, str] | None
    ) -> None:
        arrow.require_pyarrow()
        from penstock.lake.history import History
        from penstock.lake.storage import storage

        record = topic.record
        self._topic = record.name
        self._history: History = History(storage(table, options), topic.topics.store_id, record.id)
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

    def resolve_removed(self, number: int, end: int, spot: Spot) -> int:
        """The offset that a place means in a partition that is gone: only the table may have it."""
        held = self._history.held(number, end)
        first = first_offset(held, end)
        if spot.kind == "offset":
            return min(spot.value, end)
        if spot.kind == "time":
            found = self._history.written_since(held, spot.value, end)
            return end if found is None else found
        return {"earliest": first, "latest": end}.get(spot.kind, max(first, end - 1))

    def removed_rows(
        self, number: int, first: int, stop: int, end: int, names: arrow.Names
    ) -> Iterator[Sequence[Rows]]:
        """Messages of a partition that is gone; raises `OffsetTrimmed` for what the table does not have."""
        if first < stop:
            yield from self._archived(number, first, stop, end, names)

    def rows(self, log: Log, first: int, stop: int, names: arrow.Names) -> Iterator[Sequence[Rows]]:
        """Messages from `first` up to `stop`, in order, wherever they lie; Arrow's `names` are enough.

        Raises `OffsetTrimmed` for what is neither in the log nor in the table.
        """
        cursor = log.cursor(first, far=True)
        while cursor.offset < stop:
            log_start = log.bounds().start
            if cursor.offset < log_start:
                yield from self._archived(log.partition, cursor.offset, stop, log_start, names)
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
        self, number: int, start: int, stop: int, log_start: int, names: arrow.Names
    ) -> Iterator[Sequence[Rows]]:
        from penstock.lake.archived_rows import ArchivedRows, columns_for

        held = self._history.held(number, log_start)
        shares = shared(start, stop, held, log_start)
        if shares.lost:
            raise self._lost(number, *shares.lost[0])
        for batch in self._history.read(held, *shares.archived, columns_for(names)):
            yield [ArchivedRows(self._topic, number, batch)]

    def _lost(self, partition: int, first: int, stop: int) -> OffsetTrimmed:
        error = OffsetTrimmed(
            f"offsets {first} to {stop - 1} of {self._topic!r} partition {partition} are gone, and the table "
            f"{self._history.place.uri} does not have them: the first one left is {stop}",
            partition=partition, offset=first, first=stop,
        )  # fmt: skip
        error.hint = "retention waits for an archive that is important"
        return error


def past_of(
    topic: OpenTopic, table: str | os.PathLike[str] | None, options: Mapping[str, str] | None
) -> TopicHistory | None:
    """The topic's archive; None when no table is named."""
    if table is None:
        if options:
            raise InvalidOption("storage_options without history", hint='history="s3://…" names the table')
        return None
    return TopicHistory(topic, table, options)


class Scan(Generic[V]):
    """Messages from one place to another; where "latest" was is fixed when the scan is made.

    Iterate it for batches, `messages()` for messages, or hand it to anything that takes an Arrow
    stream: `duckdb.sql("select count(*) from scan")`, `polars.DataFrame(scan)`. It can be iterated
    again and gives the same messages, as long as retention leaves them, or they are in the archive that
    is the topic's `past`.
    """

    def __init__(
        self, topic: OpenTopic, partition: int | None, start: Place, stop: Place,
        columns: Sequence[str] | None = None, decode: Callable[[bytes], Any] | None = None,
        asked: Match | None = None, past: TopicHistory | None = None,
    ) -> None:  # fmt: skip
        self._decode = decode
        self._asked = asked
        self._names = None if columns is None else tuple(columns)
        if self._names is not None:
            arrow.schema(self._names)  # a wrong name is said now
        topic.refresh()  # others may have added some
        now = topic.clock.now_ns()
        #: Partitions that are gone, with where they ended: an archive may still have them.
        self._removed = {} if past is None else topic.tree.removed()
        there = sorted({*topic.numbers(), *self._removed})
        self._topic = topic
        self._past = past
        resolve = Log.resolve if past is None else past.resolve
        self._ranges: list[tuple[int, int, int]] = []
        for number in there if partition is None else (partition,):
            if past is not None and number in self._removed:
                end = self._removed[number]
                ends = [past.resolve_removed(number, end, spot(each, number, now)) for each in (start, stop)]
                self._ranges.append((number, ends[0], ends[1]))
                continue
            log = topic.log(number)
            first = topic.begin(number, start, now, resolve)
            last = resolve(log, spot(stop, number, now))
            self._ranges.append((number, first, min(last, log.stored().end)))

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """(partition, first offset, offset behind the last) of what this scan goes over."""
        return list(self._ranges)

    def __iter__(self) -> Iterator[Batch[V]]:
        """Batches of neighbouring messages, partition after partition."""
        for rows in self._rows(None):
            yield Batch(self._topic.name, rows, self._decode)

    def messages(self) -> Iterator[Message[V]]:
        """Iterate over the messages one by one."""
        for batch in self:
            yield from batch

    def record_batches(self) -> Iterator[pyarrow.RecordBatch]:
        """Arrow record batches, pointing into the mapped files where they can."""
        names = arrow.schema(self._names).names
        for neighbours in self._rows(tuple(names)):
            if self._asked is not None:  # messages that do not lie together: one table, not one for each
                neighbours = [MessageRows(list(chain.from_iterable(each.messages() for each in neighbours)))]
            for rows in neighbours:
                yield rows.record_batch(self._names)

    def to_arrow(self) -> pyarrow.Table:
        """Everything as one Arrow table."""
        pa = arrow.require_pyarrow()
        return pa.Table.from_batches(self.record_batches(), schema=arrow.schema(self._names))

    def to_pandas(self) -> pandas.DataFrame:
        """Everything as a pandas DataFrame (needs pandas and the `arrow` extra)."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Everything as a Polars DataFrame (needs polars and the `arrow` extra)."""
        frame: polars.DataFrame = arrow.require("polars").DataFrame(self.to_arrow())
        return frame

    def to_duckdb(self) -> duckdb.DuckDBPyRelation:
        """Everything as a DuckDB relation, for SQL (needs duckdb and the `arrow` extra)."""
        relation: duckdb.DuckDBPyRelation = arrow.require("duckdb").from_arrow(self.to_arrow())
        return relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return arrow.stream(self.record_batches(), requested_schema, self._names)

    def _rows(self, names: arrow.Names) -> Iterator[Sequence[Rows]]:
        """Runs of messages; of those from a table only these columns, or everything."""
        for number, first, stop in self._ranges:
            if self._past is not None and number in self._removed:
                end = self._removed[number]
                yield from self._past.removed_rows(number, first, stop, end, names)
                continue
            log = self._topic.log(number)
            if self._past is not None:
                yield from self._past.rows(log, first, stop, names)
                continue
            if self._asked is not None:
                yield from rows_between(log, self._asked, first, stop, stop - first)
                continue
            cursor = log.cursor(first, far=True)
            while rows := cursor.read(BATCH_MESSAGES, BATCH_BYTES, stop):
                yield rows

    def __repr__(self) -> str:
        count = sum(max(stop - first, 0) for _, first, stop in self._ranges)
        return f"<Scan {self._topic.name}: {count} messages in {len(self._ranges)} partitions>"


def read_some(
    topic: OpenTopic, partition: int | None, start: Place, stop: Place | None, asked: Match | None, limit: int
) -> tuple[list[Rows], bool, dict[int, int]]:
    """Up to `limit` messages, partition after partition; whether more are there, and where each goes on."""
    now = topic.clock.now_ns()
    found: list[Rows] = []
    following: dict[int, int] = {}
    more = False
    for number in topic.numbers() if partition is None else (partition,):
        log = topic.log(number)
        first = topic.begin(number, start, now)
        last = log.resolve(LATEST if stop is None else spot(stop, number, now))
        here = list(_some(log, asked, first, last, limit)) if limit else []
        limit -= sum(map(len, here))
        found += here
        following[number] = here[-1].stop if here else first
        if limit:
            following[number] = max(following[number], min(last, log.stored().end))
        else:
            more = more or _is_more(log, asked, following[number], last)
    return found, more, following


def _is_more(log: Log, asked: Match | None, first: int, last: int) -> bool:
    """Whether there is anything more to read; what is damaged counts, and is said when it is read."""
    try:
        return any(True for _ in _some(log, asked, first, last, 1))
    except Corrupt:
        return True


def _some(log: Log, asked: Match | None, first: int, last: int, limit: int) -> Iterator[Rows]:
    """Up to `limit` messages of one partition, of the keys that are asked for if any are."""
    if asked is not None:
        for rows in rows_between(log, asked, first, last, limit):
            yield from rows
        return
    cursor = log.cursor(first)
    while limit > 0 and cursor.offset < last and (read := cursor.read(limit, _READ_BYTES, last)):
        yield from read
        limit -= sum(map(len, read))
