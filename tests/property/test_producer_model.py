"""Producers against a plain model: whatever happens, in any order, each message is stored exactly once.

Two stores on one folder stand for two processes. Producers with seqnos of their own send again what they
like of what they have sent; producers that count are taken over now and then. In between segments are
sealed, repacked and trimmed, partitions added, syncs fail, and the machine is started anew.
"""

import errno
import os
import shutil
from contextlib import suppress

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import penstock
from tests.crash.hostile import HostileFiles
from tests.crash.scenario import HandClock
from tests.crash.tracing import FIRST_BOOT
from tests.kit.logs import PRODUCERS, Producers, do_housekeeping, seal_segment
from tests.kit.logs import producer_table_module as producer_table
from tests.kit.topics import PartitionTable, inside
from tests.property.machines import at_length, everyday, must_notice, scratch_folder

MINUTE_NS = 60 * 10**9
which = st.integers(0, 1)
given_pairs = st.sampled_from([("a", None), ("b", None), ("a", "g")])


class ProducerMachine(RuleBasedStateMachine):
    """One topic in two stores, producers with numbers 1, 2, 3 …, and what was promised to them."""

    @initialize(
        partitions=st.integers(1, 2),
        sync=st.sampled_from(["disk", "os"]),
        retention=st.sampled_from([None, "1h"]),
    )
    def make(self, partitions, sync, retention):
        self.folder = scratch_folder()
        self.clock, self.boot, self.fails = HandClock(), FIRST_BOOT, False
        self.stores = [self._opened(), self._opened()]
        self.stores[0].create_topic(
            "orders", partitions=partitions, sync=sync, retention=retention, segment_bytes=4096
        )
        #: How many messages of a pair are acknowledged.
        self.acked = {}
        self.unsure: set[str] = set()
        #: What a pair that counts was told is stored, by text.
        self.promised = {}
        #: (partition, offset) → (pair, seqno, text) of everything that was ever seen.
        self.seen = {}
        self.keys = {}
        self.counting = [None, None]
        self.texts = 0
        self.has_grown = False

    def teardown(self):
        if hasattr(self, "stores"):
            self.fails = False
            self._close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # Seqnos given by the caller.

    @rule(
        store=which, pair=given_pairs, back=st.integers(0, 12), count=st.integers(1, 12), many=st.booleans()
    )
    def send(self, store, pair, back, count, many):
        """Send from somewhere in what is acknowledged, without leaving anything out."""
        acked = self.acked.get(pair, 0)
        numbers = range(max(acked - back, 0) + 1, max(acked - back, 0) + 1 + count)
        self._send(store, pair, numbers, many)
        self.acked[pair] = max(acked, numbers[-1])

    @rule(store=which, pair=given_pairs, count=st.integers(1, 5))
    def send_to_a_disk_that_fails(self, store, pair, count):
        acked = self.acked.get(pair, 0)
        # Stored perhaps, known as a duplicate then, and gone with its age before anybody saw it.
        self.unsure |= {f"{pair}:{n}" for n in range(acked + 1, acked + 1 + count)}
        self.fails = True
        try:
            with suppress(penstock.NotDurable):
                self._send(store, pair, range(acked + 1, acked + 1 + count), many=False)
                if self._topic(0).options.sync == "os":
                    self.acked[pair] = acked + count
        finally:
            self.fails = False

    def _send(self, store, pair, numbers, many):
        producer, group = pair
        writer = self._topic(store).writer(producer_id=producer, group=group, linger=60)
        values, keys = [f"{pair}:{n}" for n in numbers], [f"key-{n % 5}" for n in numbers]
        try:
            if many:
                writer.write_many(values, keys=keys, seqnos=numbers)
            else:
                for number, value, key in zip(numbers, values, keys, strict=True):
                    writer.write(value, key=key, seqno=number)
            receipts = writer.flush()
        finally:
            with suppress(penstock.NotDurable):
                writer.close()
        assert len(receipts) == len(numbers) == writer.written + writer.skipped
        assert sum(r.duplicate for r in receipts) == writer.skipped

    # Seqnos counted by the writer.

    @rule(store=which)
    def take_over(self, store):
        """A new writer of the producer that counts; the other store's may still be open."""
        if self.counting[store] is not None:
            with suppress(penstock.PenstockError):
                self.counting[store].close()
        self.counting[store] = self._topic(store).writer(producer_id="counting", linger=60)
        self._count(store, 1)
        self.newest = store

    @precondition(lambda self: any(self.counting))
    @rule(store=which, count=st.integers(1, 5))
    def count_on(self, store, count):
        if self.counting[store] is None:
            return
        if store == self.newest:
            self._count(store, count)
            return
        self.texts += 1
        self.counting[store].write(f"fenced:{self.texts}", key="k")
        try:
            self.counting[store].flush()
        except penstock.ProducerFenced:
            self.counting[store] = None
        else:
            raise AssertionError("a writer that was taken over wrote on")

    def _count(self, store, count):
        texts = []
        for _ in range(count):
            self.texts += 1
            texts.append(f"counted:{self.texts}")
            self.counting[store].write(texts[-1], key=f"key-{self.texts % 5}")
        assert not any(r.duplicate for r in self.counting[store].flush())
        for text in texts:
            self.promised[text] = None

    # What happens meanwhile.

    @rule(store=which, partition=st.integers(0, 3), tidy=st.booleans())
    def seal(self, store, partition, tidy):
        partitions = inside(self._topic(store))
        partitions.refresh()
        log = partitions.log(partition % len(partitions.active()))
        seal_segment(log)
        if tidy:
            do_housekeeping(log)

    @rule(store=which, minutes=st.integers(0, 90))
    def vacuum(self, store, minutes):
        self.clock.forward(minutes * MINUTE_NS)
        self._topic(store).vacuum()

    @precondition(lambda self: len(inside(self._topic(0)).active()) < 4)
    @rule(store=which)
    def add_partition(self, store):
        topic = self._topic(store)
        inside(topic).refresh()
        topic.alter(partitions=len(inside(topic).active()) + 1)
        self.has_grown = True
        inside(self._topic(1 - store)).refresh()

    @rule(restart=st.booleans(), checkpoints=st.sampled_from(["kept", "newest gone", "newest damaged"]))
    def reopen(self, restart, checkpoints):
        self._close()
        if checkpoints != "kept":
            self._spoil(checkpoints)
        self.boot += restart
        self.stores = [self._opened(), self._opened()]

    @invariant()
    def each_message_is_there_once(self):
        if not hasattr(self, "stores"):
            return
        for store in self.stores:
            store.flush_housekeeping()
        here = {(m.partition, m.offset): m for m in self._topic(0).scan().messages()}
        for place, message in here.items():
            told = ((message.producer_id, message.group), message.seqno, message.text)
            self.keys[place] = message.key
            assert self.seen.setdefault(place, told) == told
        stored = [told[:2] for told in self.seen.values()]
        assert len(stored) == len(set(stored)), "twice"
        texts = {text for _, _, text in self.seen.values()}
        assert not any(text.startswith("fenced") for text in texts)
        for pair, acked in self.acked.items():
            assert {f"{pair}:{n}" for n in range(1, acked + 1)} <= texts | self.unsure
        assert self.promised.keys() <= texts
        self._check_order()

    def _check_order(self):
        """A key's messages are in order; where no key ever moved, all that a pair has in a partition."""
        last = {}
        for place, (pair, seqno, _) in sorted(self.seen.items()):
            lane = place[0], pair, self.keys[place] if self.has_grown else None
            assert last.get(lane, 0) < seqno
            last[lane] = seqno

    # Inside.

    def _topic(self, store):
        return self.stores[store].topic("orders")

    def _opened(self):
        return penstock.open(self.folder, files=HostileFiles(self._decide, self.boot), clock=self.clock)

    def _decide(self, call, path):
        return errno.EIO if self.fails and call == "sync" and path.endswith(".data") else 0

    def _close(self):
        self.counting = [None, None]
        for store in self.stores:
            with suppress(penstock.ProducerFenced, penstock.NotDurable):
                store.close()

    def _spoil(self, how):
        """The newest checkpoint of each partition that has an older one, or all its segments."""
        parts = os.path.join(self.folder, "topics", "orders", "parts")
        for part in os.listdir(parts):
            folder = os.path.join(parts, part)
            names = sorted(os.listdir(folder))
            found = [name for name in names if name.endswith(".producers") and ".gate" not in name]
            if len(found) > 1 or (found and f"{0:020d}.data" in names):
                path = os.path.join(folder, found[-1])
                if how == "newest gone":
                    os.unlink(path)
                else:
                    with open(path, "r+b") as file:
                        file.write(b"damaged!")


TestProducers = ProducerMachine.TestCase
TestProducers.settings = everyday(80, 25)


def _take_any_checkpoint(folder, offset, kind=PRODUCERS, load=producer_table.load):
    """One that is damaged counts as one that holds nothing."""
    found = load(folder, offset, kind)
    return found._replace(facts=found.facts or producer_table.ProducerTable()) if found.is_there else found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (producer_table, "load", _take_any_checkpoint),
        (Producers, "admit", lambda self, claim, a, durable: None),
        (PartitionTable, "stored_elsewhere", lambda self, batch, partition, pair, choose: []),
        (producer_table, "_learn_each", lambda facts, found: None),
    ],
)
def test_canary_producers_that_do_not_behave_are_noticed(monkeypatch, owner, name, broken):
    monkeypatch.setattr(owner, name, broken)
    must_notice(ProducerMachine, 300)


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestProducersAtLength(ProducerMachine.TestCase):
    settings = at_length(500, 60)
