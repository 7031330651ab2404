"""Waiting messages against a plain model, in simulated time, with restarts and kills in between."""

import tempfile
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.delay.records import Entry
from penstock.delay.waiting import Waiting
from penstock.testing import Clock

LADDER = ("1s", "5s", "30s")
WAITS_MS = st.sampled_from([0, 1, 300, 1000, 1000, 1000, 1700, 5000, 5000, 8200, 30_000, 75_000])


class WaitingMessages(RuleBasedStateMachine):
    """`due`: from when on each may come; `out`: what was handed out; `maybe`: what may come again."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.numbers = count()
        self.due, self.wait = {}, {}
        self.out, self.maybe = {}, set()
        self.twice = []  # copies of what is out
        self.stored_again = set()  # an earlier copy of these may still lie there
        self.waiting = self.opened()

    def opened(self):
        return Waiting(
            self.folder.name, clock=self.clock, ladder=LADDER, sync="os", file_bytes=4096, file_age="10s"
        )

    def now(self):
        return self.clock.now_ns() // 1_000_000

    @rule(waits=st.lists(WAITS_MS, min_size=1, max_size=8), size=st.sampled_from([0, 700]))
    def store(self, waits, size):
        entries = []
        for wait in waits:
            number = next(self.numbers)
            self.due[number], self.wait[number] = self.now() + wait, wait
            entries.append(Entry(wait, bytes(16), "t", 0, b"%d " % number + bytes(size)))
        self.waiting.store_many(entries)

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 31.0]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule(limit=st.sampled_from([1, 3, 100]))
    def take(self, limit):
        taken = self.waiting.take(limit)
        assert [each.due for each in taken] == sorted(each.due for each in taken)
        last = {}
        for each in taken:
            number = int(each.data.split()[0])
            if number in self.maybe:
                # Finished before the kill, and not yet noted; or an earlier copy. It is out as any other now.
                self.due.setdefault(number, each.due)
                self.wait.setdefault(number, 0)
                if number in self.out:
                    self.twice.append(self.out[number])
            else:
                assert number in self.due, "it was finished"
                assert number not in self.out, "it is out already"
                assert self.due[number] <= self.now()
                wait = self.wait[number]
                if wait % 1000 == 0 and wait in (1000, 5000, 30_000) and each.attempts == 0:
                    assert number > last.get(wait, -1) or self.killed
                    last[wait] = number
            self.out[number] = each
        if len(taken) < limit:
            assert all(n in self.out for n, due in self.due.items() if due <= self.now() and not self.killed)

    killed = False

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def finish(self, data):
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.out)), unique=True, min_size=1))
        self.waiting.finish([self.out.pop(number) for number in chosen])
        for number in chosen:
            self.due.pop(number, None)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), wait=WAITS_MS)
    def again(self, data, wait):
        number = data.draw(st.sampled_from(sorted(self.out)))
        self.out.pop(number).again(wait / 1000)
        self.stored_again.add(number)
        self.due[number], self.wait[number] = self.now() + wait, wait

    @rule()
    def settle(self):
        self.waiting.settle()

    @rule()
    def snapshot(self):
        self.waiting.snapshot()

    @rule()
    def reopen(self):
        self.waiting.close()
        self.start_anew()

    @rule()
    def kill(self):
        """The process is gone without a word; what it finished behind something unfinished may come again."""
        self.waiting._closed = "killed"
        self.waiting._let_go()
        self.maybe.update((set(range(self.next_number())) - set(self.due)) | self.stored_again)
        self.start_anew()

    def start_anew(self):
        self.killed = True  # copies of what was out come later, and behind others
        self.out.clear()
        self.twice.clear()
        self.waiting = self.opened()

    def next_number(self):
        number = next(self.numbers)
        self.numbers = count(number)
        return number

    @invariant()
    def nothing_that_waits_is_missing(self):
        found = {int(record.data.split()[0]) for record in self.waiting.scan()}
        assert set(self.due) <= found
        assert self.waiting.count() >= len(self.due)

    def teardown(self):
        came = set()
        while (due := self.waiting.next_due()) is not None:
            self.clock.set(max(due * 1_000_000, self.clock.now_ns()))
            taken = self.waiting.take()
            came.update(int(each.data.split()[0]) for each in taken)
            self.waiting.finish(taken)
        held = [*self.out.values(), *self.twice]
        assert came | {int(each.data.split()[0]) for each in held} >= set(self.due)
        self.waiting.finish(held)
        self.waiting.close()
        with self.opened() as waiting:
            self.clock.advance("1h")
            while taken := waiting.take():
                waiting.finish(taken)
            assert waiting.count() == 0
        self.folder.cleanup()


TestWaitingMessages = WaitingMessages.TestCase
TestWaitingMessages.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
