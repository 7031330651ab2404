"""kill -9 in the middle of an import of each kind of file: sent again, each record is stored once."""

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

import penstock
from tests.exchange.killed_import import run_until_killed

COUNT = 1000


def write(path, kind):
    found = pa.table({"n": [str(n) for n in range(COUNT)], "v": [f"value {n}" for n in range(COUNT)]})
    if kind == "jsonl":
        path.write_text("".join(f'{{"n": "{n}", "v": "value {n}"}}\n' for n in range(COUNT)))
    elif kind == "csv":
        path.write_text("n,v\n" + "".join(f'{n},"value {n}"\n' for n in range(COUNT)))
    elif kind == "parquet":
        parquet.write_table(found, path)
    else:
        with ipc.new_file(str(path), found.schema) as writer:
            writer.write_table(found, max_chunksize=100)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "arrow"])
def test_an_import_killed_again_and_again_stores_each_record_once(tmp_path, kind, partitions):
    with penstock.open(tmp_path / "store") as store:
        store.create_topic("t", partitions=partitions)
    path = tmp_path / f"f.{kind}"
    write(path, kind)
    kills, length = 0, 4
    while run_until_killed("file", tmp_path / "store", path, kind, length):
        kills += 1
        length *= 2
    assert kills >= 2
    with penstock.open(tmp_path / "store") as store:
        found = sorted((int(m.key), m.value) for m in store.topic("t").read(limit=10**6))
    assert found == [(n, b"value %d" % n) for n in range(COUNT)]
