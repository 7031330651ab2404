"""Garbage in any file of a folder of waiting messages: no raw error, no hang, nothing lost in silence."""

import errno
import os

import pytest

from penstock.delay.records import uuid7
from penstock.delay.waiting import WaitingMessages
from penstock.errors import NotDurable, PenstockError
from penstock.files import Files

KINDS = ["scheduler", "states.lock", "states.log", "states.snapshot", "wake", "5s/*.data", "5s/*.sums",
         "ladder-5s/*.data", "ladder-5s/*.sums"]  # fmt: skip
HOWS = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "ones": lambda data: b"\xff" * max(len(data), 64),
    "zeros": lambda data: bytes(max(len(data), 64)),
    "noise": lambda data: bytes((n * 131 + 17) % 256 for n in range(max(len(data), 64))),
    "longer": lambda data: data + b"\x7f garbage behind it",
    "gone": None,
}


@pytest.fixture
def folder(tmp_path, clock):
    """Three messages in a chain and three on the ladder, and a snapshot, in a process that is gone."""
    with WaitingMessages(tmp_path / "delay", clock=clock) as waiting:
        for number in range(3):
            put(waiting, number, wait="5s")
            put(waiting, 3 + number, due_ms=clock.now_ns() // 1_000_000 + 6000)
        waiting.snapshot()
        waiting.take()
    return tmp_path / "delay"


def put(waiting, number, **when):
    waiting.store(id=uuid7(number), topic="t", data=b"%d" % number, **when)


def drained(waiting, clock):
    came = set()
    while (due := waiting.next_due()) is not None:
        clock.set(max(due * 1_000_000, clock.now_ns()))
        taken = waiting.take()
        came |= {int(each.data) for each in taken}
        waiting.finish(taken)
    return came


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", KINDS)
def test_garbage_in_a_file_is_healed_or_reported(folder, clock, kind, how):
    (path,) = folder.glob(kind)
    if HOWS[how] is None:
        path.unlink()
    else:
        path.write_bytes(HOWS[how](path.read_bytes()))
    with WaitingMessages(folder, clock=clock) as waiting:
        put(waiting, 6, wait="5s")
        put(waiting, 7, due_ms=clock.now_ns() // 1_000_000 + 6000)
        came = drained(waiting, clock)
        lost = set(range(8)) - came
        assert not lost or waiting.damage, f"{lost} are gone, and nobody says so"
        assert {6, 7} <= came, "what is stored afterwards is not concerned"
        if not kind.endswith(".data"):
            assert not lost, "the records are all there"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", ["scheduler", "states.lock", "wake"])
def test_garbage_under_an_open_folder_is_healed(folder, clock, kind, how):
    with WaitingMessages(folder, clock=clock) as waiting, WaitingMessages(folder, clock=clock) as other:
        assert waiting.take() == []
        (path,) = folder.glob(kind)
        if HOWS[how] is None:
            path.unlink()
        else:
            path.write_bytes(HOWS[how](path.read_bytes()))
        put(waiting, 6, wait="5s")
        put(other, 7, wait="5s")
        came, out = set(), 0
        while len(came) < 8 and out < 20:
            clock.advance("1s")
            out += 1
            for each in (waiting, other):
                try:
                    taken = each.take()
                    each.finish(taken)
                    came |= {int(one.data) for one in taken}
                except PenstockError:
                    pass  # what was out when the lock went comes again
        assert came == set(range(8))


class FailingSyncs(Files):
    """Syncs of files below a path fail as long as it says so."""

    failing = 0

    def sync(self, fd):
        if self.failing:
            self.failing -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)


@pytest.mark.parametrize("burst", [1, 2, 3, 5, 20])
def test_after_a_burst_of_failed_syncs_messages_are_stored_again(tmp_path, clock, burst):
    """A disk that was away for a moment: each call is refused or keeps its word, and then all go on."""
    files = FailingSyncs()
    with WaitingMessages(tmp_path / "delay", files, clock) as waiting:
        put(waiting, 0, wait="5s")
        files.failing, stored = burst, {0}
        for number in range(1, 30):
            try:
                put(waiting, number, wait="5s")
                stored.add(number)
            except (NotDurable, PenstockError):
                assert files.failing < burst
        assert not files.failing
        assert len(stored) >= 30 - burst
        assert stored >= {27, 28, 29}
        assert drained(waiting, clock) >= stored
