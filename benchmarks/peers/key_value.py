"""Key-value stores inside the process as logs: the offset is the key, key and value of a message the value.

A thousand messages a transaction (LMDB) or a write batch (RocksDB); neither waits for the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.harness import BATCH, Bench, rate
from benchmarks.peers.program import Rates, find_module

_MAP_BYTES = 16 * 2**30


def lmdb(bench: Bench, folder: Path) -> Rates:
    module, count = find_module("lmdb"), bench.sizes.messages
    options = {"map_size": _MAP_BYTES, "sync": False, "metasync": False}
    with closing(module.open(str(folder / "lmdb"), **options)) as environment:

        def write() -> None:
            for number, rows in _rows(bench):
                with environment.begin(write=True) as transaction:
                    for place, row in enumerate(rows, number * BATCH):
                        transaction.put(place.to_bytes(8, "big"), row, append=True)

        def read() -> None:
            with environment.begin() as transaction, transaction.cursor() as cursor:
                _expect(count, sum(1 for _ in cursor))

        return _measured(count, write, read)


def rocksdb(bench: Bench, folder: Path) -> Rates:
    module, count = find_module("rocksdict"), bench.sizes.messages
    options = module.Options(raw_mode=True)
    options.create_if_missing(True)
    database = module.Rdict(str(folder / "rocksdb"), options)
    with closing(database):

        def write() -> None:
            for number, rows in _rows(bench):
                batch = module.WriteBatch(raw_mode=True)
                for place, row in enumerate(rows, number * BATCH):
                    batch.put(place.to_bytes(8, "big"), row)
                database.write(batch)

        def read() -> None:
            _expect(count, sum(1 for _ in database.items()))

        return _measured(count, write, read)


PEERS: dict[str, Callable[[Bench, Path], Rates]] = {"LMDB": lmdb, "RocksDB": rocksdb}


def _rows(bench: Bench) -> Iterator[tuple[int, list[bytes]]]:
    """Batches, numbered, each message as one string of bytes."""
    for number, batch in enumerate(bench.batches()):
        yield number, [key + value for key, value in zip(batch.keys, batch.values, strict=True)]


def _measured(count: int, write: Callable[[], None], read: Callable[[], None]) -> Rates:
    return Rates(write=rate(count, write), read=rate(count, read))


def _expect(expected: int, found: int) -> None:
    if found != expected:
        raise RuntimeError(f"read {found} messages, not {expected}")
