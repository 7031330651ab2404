"""Queues against a plain model, in simulated time: readers come, go and die while they share messages."""

import time

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import penstock
from penstock import Retry
from penstock.testing import Clock
from tests.kit.patience import PATIENCE_S, wait_until

READERS = st.integers(0, 2)
LEASE_S = 10
LEASE = f"{LEASE_S}s"


class QueueOfThree(RuleBasedStateMachine):
    """`out`: who has a message and until when; `due`: what waits; `done`: what never comes again."""

    @initialize()
    def begin(self):
        self.clock = Clock()
        self.store = penstock.open(":memory:", clock=self.clock)
        self.topic = self.store.create_topic("jobs", sync="os")
        self.written = 0
        self.readers = [self.opened() for _ in range(3)]
        self.out, self.due, self.done = {}, {}, set()
        self.retried = set()
        self.attempts = {}

    def opened(self):
        retry = Retry(first="1s", attempts=10_000)
        return self.topic.reader(consumer="c", kind="queue", lease=LEASE, retry=retry)

    def now(self):
        return self.clock.monotonic()

    @rule(count=st.integers(1, 9))
    def write(self, count):
        self.topic.write_many([b"x"] * count)
        self.written += count

    @rule(seconds=st.sampled_from([1, 4, 11]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule(who=READERS, limit=st.integers(1, 5))
    def receive(self, who, limit):
        batch = self.received(who, limit)
        assert len(batch) <= limit
        if not batch:
            assert not self.free(), "something could have come"
        for message in batch:
            self.came(who, message)

    def received(self, who, limit):
        """What comes; what is due is brought by a thread, which is given a moment."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            batch = list(self.readers[who].receive_batch(limit, timeout=0))
            if batch or not self.free() or time.monotonic() > deadline:
                return batch
            time.sleep(0.005)

    def came(self, who, message):
        offset = message.offset
        assert offset not in self.done, "it is done"
        holder = self.out.pop(offset, None)
        assert holder is None or holder[1] <= self.now(), "another reader has it"
        assert self.due.pop(offset, 0) <= self.now(), "it waits"
        assert message.attempt == self.attempts.get(offset, 0) + 1
        self.attempts[offset] = message.attempt
        self.out[offset] = who, self.now() + LEASE_S, message

    def free(self):
        """What the next reader that asks may get."""
        held = {offset for offset, (_, until, _) in self.out.items() if until > self.now()}
        waiting = {offset for offset, due in self.due.items() if due > self.now()}
        return set(range(self.written)) - self.done - held - waiting

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def commit(self, data):
        offset = data.draw(st.sampled_from(sorted(self.out)))
        who, _, message = self.out.pop(offset)
        self.readers[who].commit(message)  # it has it, also when its time is up and nobody came
        self.done.add(offset)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), after=st.sampled_from([1, 5, 30]))
    def retry(self, data, after):
        offset = data.draw(st.sampled_from(sorted(self.out)))
        who, _, message = self.out.pop(offset)
        assert self.readers[who].retry(message, after=after, error="no")
        self.due[offset] = self.now() + after
        self.retried.add(offset)  # it is among what waits from now on, and no more in the log's account

    @rule(who=READERS)
    def close(self, who):
        self.readers[who].close()
        self.leave(who)

    @rule(who=READERS)
    def die(self, who):
        """Without a word: the files are closed, as the kernel does it."""
        self.readers[who].engine._end()
        self.readers[who].engine._closed = "killed"
        self.leave(who)
        for reader in self.readers:
            reader.engine._look_at = 0.0  # which happens by itself within a second

    def leave(self, who):
        for offset, (holder, _, message) in list(self.out.items()):
            if holder == who:
                self.out[offset] = who, self.now(), message
        self.readers[who] = self.opened()
        # What it had may only be settled by whoever gets it next.
        self.out = {o: each for o, each in self.out.items() if each[0] != who}

    @invariant()
    def the_position_is_the_first_that_is_not_done(self):
        if not hasattr(self, "store"):
            return
        (consumer,) = self.topic.consumers()
        expected = next((n for n in range(self.written) if n not in self.done | self.retried), self.written)
        assert consumer.positions[0] <= expected

    def takes_all(self):
        """Take and finish what comes; whether all of it has."""
        found = [(who, m) for who in range(3) for m in self.readers[who].receive_batch(50, timeout=0)]
        for who, message in found:
            self.came(who, message)
            self.readers[who].commit(message)
            self.done.add(message.offset)
            del self.out[message.offset]
        return not found and self.done >= set(range(self.written))

    def teardown(self):
        if not hasattr(self, "store"):
            return
        self.clock.advance(100)
        # A reader hears within a second of what another one has stored for later.
        wait_until(self.takes_all, "something was lost")
        assert self.done == set(range(self.written)), "something came that was never written"
        (consumer,) = self.topic.consumers()
        assert self.written == 0 or consumer.positions[0] == self.written
        self.store.close()


TestQueueOfThree = QueueOfThree.TestCase
TestQueueOfThree.settings = settings(max_examples=12, stateful_step_count=30, deadline=None)
