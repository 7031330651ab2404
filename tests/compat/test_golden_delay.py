"""Files of waiting messages, made by hand from the byte tables: they are read, and written just the same."""

import shutil

import pytest

from penstock.testing import Clock
from tests.compat import delay_bytes
from tests.compat.delay_bytes import DUE, FIRST_ID, NOW, SECOND_ID
from tests.compat.make_golden import GOLDEN_DELAY, FixedFiles
from tests.kit.waiting import Change, Operation, StateId, WaitingMessages, decode_changes, encode_change

NS = 1_000_000


def opened(folder, clock):
    return WaitingMessages(folder, FixedFiles(), clock, ladder=["30s"], sync="os")


def test_the_golden_files_are_those_of_the_tables():
    found = {str(path.relative_to(GOLDEN_DELAY)): path for path in GOLDEN_DELAY.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == delay_bytes.FILES


def test_the_golden_files_are_read(tmp_path):
    """S003-06, S003-17, S003-18: records, snapshot and log as the seed lays them out."""
    folder = shutil.copytree(GOLDEN_DELAY, tmp_path / "delay")
    clock = Clock((DUE + 1500) * NS)
    with opened(folder, clock) as waiting:
        assert waiting.count() == 1, "the first is finished"
        (taken,) = waiting.take()
        assert (taken.due, taken.id, taken.topic) == (DUE + 1500, SECOND_ID, "orders")
        assert (taken.attempts, taken.data) == (128, b"world")


def test_the_same_messages_make_the_same_files(tmp_path):
    clock = Clock(NOW * NS)
    with opened(tmp_path / "delay", clock) as waiting:
        waiting.store(wait="30s", id=FIRST_ID, topic="orders", attempts=3, data=b"hello")
        waiting.store(wait=31.5, id=SECOND_ID, topic="orders", attempts=128, data=b"world")
        waiting.snapshot()
        clock.advance("30s")
        (taken,) = waiting.take()
        taken.done()
        found = {name: (tmp_path / "delay" / name).read_bytes() for name in delay_bytes.FILES}
    assert found == delay_bytes.FILES


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
