"""Waiting messages against a plain model, in simulated time, with restarts and kills in between.

The model counts records. What a process has finished may lie in the files behind something unfinished: a kill
brings it again, once for each record, and a clean close never does. So each message comes as often as there
are records of it, and not once more.
"""

import tempfile
from collections import Counter
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.testing import Clock
from tests.kit.waiting import NewRecord, WaitingMessages

LADDER = ("1s", "5s", "30s")
#: 75 s go down it as 30, 30, 5, 5, 1, 1, 1, 1 and a rest.
HOPS_MOST = 8
#: Rungs, and all fixed delays: messages of one keep their order.
ALL_WAITS_MS = [0, 1, 300, 1000, 1000, 1000, 1700, 5000, 5000, 8200, 30_000, 75_000]
ORDERED = {(wait, True) for wait in ALL_WAITS_MS} | {(wait, False) for wait in (1000, 5000, 30_000)}
WAITS_MS = st.sampled_from(ALL_WAITS_MS)


def number_of(record):
    return int(record.data.split()[0])


class WaitingModel(RuleBasedStateMachine):
    """Messages have numbers, in the order in which they were first stored."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.numbers = count()
        self.due, self.wait = {}, {}  # of what is not finished: from when on it may come
        self.left = Counter()  # records that this process may still hand out
        self.out = []  # what it handed out and was not finished
        self.hopping = {}  # the waits of all that were stored, rungs of the ladder left out
        self.done = Counter()  # records it finished: after a kill they may be there again
        self.stale = (
            set()
        )  # messages of which a kill did bring such records back: those come before their time
        self.late = set()  # due when a process ended: copies of them come later, and behind others
        self.waiting = self.opened()

    def opened(self):
        return WaitingMessages(
            self.folder.name, clock=self.clock, ladder=LADDER, sync="os", file_bytes=4096, file_age="10s"
        )

    def now(self):
        return self.clock.now_ns() // 1_000_000

    @rule(
        waits=st.lists(WAITS_MS, min_size=1, max_size=8), size=st.sampled_from([0, 700]), fixed=st.booleans()
    )
    def store(self, waits, size, fixed):
        entries = []
        for wait in waits:
            number = next(self.numbers)
            self.due[number], self.wait[number] = self.now() + wait, (wait, fixed)
            if not fixed:
                self.note_hops(number, wait)
            self.left[number] += 1
            entries.append(NewRecord(wait, bytes(16), "t", 0, b"%d " % number + bytes(size)))
        self.waiting.store_many(entries, fixed=fixed)

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 31.0]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule(limit=st.sampled_from([1, 3, 100]))
    def take(self, limit):
        taken = self.waiting.take(limit)
        assert [each.due for each in taken] == sorted(each.due for each in taken)
        last = {}
        for each in taken:
            number = number_of(each)
            assert self.left[number] > 0, "it came more often than it lies there"
            self.left[number] -= 1
            if number not in self.stale:
                assert number in self.due, "it was finished"
                assert self.due[number] <= self.now()
                wait = self.wait[number]
                if wait in ORDERED and each.attempts == 0 and number not in self.late:
                    assert number > last.get(wait, -1), "equal waits came out of order"
                    last[wait] = number
            self.out.append(each)
        if len(taken) < limit:
            out = set(map(number_of, self.out))
            assert {n for n, due in self.due.items() if due <= self.now()} <= out | self.late

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def finish(self, data):
        places = data.draw(st.lists(st.sampled_from(range(len(self.out))), unique=True, min_size=1))
        chosen = [self.out[place] for place in places]
        self.waiting.finish(chosen)
        for each in chosen:
            self.ended(each)
            self.due.pop(number_of(each), None)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), wait=WAITS_MS, fixed=st.booleans())
    def again(self, data, wait, fixed):
        chosen = self.out[data.draw(st.sampled_from(range(len(self.out))))]
        number = number_of(chosen)
        chosen.again(wait / 1000, fixed=fixed)
        self.ended(chosen)
        if not fixed:
            self.note_hops(number, wait)
        self.left[number] += 1
        if self.left[number] == 1 and number not in map(number_of, self.out):
            self.stale.discard(number)  # only the new one is left
            self.late.discard(number)
        self.due[number], self.wait[number] = self.now() + wait, None

    def note_hops(self, number, wait):
        if wait not in (1000, 5000, 30_000):
            self.hopping[number] = max(wait, self.hopping.get(number, 0))

    def ended(self, taken):
        self.out.remove(taken)
        self.done[number_of(taken)] += 1

    @rule()
    def settle(self):
        """After that a kill brings nothing back that was finished."""
        self.waiting.settle()
        self.done.clear()

    @rule()
    def snapshot(self):
        self.waiting.snapshot()

    @rule()
    def reopen(self):
        self.waiting.close()
        self.start_anew(self.left + Counter(map(number_of, self.out)))

    @rule()
    def kill(self):
        """The process is gone without a word; what it finished behind something unfinished may come again."""
        self.waiting._closed = "killed"
        self.waiting._release()
        before = self.left + Counter(map(number_of, self.out))
        self.start_anew(before + self.done + self.hops())
        self.stale |= set(self.left - before)

    def hops(self):
        """Waits that go down the ladder may leave a record behind with each step."""
        return Counter({n: HOPS_MOST for n, wait in self.hopping.items() if wait >= 2000})

    def start_anew(self, at_most):
        self.late |= {n for n, due in self.due.items() if due <= self.now()}
        self.late |= set(map(number_of, self.out))
        self.out.clear()
        self.done.clear()
        self.waiting = self.opened()
        self.left = Counter(map(number_of, self.waiting.scan()))
        assert self.left <= at_most, "there is more than there was"
        self.stale &= set(self.left)

    @invariant()
    def nothing_that_waits_is_missing(self):
        found = Counter(map(number_of, self.waiting.scan()))
        assert set(self.due) <= set(found)
        assert self.waiting.count() == found.total()

    def teardown(self):
        came = set()
        while (due := self.waiting.next_due()) is not None:
            self.clock.set(max(due * 1_000_000, self.clock.now_ns()))
            taken = self.waiting.take()
            came.update(map(number_of, taken))
            self.waiting.finish(taken)
        assert came | set(map(number_of, self.out)) >= set(self.due)
        self.waiting.finish(self.out)
        self.waiting.close()
        with self.opened() as waiting:
            assert waiting.count() == 0, "a clean close leaves nothing of what is finished"
        self.folder.cleanup()


TestWaitingMessages = WaitingModel.TestCase
TestWaitingMessages.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
