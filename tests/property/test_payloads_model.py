"""Whatever is written, rolled back, sent twice and trimmed: no body is lost, and none is left over."""

import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import penstock
from penstock import Payloads
from penstock.testing import Clock
from tests.kit.topics import inside

#: Around the threshold of 100 bytes, and that of packs, 300; 0 is an empty value, None a tombstone.
SIZES = st.one_of(st.none(), st.sampled_from([0, 1, 100, 101, 250, 300, 301, 700]))
BATCHES = st.lists(SIZES, min_size=1, max_size=6)


class PayloadsModel(RuleBasedStateMachine):
    @initialize(partitions=st.integers(1, 2))
    def begin(self, partitions):
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-model-")
        self.clock = Clock()
        self.count = self.seqno = 0
        self.expected = {number: [] for number in range(partitions)}
        self.starts = dict.fromkeys(range(partitions), 0)
        self._open()
        options = Payloads(above=100, pack=300)
        self.topic = self.store.create_topic(
            "t", payloads=options, partitions=partitions, retention="1h", sync="os", segment_bytes=4096
        )
        self.topic.add_consumer("slow", important=True)

    def _open(self):
        self.store = penstock.open(self.folder.name, clock=self.clock)

    def _value(self, size):
        self.count += 1
        return None if size is None else (b"%d," % self.count * 800)[:size]

    def _values(self, sizes, partition):
        number = partition % len(self.expected)
        return number, [self._value(size) for size in sizes]

    @rule(sizes=BATCHES, partition=st.integers(0, 1))
    def write_many(self, sizes, partition):
        number, values = self._values(sizes, partition)
        self.topic.write_many(values, partition=number)
        self.expected[number] += values

    @rule(size=SIZES, partition=st.integers(0, 1))
    def write(self, size, partition):
        number, [value] = self._values([size], partition)
        self.topic.write(value, partition=number)
        self.expected[number].append(value)

    @precondition(lambda self: len(self.expected) == 1)
    @rule(sizes=BATCHES, again=st.integers(0, 3))
    def produce(self, sizes, again):
        """Some of them were sent before."""
        _, values = self._values(sizes, 0)
        known = min(again, self.seqno)
        seqnos = range(self.seqno - known + 1, self.seqno - known + 1 + len(values))
        with self.topic.writer(producer_id="p") as writer:
            writer.write_many(values, seqnos=seqnos)
        self.expected[0] += values[known:]
        self.seqno = max(self.seqno, seqnos[-1])

    @rule(sizes=BATCHES, partition=st.integers(0, 1), committed=st.booleans())
    def transact(self, sizes, partition, committed):
        number, values = self._values(sizes, partition)
        tx = self.store.transaction()
        for value in values[:2]:
            tx.write("t", value, partition=number)
        tx.write_many("t", values[2:], partition=number)
        if committed:
            tx.commit()
            self.expected[number] += values
        else:
            tx.rollback()

    @rule(steps=st.integers(1, 4), partition=st.integers(0, 1))
    def trim(self, steps, partition):
        """Everything is old, and goes as far as the slow consumer has read."""
        number = partition % len(self.expected)
        self.starts[number] = min(self.starts[number] + steps, len(self.expected[number]))
        self.clock.advance(7200)
        assert self.store.flush_housekeeping()  # a vacuum leaves a partition that another is at
        self.topic.seek_consumer("slow", {number: self.starts[number]})
        assert self.topic.vacuum().bodies_left == 0

    @rule()
    def reopen(self):
        self.store.close()
        self._open()
        self.topic = self.store.topic("t")

    @invariant()
    def values_are_right_and_bodies_are_exactly_those_referred_to(self):
        if not hasattr(self, "topic"):
            return
        referred = set()
        for number, expected in self.expected.items():
            found = list(self.topic.scan(partition=number).messages())
            assert [m.value for m in found] == expected[self.starts[number] :]
            referred |= {m.reference.name for m in found if m.reference is not None}
            assert all((m.reference is not None) == (len(m.value or b"") > 100) for m in found)
        [bodies] = inside(self.topic).bodies.stores().values()
        assert {each.name for each in bodies.list()} == referred

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


TestPayloadsModel = PayloadsModel.TestCase
TestPayloadsModel.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
