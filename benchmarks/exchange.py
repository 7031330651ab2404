"""In and out: a go-diskq folder beside `write_many` of the same messages, Parquet beside pyarrow alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow
from pyarrow import parquet

from benchmarks.harness import TOPIC, Bench, rate
from benchmarks.rows import Row, ratio_at_least
from penstock.exchange.arrow_files import import_table
from penstock.exchange.diskq_import import import_diskq
from penstock.exchange.file_export import export_file
from penstock.exchange.records import FieldChoice

_PARTITIONS = 3
#: As many as one piece of an import has.
_MANY = 16_384


def run(bench: Bench) -> Iterator[Row]:
    with bench.room() as room:
        _make_folder(bench, room / "diskq")
        ours, many = bench.interleave(lambda: _import(bench, room / "diskq"), lambda: _write_many(bench))
        yield Row(
            name="exchange/diskq-in", what="a go-diskq folder into a topic", ours=ours,
            peer="write_many of the same", theirs=many, target=ratio_at_least(0.5),
        )  # fmt: skip
        table = _table(bench)
        path = room / "messages.parquet"
        out, written = bench.interleave(lambda: _export(bench, room), lambda: _pyarrow_write(table, path))
        yield Row(
            name="exchange/parquet-out", what="a topic as a Parquet file", ours=out,
            peer="pyarrow writes the same", theirs=written, target=ratio_at_least(0.5),
        )  # fmt: skip
        taken, read = bench.interleave(
            lambda: _import_parquet(bench, path), lambda: _pyarrow_copy(table, path, room)
        )
        yield Row(
            name="exchange/parquet-in", what="a Parquet file into a topic", ours=taken,
            peer="pyarrow reads it and writes an Arrow file", theirs=read, target=ratio_at_least(0.5),
        )  # fmt: skip


def _make_folder(bench: Bench, path: Path) -> None:
    with bench.store() as store:
        topic = store.create_topic(TOPIC, partitions=_PARTITIONS, partitioner="diskq", sync="os")
        for number, batch in enumerate(bench.batches()):
            times = range(number * 1000, number * 1000 + len(batch.values))
            topic.write_many(batch.values, keys=batch.keys, timestamps=times)
        topic.export_diskq(path)


def _import(bench: Bench, path: Path) -> float:
    with bench.store() as store:
        return rate(bench.sizes.messages, lambda: import_diskq(store, path, TOPIC, sync="os"))


def _write_many(bench: Bench) -> float:
    """The same messages to the same topic, as many a call as an import writes."""
    pairs = list(bench.singles(bench.sizes.messages))
    with bench.store() as store:
        topic = store.create_topic(TOPIC, partitions=_PARTITIONS, partitioner="diskq", sync="os")

        def work() -> None:
            rest = iter(pairs)
            while part := list(islice(rest, _MANY)):
                topic.write_many(
                    [value for _, value in part], keys=[key for key, _ in part],
                    timestamps=range(len(part)),
                )  # fmt: skip

        return rate(len(pairs), work)


def _table(bench: Bench) -> pyarrow.Table:
    with bench.topic("os") as topic:
        for batch in bench.batches():
            topic.write_many(batch.values, keys=batch.keys)
        found = pyarrow.Table.from_batches(list(topic.scan().record_batches()))
        return pyarrow.Table.from_pydict(  # its own memory: the store goes
            {name: found[name].combine_chunks() for name in found.column_names}, schema=found.schema
        )


def _export(bench: Bench, room: Path) -> float:
    with bench.topic("os") as topic:
        for batch in bench.batches():
            topic.write_many(batch.values, keys=batch.keys)
        path = str(room / "ours.parquet")
        return rate(bench.sizes.messages, lambda: export_file(topic, path, "parquet", overwrite=True))


def _pyarrow_write(table: pyarrow.Table, path: Path) -> float:
    return rate(table.num_rows, lambda: parquet.write_table(table, path))


def _import_parquet(bench: Bench, path: Path) -> float:
    with bench.topic("os") as topic:
        choice = FieldChoice(messages=True)
        return rate(bench.sizes.messages, lambda: import_table(topic, str(path), "parquet", choice))


def _pyarrow_copy(table: pyarrow.Table, path: Path, room: Path) -> float:
    """pyarrow reads the same columns and stores them."""

    def work() -> None:
        found = parquet.ParquetFile(path)
        with pyarrow.ipc.new_file(str(room / "copy.arrow"), table.select(_COLUMNS).schema) as writer:
            for batch in found.iter_batches(batch_size=65_536, columns=list(_COLUMNS)):
                writer.write_batch(batch)

    return rate(table.num_rows, work)


_COLUMNS = ("key", "value", "headers", "timestamp")
