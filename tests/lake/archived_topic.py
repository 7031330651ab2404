"""A small topic, all of it remembered, and its archive as it was after each message."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import penstock
from tests.kit.archives import (
    RAW_SCHEMA,
    Archive,
    ArchivedSpan,
    ArchiveOrigin,
    FileTarget,
    open_archive,
    open_or_create,
    storage,
)
from tests.kit.archives import parquet_files_module as parquet_files
from tests.kit.pipelines import Filling, fill
from tests.kit.slices import Slice, StreamQuery, arrow_schema, divided, parse, survey
from tests.kit.slices import batches_module as batches
from tests.kit.slices import schema_module as schema
from tests.kit.topics import inside

PARTITIONS = 3
MESSAGES = 12  # in each partition
ALL = dict.fromkeys(schema.ALL, True)


def write_all_kinds(topic: penstock.Topic, partition: int) -> None:
    """Twelve messages, over three segments of 4 KiB: keys, headers, codecs, times, tombstones."""
    write = topic.write
    write(b"plain", partition=partition)
    write(None, key="gone", partition=partition, timestamp=-1_000_000_001)
    write(b"", key=b"", partition=partition, timestamp=1_700_000_000_123_456_789)
    write(b"x" * 2000, headers={"text": "é", "bytes": b"\xff", "empty": ""}, partition=partition)
    topic.write_many(
        [b"y" * 1500, None, b"1"], keys=["a", "b", None], headers=[{"n": b"1"}, None, {}],
        timestamps=[-1, 999, 1001], partition=partition,
    )  # fmt: skip
    groups = {0: "g0", 1: "g1", 2: "g2"}
    with topic.writer(producer_id=f"shop-{partition}", group=groups[partition], codec="zstd") as writer:
        for n in range(3):
            writer.write(b"z" * (700 * n), key="k", seqno=40 + n, partition=partition)
    write("{}" * 1000, partition=partition)
    write(b"last", key="k" * 50, partition=partition)


@dataclass(frozen=True)
class Made:
    """What is made once for all tests: a closed store, its archives, and what the topic held."""

    folder: Path
    #: As a scan and as the Spark source gave them.
    messages: list[penstock.Message]
    arrow: pa.Table
    rows: pa.Table


@dataclass(frozen=True)
class Kept:
    """A copy of the store, open, and what its topic held before anything was trimmed."""

    made: Made
    store: penstock.Store
    topic: penstock.Topic
    #: An archive of all, for this test alone.
    growing: Path

    @property
    def messages(self) -> list[penstock.Message]:
        return self.made.messages

    @property
    def rows(self) -> pa.Table:
        return self.made.rows

    def table(self, archived: int) -> Path:
        """The archive that has the first so many messages of each partition; not to be changed."""
        return self.made.folder / f"lake-{archived:02d}"

    def trim(self, upto: int) -> None:
        for number in range(PARTITIONS):
            inside(self.topic).log(number).trim(upto)


@contextmanager
def opened(made: Made, folder: Path) -> Iterator[Kept]:
    """The store of its own that a test has."""
    folder.mkdir(exist_ok=True)
    shutil.copytree(made.folder / "data", folder / "data")
    shutil.copytree(made.folder / "growing", folder / "growing")
    with penstock.open(folder / "data") as store:
        yield Kept(made, store, store.topic("orders"), folder / "growing")


def make(folder: Path) -> Made:
    """Fill a topic, and archive it message by message."""
    with penstock.open(folder / "data") as store:
        return _filled(store, folder)


def _filled(store: penstock.Store, folder: Path) -> Made:
    topic = store.create_topic("orders", partitions=PARTITIONS, segment_bytes="4KiB", sync="os")
    for number in range(PARTITIONS):
        write_all_kinds(topic, number)
    store.flush_housekeeping()
    growing = folder / "growing"
    for archived in range(MESSAGES + 1):
        archive_to(store, topic, growing, archived)
        shutil.copytree(growing, folder / f"lake-{archived:02d}")
    scan = topic.scan()
    return Made(folder, list(scan.messages()), scan.to_arrow(), table_of(slices(store)))


def archive_to(store: penstock.Store, topic: penstock.Topic, table: Path, stop: int) -> Archive:
    """Bring a table up to that offset of each partition, in one commit."""
    place = storage(table)
    origin = ArchiveOrigin(store.id, topic.id, topic.name)
    archive = open_or_create(place, origin, "raw", RAW_SCHEMA)
    spans = {n: ArchivedSpan(archive.next_offset(n) or 0, stop) for n in range(topic.options.partitions)}
    spans = {n: span for n, span in spans.items() if span.start < span.stop}
    if spans:
        ends = ", ".join(f'"{n}": {span.stop}' for n, span in spans.items())
        starts = ", ".join(f'"{n}": {span.start}' for n, span in spans.items())
        planned = slices(
            store, startingOffsets=f'{{"orders": {{{starts}}}}}', endingOffsets=f'{{"orders": {{{ends}}}}}'
        )
        files = [
            file
            for each in planned
            if each.partition in spans
            for file in fill(Filling(each, FileTarget(place, RAW_SCHEMA, each.partition), "raw"))
        ]
        archive.append(files, spans)
    return archive


def compacted(table: Path) -> None:
    """Put all files of each partition together."""
    archive = open_archive(storage(table))
    for number in range(PARTITIONS):
        old = archive.files(number)
        archive.replace(old, parquet_files.merge(old, FileTarget(archive.storage, RAW_SCHEMA, number)))


def slices(store: penstock.Store, **options: str) -> list[Slice]:
    asked = parse({"path": store.path, "topic": "orders", **options})
    return divided(survey(asked), asked.min_partitions)


def streamed(store: penstock.Store, **options: str) -> list[Slice]:
    """All tasks of the one batch that a stream from the beginning has."""
    with closing(stream_query(store, **options)) as query:
        begin = query.initial()
        return query.planned(begin, query.latest(begin, None, None))


def stream_query(store: penstock.Store, **options: str) -> StreamQuery:
    return StreamQuery(parse({"path": store.path, "topic": "orders", **options}))


def table_of(planned: Sequence[Slice], columns: dict[str, bool] = ALL) -> pa.Table:
    """What the tasks yield."""
    found = [batch for each in planned for batch in batches.read(each, columns)]
    return pa.Table.from_batches(found, schema=arrow_schema(columns))
