"""The bytes of go-diskq, pinned by a golden folder made by hand from the seed's tables.

The golden folder was read, and gone on with, by go-diskq itself when it was made.
"""

import shutil
from pathlib import Path

import penstock
from tests.exchange.diskq_files import Row, all_files, fixed, read_partition, uvarint, varuint
from tests.kit.values import Encoding, Records, decode, encode

GOLDEN = Path(__file__).parent / "golden"


def test_b004_01_a_message_is_the_26_bytes_of_the_table():
    wanted = bytes.fromhex("010000006b06320130b768a617050000000000000068656c6c6f")
    time = int.from_bytes(bytes.fromhex("06320130b768a617"), "little")
    records = Records([b"k"], [time], [b"hello"])
    assert encode(Encoding.FIXED, records) == [wanted] == [fixed(Row(b"k", time, b"hello"))]
    assert decode(Encoding.FIXED, wanted, (0,), (26,)) == records


def test_s004_21_the_readme_s_encoding_is_known_too():
    row = Row(b"k" * 200, -5, b"d" * 20_000)
    records = Records([row.key], [row.time], [row.data])
    assert encode(Encoding.VARUINT, records) == [varuint(row)]
    assert decode(Encoding.VARUINT, varuint(row), (0,), (len(varuint(row)),)) == records
    assert varuint(row)[:2] == uvarint(200) == b"\xc8\x01"


def test_the_golden_folder_is_read_and_written_again_byte_for_byte(tmp_path):
    with penstock.open(tmp_path / "store") as store:
        topic = store.import_diskq(GOLDEN / "diskq", topic="t")
        found = {
            n: [(m.offset, Row(m.key, m.timestamp, m.value)) for m in topic.read(partition=n)] for n in (0, 1)
        }
        assert found == {n: read_partition(GOLDEN / "diskq", n) for n in (0, 1)}
        assert [m.offset for m in topic.read(partition=0)] == [2, 3, 4]
        assert [(each.consumer, each.positions) for each in topic.consumers()] == [("billing", {0: 4, 1: 0})]
        topic.export_diskq(tmp_path / "again")
    assert all_files(tmp_path / "again") == all_files(GOLDEN / "diskq")


def test_the_golden_folder_of_the_readme_s_encoding_likewise(tmp_path):
    with penstock.open(tmp_path / "store") as store:
        topic = store.import_diskq(GOLDEN / "varuint", topic="t")
        assert [(m.key, m.value) for m in topic.read()] == [(b"k", b"hello"), (b"customer-00", b"")]
        topic.export_diskq(tmp_path / "again")
        topic.export_diskq(tmp_path / "fixed", encoding="fixed")
    assert all_files(tmp_path / "again") == all_files(GOLDEN / "varuint")
    assert [row.key for _, row in read_partition(tmp_path / "fixed", 0)] == [b"k", b"customer-00"]


def test_reading_changes_nothing_of_the_folder(tmp_path):
    folder = tmp_path / "diskq"
    shutil.copytree(GOLDEN / "diskq", folder)
    before = all_files(folder)
    with penstock.open(tmp_path / "store") as store:
        store.import_diskq(folder, topic="t")
    assert all_files(folder) == before
    assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in (GOLDEN / "diskq").iterdir())
