"""Files of waiting messages, made by hand from the byte tables: they are read, and written just the same."""

import shutil
import struct
import uuid

import pytest

from penstock import Files, UnknownFormat
from penstock.testing import Clock
from tests.compat import delay_bytes, old_delay_bytes
from tests.compat.delay_bytes import DUE, IDS, NOW
from tests.compat.make_golden import GOLDEN_DELAY, GOLDEN_OLD_DELAY, FixedFiles
from tests.kit.waiting import (
    Change,
    FolderVerifier,
    Operation,
    StateId,
    WaitingMessages,
    decode_changes,
    encode_change,
    uuid7,
    uuid7s,
)
from tests.kit.waiting import file_reader_module as file_reader

NS = 1_000_000


def opened(folder, clock):
    return WaitingMessages(folder, FixedFiles(), clock, ladder=["30s"], sync="os")


@pytest.mark.parametrize(
    ("golden", "tables"), [(GOLDEN_DELAY, delay_bytes), (GOLDEN_OLD_DELAY, old_delay_bytes)]
)
def test_the_golden_files_are_those_of_the_tables(golden, tables):
    found = {str(path.relative_to(golden)): path for path in golden.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == tables.FILES


def test_the_golden_files_are_read(tmp_path):
    """S003-06, S003-17, S003-18: records, snapshot and log as the seed lays them out."""
    folder = shutil.copytree(GOLDEN_DELAY, tmp_path / "delay")
    clock = Clock((DUE + 1500) * NS)
    with opened(folder, clock) as waiting:
        assert waiting.count() == 2, "the first is finished"
        second, moment = waiting.take()
        assert (second.due, second.id, second.topic) == (DUE, IDS[1], "orders")
        assert (second.attempts, second.data) == (128, b"world")
        assert (moment.due, moment.id, moment.attempts, moment.data) == (DUE + 1500, IDS[2], 0, b"later")


def test_the_same_messages_make_the_same_files(tmp_path):
    """S003-05, S003-06, S003-10, S003-13: appending changes the ID; Len is the length in the snapshot."""
    clock = Clock(NOW * NS)
    with opened(tmp_path / "delay", clock) as waiting:
        waiting.store(wait="30s", id=IDS[0], topic="orders", attempts=3, data=b"hello")
        waiting.store(wait="30s", id=IDS[1], topic="orders", attempts=128, data=b"world")
        waiting.store(due_ms=NOW + 31_500, id=IDS[2], topic="orders", data=b"later")
        waiting.snapshot()
        clock.advance("30s")
        taken, _ = waiting.take()
        taken.done()
        found = {name: (tmp_path / "delay" / name).read_bytes() for name in delay_bytes.FILES}
        lock = (tmp_path / "delay" / "states.lock").read_bytes()
    assert found == delay_bytes.FILES
    assert lock == delay_bytes.lock_record(FixedFiles().boot())


def old_store(tmp_path):
    """As its last process left it, with the lock of its chain."""
    folder = shutil.copytree(GOLDEN_OLD_DELAY, tmp_path / "delay")
    (folder / "30" / "lock").write_bytes(struct.pack("<QQ", FixedFiles().boot(), 1))
    (folder / "states.lock").write_bytes(struct.pack("<Q", 2))
    return folder


def test_an_old_folder_is_read_and_never_written(tmp_path):
    folder = old_store(tmp_path)
    before = {path: path.read_bytes() for path in (folder / "30").iterdir() if path.name != "lock"}
    clock = Clock((old_delay_bytes.DUE + 1500) * NS)
    (old,) = file_reader.records(str(folder), Files(), file_reader.stored_states(str(folder), Files()))
    assert (old.due, old.data) == (old_delay_bytes.DUE + 1500, b"world"), "also by whoever only reads"
    verifier = FolderVerifier(str(folder), Files())
    assert ([*verifier.findings()], verifier.messages) == ([], 1)
    with opened(folder, clock) as waiting:
        waiting.store(wait="30s", id=IDS[0], topic="orders", data=b"new")
        assert {path: path.read_bytes() for path in before} == before
        (taken,) = waiting.take()
        assert (taken.due, taken.id) == (old_delay_bytes.DUE + 1500, old_delay_bytes.SECOND_ID)
        assert (taken.attempts, taken.data) == (128, b"world")
        taken.done()
        clock.advance("30s")
        (taken,) = waiting.take()
        assert taken.data == b"new"
        assert not (folder / "30").exists(), "removed with its lock when it was empty"
    with opened(folder, clock) as waiting:
        assert waiting.count() == 1


def test_a_process_of_the_older_version_is_told_to_ask_the_states(tmp_path):
    """It finds no file to append to, and states of a version that it refuses."""
    folder = old_store(tmp_path)
    with opened(folder, Clock(NOW * NS)):
        assert (folder / "30" / "lock").read_bytes() == struct.pack("<QQ", FixedFiles().boot(), 0)
        assert (folder / "states.log").read_bytes()[12:14] == b"\x02\0"


def test_a_newer_version_is_refused(tmp_path):
    folder = old_store(tmp_path)
    data = bytearray((folder / "states.log").read_bytes())
    data[12] = 3
    data[8:12] = struct.pack("<I", delay_bytes.zlib.crc32(bytes(data[12:64])))
    (folder / "states.log").write_bytes(data)
    with pytest.raises(UnknownFormat, match="version 3"):
        opened(folder, Clock(NOW * NS))


def test_ids_are_uuids_of_version_7():
    """RFC 9562."""
    many = uuid7s(NOW, 3000)
    assert many == sorted(set(many))
    for each in [uuid7(NOW), uuid7(NOW, 2**80 - 1), uuid7(NOW, 0), *many]:
        found = uuid.UUID(bytes=each)
        assert (found.version, found.variant) == (7, uuid.RFC_4122)
        assert found.int >> 80 == NOW
    assert uuid7(NOW, 5) == uuid7(NOW, 5) != uuid7(NOW, 6)


@pytest.mark.parametrize(
    ("change", "data"),
    [
        (Change(Operation.CREATE, StateId(5, 7), "a", 30_000, NOW), delay_bytes.CREATE),
        (Change(Operation.STOP_WRITING, StateId(5, 8), "a", 300), delay_bytes.STOP_WRITING),
        (Change(Operation.DELETE, StateId(6, 9), "a"), delay_bytes.DELETE),
    ],
)
def test_operations_have_the_bytes_of_the_tables(change, data):
    """S003-19 to S003-23."""
    assert encode_change(change) == data
    assert [found for found, _ in decode_changes(data, StateId(0, 0))] == [change]
