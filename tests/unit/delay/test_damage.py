"""Damaged, torn and missing files of waiting messages: reported by file and byte, their neighbours come."""

import os

import pytest

from penstock.delay import checksums, file_names, file_reader
from penstock.delay import states as statefiles
from penstock.delay.records import NewRecord
from penstock.delay.waiting import WaitingMessages
from penstock.errors import Corrupt, NotDurable, UnknownFormat
from penstock.files import Files


@pytest.fixture
def folder(tmp_path, clock):
    """Ten blocks of ten messages each in one file."""
    with WaitingMessages(tmp_path / "delay", clock=clock) as waiting:
        for block in range(10):
            waiting.store_many(
                NewRecord(1000, bytes(16), "t", 0, b"%02d" % (block * 10 + n)) for n in range(10)
            )
    return tmp_path / "delay"


def only(folder, ending):
    (path,) = (folder / "1s").glob(f"*{ending}")
    return path


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def came(folder, clock):
    clock.advance("1s")
    with WaitingMessages(folder, clock=clock) as waiting:
        found = []
        while taken := waiting.take(7):
            found += [int(each.data) for each in taken]
            waiting.finish(taken)
        return found, waiting.damage


def test_a_flipped_bit_costs_its_block_and_is_named(folder, clock):
    data = only(folder, ".data")
    block = len(data.read_bytes()) // 10
    flip(data, 3 * block + 5)
    states = file_reader.stored_states(str(folder), Files())
    assert [each.byte for each in file_reader.damage(str(folder), Files(), states)] == [3 * block]
    found, damage = came(folder, clock)
    assert found == [n for n in range(100) if n // 10 != 3]
    assert [(type(each), each.path, each.byte) for each in damage] == [(Corrupt, str(data), 3 * block)]
    (kept,) = (folder / "1s").glob("*.damaged")
    assert len(kept.read_bytes()) == block, "people can look at it"


def test_a_damaged_checksum_costs_nothing(folder, clock):
    flip(only(folder, ".sums"), 4 * checksums.CURRENT.entry_bytes + 3)
    found, damage = came(folder, clock)
    assert found == list(range(100))
    assert damage == []


def test_a_damaged_last_checksum_ends_the_file_and_costs_nothing(folder, clock):
    flip(only(folder, ".sums"), 9 * checksums.CURRENT.entry_bytes)
    with WaitingMessages(folder, clock=clock) as waiting:
        waiting.store(wait=1, id=bytes(16), topic="t", data=b"100")
    found, damage = came(folder, clock)
    assert found == list(range(101))
    assert damage == []


def test_missing_checksums_cost_nothing(folder, clock):
    with WaitingMessages(folder, clock=clock) as waiting:
        clock.advance("2h")
        waiting._chains.chain(file_names.ChainName(1000, file_names.ChainKind.FIXED)).stop_if_over(0, 2**63)
    only(folder, ".sums").unlink()
    found, damage = came(folder, clock)
    assert found == list(range(100))
    assert damage == []


def test_a_missing_file_is_reported(folder, clock):
    path = only(folder, ".data")
    path.unlink()
    found, damage = came(folder, clock)
    assert found == []
    assert [each.path for each in damage] == [str(path)]


def test_half_a_record_behind_the_end_is_overwritten(folder, clock):
    """A process was killed between data and checksum, or within either."""
    with open(only(folder, ".data"), "ab") as file:
        file.write(b"half a record")
    with open(only(folder, ".sums"), "ab") as file:
        file.write(b"half")
    with WaitingMessages(folder, clock=clock) as waiting:
        waiting.store(wait=1, id=bytes(16), topic="t", data=b"100")
    found, damage = came(folder, clock)
    assert found == list(range(101))
    assert damage == []


@pytest.mark.parametrize("name", [statefiles.SNAPSHOT, statefiles.LOG])
@pytest.mark.parametrize("how", ["flip", "remove", "empty"])
def test_damaged_states_bring_every_message_again(folder, clock, name, how, caplog):
    """The data files are the truth: nothing is lost with the states."""
    with WaitingMessages(folder, clock=clock) as waiting:
        waiting.snapshot()
    path = folder / name
    if how == "flip":
        flip(path, 20)
    elif how == "remove":
        path.unlink()
    else:
        path.write_bytes(b"")
    assert came(folder, clock) == (list(range(100)), [])


def test_a_damaged_change_loses_no_file(folder, clock):
    """The creation of the only file is gone from the log: it is taken over."""
    flip(folder / statefiles.LOG, statefiles.HEADER_BYTES + 30)
    assert came(folder, clock) == (list(range(100)), [])


def test_states_of_a_newer_version_are_refused(folder, clock):
    path = folder / statefiles.LOG
    data = bytearray(path.read_bytes())
    data[12] = 9
    data[8:12] = statefiles.crc32(bytes(data[12:64])).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(UnknownFormat, match="version 9"):
        WaitingMessages(folder, clock=clock)


class _Failing(Files):
    broken = ""

    def sync(self, fd):
        if self.broken and os.readlink(f"/proc/self/fd/{fd}").endswith(self.broken):
            self.broken = ""
            raise OSError(5, "Input/output error")
        super().sync(fd)


@pytest.mark.parametrize("ending", [".data", ".sums"])
def test_after_a_failed_sync_the_next_message_goes_to_a_new_file(tmp_path, clock, ending):
    files = _Failing()
    with WaitingMessages(tmp_path / "delay", files, clock) as waiting:
        waiting.store(wait=1, id=bytes(16), topic="t", data=b"0")
        files.broken = ending
        with pytest.raises(NotDurable, match="sync"):
            waiting.store(wait=1, id=bytes(16), topic="t", data=b"1")
        waiting.store(wait=1, id=bytes(16), topic="t", data=b"2")
    assert len(list((tmp_path / "delay" / "1s").glob("*.data"))) == 2
    found, damage = came(tmp_path / "delay", clock)
    assert (found, damage) == ([0, 1, 2], []), "what was refused may come"
