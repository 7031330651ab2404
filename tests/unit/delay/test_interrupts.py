"""Ctrl-C at any file call: no lock stays taken, nothing is lost, and the same object goes on."""

import random

import pytest

from penstock.delay.records import NewRecord
from penstock.delay.waiting import WaitingMessages
from penstock.errors import TakenElsewhere
from penstock.files import Files
from penstock.testing import Clock


class Interrupting(Files):
    """Raises KeyboardInterrupt before or after a call of our choice."""

    left = None
    before = True

    def _at(self, call, *arguments):
        if self.left is None:
            return call(*arguments)
        self.left -= 1
        if self.left < 0 and self.before:
            self.left = None
            raise KeyboardInterrupt
        result = call(*arguments)
        if self.left is not None and self.left < 0:
            self.left = None
            raise KeyboardInterrupt
        return result

    def pread(self, *arguments):
        return self._at(super().pread, *arguments)

    def pwrite(self, *arguments):
        return self._at(super().pwrite, *arguments)

    def sync(self, fd):
        return self._at(super().sync, fd)

    def rename(self, *arguments):
        return self._at(super().rename, *arguments)

    def unlink(self, path):
        return self._at(super().unlink, path)

    def size(self, fd):
        return self._at(super().size, fd)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_by_ctrl_c(tmp_path, seed):
    chance, files, clock = random.Random(seed), Interrupting(), Clock()
    waiting = WaitingMessages(
        tmp_path / "delay", files, clock, ladder=["1s", "5s"], file_bytes=4096, file_age="9s", sync="os"
    )
    numbers, stored, came, out = iter(range(10_000)), set(), set(), []

    def store():
        fresh = [next(numbers) for _ in range(5)]
        waits = [0, 300, 1000, 1500, 5000, 7300]
        waiting.store_many(
            NewRecord(chance.choice(waits), bytes(16), "t", 0, b"%d %s" % (n, bytes(90))) for n in fresh
        )
        stored.update(fresh)

    def take():
        taken = waiting.take(7)
        out.extend(taken)
        came.update(int(each.data.split()[0]) for each in taken)

    def finish():
        chosen = [each for each in out if chance.random() < 0.6]
        out[:] = [each for each in out if each not in chosen]
        try:
            waiting.finish(chosen)
        except TakenElsewhere:  # what was out when a take was interrupted comes again
            out.clear()

    for _ in range(120):
        clock.advance(chance.choice([0.1, 1.0, 3.0]))
        files.left, files.before = chance.choice([None, *range(12)]), chance.random() < 0.5
        try:
            chance.choice([store, take, finish, waiting.settle, waiting.snapshot])()
        except KeyboardInterrupt:
            pass
        except TakenElsewhere:
            out.clear()
    files.left = None
    waiting.close()
    with WaitingMessages(tmp_path / "delay", clock=clock, ladder=["1s", "5s"], sync="os") as again:
        while (due := again.next_due()) is not None:
            clock.set(max(due * 1_000_000, clock.now_ns()))
            taken = again.take()
            came.update(int(each.data.split()[0]) for each in taken)
            again.finish(taken)
        assert again.count() == 0
    assert stored <= came
