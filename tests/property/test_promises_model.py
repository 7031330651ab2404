"""All promises at once against a plain model: producers, shared consumers, transactions, kills.

Two stores on one folder stand for two processes. They write plainly, as producers that send again, as
producers that take each other over, and in transactions; two members read under one name and commit in
any order; an exactly-once pipeline copies orders to invoices. In between retention takes what is old,
partitions are added, consumers are moved, and all processes are killed: the next ones get a copy of the
folder as it was at that moment, in the midst of a commit for instance.
"""

import os
import shutil
from contextlib import suppress

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import penstock
from tests.crash.scenario import HandClock
from tests.crash.tracing import FIRST_BOOT, BootFiles
from tests.kit.consumers import TransactionPart
from tests.kit.logs import Appender, Producers, Repair, do_housekeeping, seal_segment
from tests.kit.logs import append_module as append
from tests.kit.logs import staging_module as staging
from tests.kit.stores import Transactions
from tests.kit.topics import inside
from tests.property.machines import at_length, everyday, must_notice, scratch_folder

MINUTE_NS = 60 * 10**9
ORDERS, INVOICES = "orders", "invoices"
which = st.integers(0, 1)
topics = st.sampled_from([ORDERS, INVOICES])
pairs = st.sampled_from([("a", None), ("b", None), ("a", "g")])
#: What is called in a commit, and whether the transaction is true by then.
STEPS = {
    (Appender, "announce"): False,
    (Transactions, "commit"): False,
    (Appender, "bring_in"): True,
    (Transactions, "finish"): True,
}


class Rollback(Exception):
    """Raised in a transaction that is not to be."""


class PromisesMachine(RuleBasedStateMachine):
    """Two topics, all that was promised about them, and all that was ever seen in them."""

    @initialize(
        partitions=st.integers(1, 2),
        retention=st.sampled_from([None, "1h"]),
        inline=st.sampled_from([99, 9999]),
    )
    def make(self, partitions, retention, inline):
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(staging, "INLINE_BYTES", inline)  # so that transactions take every way in
        self.patch.setattr(staging, "ADOPT_BYTES", 900)
        self.patch.setattr(append, "ADOPT_BYTES", 900)
        self.room = scratch_folder()
        self.lives, self.clock, self.boot = 0, HandClock(), FIRST_BOOT
        self._live()
        orders = self.stores[0].create_topic(
            ORDERS, partitions=partitions, retention=retention, segment_bytes=4096
        )
        self.stores[0].create_topic(INVOICES, segment_bytes=4096)
        orders.add_consumer("pipeline", important=True)
        self.count = 0
        #: (topic, partition, offset) → (pair, seqno, text) of everything that was ever seen.
        self.seen = {}
        #: Texts that must be there, or must never be.
        self.promised, self.forbidden = set(), set()
        #: (topic, pair) → how many of its messages, numbered 1, 2, 3 …, are acknowledged.
        self.acked = {}
        #: (partition, offset) that the members said are done, and up to where they need not say it.
        self.done, self.excused = set(), {}
        self.write(store=0, topic=ORDERS, count=6)

    def teardown(self):
        if hasattr(self, "stores"):
            self._die(close=True)
            self.patch.undo()
            shutil.rmtree(self.room, ignore_errors=True)

    # Writing.

    @rule(store=which, topic=topics, count=st.integers(1, 6))
    def write(self, store, topic, count):
        texts = self._texts("plain", count)
        self._topic(store, topic).write_many(texts, keys=[f"key-{len(text) % 3}" for text in texts])
        self.promised.update(texts)

    @rule(
        store=which,
        topic=topics,
        pair=pairs,
        back=st.integers(0, 9),
        count=st.integers(1, 9),
        flush=st.booleans(),
    )
    def send(self, store, topic, pair, back, count, flush):
        """Send from somewhere in what is acknowledged; without a flush it may still be lost."""
        acked = self.acked.setdefault((topic, pair), 0)
        first = max(acked - back, 0) + 1
        writer = self._topic(store, topic).writer(producer_id=pair[0], group=pair[1], linger=60)
        for number in range(first, first + count):
            writer.write(f"{topic}:{pair}:{number}", key=f"key-{number % 5}", seqno=number)
        self.sending.append((writer, topic, pair, first + count - 1))
        if flush:
            self.flush(-1)

    @precondition(lambda self: self.sending)
    @rule(place=st.integers(0, 9))
    def flush(self, place):
        writer, topic, pair, last = self.sending.pop(place % len(self.sending) if place >= 0 else -1)
        writer.flush()
        writer.close()
        assert writer.written + writer.skipped > 0
        self.acked[topic, pair] = max(self.acked[topic, pair], last)

    @rule(store=which, count=st.integers(1, 4))
    def take_over(self, store, count):
        """A new writer that counts; an older one may be open in either store."""
        writer = self._topic(store, ORDERS).writer(producer_id="counting", linger=60)
        self._count_on(writer, count)
        self.counting.append(writer)

    @precondition(lambda self: self.counting)
    @rule(place=st.integers(0, 9), count=st.integers(1, 4))
    def count_on(self, place, count):
        writer = self.counting.pop(place % len(self.counting))
        if not self.counting or writer is max([writer, *self.counting], key=self._age):
            self._count_on(writer, count)
            self.counting.append(writer)
            return
        (text,) = self._texts("fenced", 1)
        self.forbidden.add(text)
        writer.write(text, key="k")
        with pytest.raises(penstock.ProducerFenced):
            writer.flush()

    # Transactions.

    @rule(
        store=which, count=st.integers(1, 12), ending=st.sampled_from(["commit", "rollback", "error", *STEPS])
    )
    def transact(self, store, count, ending):
        texts = self._texts("together", 2 * count)
        if self._ends(ending, store, lambda tx: self._write_in(tx, texts)):
            self.promised.update(texts)
        else:
            self.forbidden.update(texts)

    @rule(
        store=which,
        most=st.integers(1, 9),
        ending=st.sampled_from(["commit", "commit", "rollback", "error", *STEPS]),
    )
    def copy(self, store, most, ending):
        """The exactly-once pipeline: an invoice for each order, committed together."""

        def body(tx):
            for message in reader.receive_batch(max_messages=most, timeout=0, tx=tx):
                tx.write(INVOICES, f"copy of {message.partition}/{message.offset}", key=message.key)

        reader = self._topic(store, ORDERS).reader(consumer="pipeline", follow=False)
        try:
            self._ends(ending, store, body)
        finally:
            reader.close()

    # Members.

    @precondition(lambda self: len(self.members) < 3)
    @rule(store=which)
    def join(self, store):
        reader = self._topic(store, ORDERS).reader(consumer="members", on_gap="skip")
        self.members.append((reader, []))

    @precondition(lambda self: self.members)
    @rule(place=st.integers(0, 2))
    def leave(self, place):
        self.members.pop(place % len(self.members))[0].close()

    @rule(
        place=st.integers(0, 2),
        most=st.integers(1, 9),
        chance=st.randoms(use_true_random=False),
        ending=st.sampled_from(["later", "commit", "transaction"]),
    )
    def receive(self, place, most, chance, ending):
        """Some of what was delivered so far is committed, in any order, one by one or with a message."""
        if not self.members:
            self.join(store=0)
        reader, delivered = self.members[place % len(self.members)]
        delivered += reader.receive_batch(max_messages=most, timeout=0).messages()
        if ending == "later":
            return
        chance.shuffle(delivered)
        half = len(delivered) // 2 + 1
        chosen, delivered[:] = delivered[:half], delivered[half:]
        if ending == "transaction":
            self._commit_together(reader, chosen)
            return
        for message in chosen:
            self.done.add((message.partition, message.offset))
            with suppress(penstock.PartitionLost):
                reader.commit(message)

    def _commit_together(self, reader, messages):
        """The message is there when the positions moved."""
        (text,) = self._texts("done", 1)
        self.forbidden.add(text)
        store = next(each for each in self.stores if reader.engine in inside(each.topic(ORDERS)).readers)
        with suppress(penstock.PartitionLost, penstock.UsageError), store.transaction() as tx:
            tx.write(INVOICES, text)
            for message in messages:
                reader.commit(message, tx=tx)
            self.done |= {(message.partition, message.offset) for message in messages}
        if tx.stored:
            self.forbidden.discard(text)
            self.promised.add(text)

    @rule(store=which, place=st.sampled_from(["earliest", "latest"]))
    def seek(self, store, place):
        topic = self._topic(store, ORDERS)
        topic.seek_consumer("members", place)
        for log in inside(topic).logs():
            self.excused[log.partition] = max(self.excused.get(log.partition, 0), log.bounds().end)

    # What happens meanwhile.

    @rule(store=which, topic=topics, minutes=st.integers(0, 90))
    def vacuum(self, store, topic, minutes):
        self.clock.forward(minutes * MINUTE_NS)
        self._topic(store, topic).vacuum()

    @rule(store=which, topic=topics, tidy=st.booleans())
    def seal(self, store, topic, tidy):
        log = inside(self._topic(store, topic)).log(0)
        seal_segment(log)
        if tidy:
            do_housekeeping(log)

    @rule(store=which, topic=topics)
    def add_partition(self, store, topic):
        found = self._topic(store, topic)
        inside(found).refresh()
        if found.options.partitions < 4:
            found.alter(partitions=found.options.partitions + 1)

    @rule(restart=st.booleans())
    def close_and_open(self, restart):
        for each in self.sending:
            self.acked[each[1:3]] = max(self.acked[each[1:3]], each[3])
        for store in self.stores:
            with suppress(penstock.ProducerFenced):
                store.close()
        self.boot += restart
        self._live()

    @rule(restart=st.booleans())
    def kill(self, restart):
        self._go_on_in(self._image(), restart)

    # What holds always.

    @invariant()
    def promises_hold(self):
        if not hasattr(self, "stores"):
            return
        for store in self.stores:
            store.flush_housekeeping()
        for name in (ORDERS, INVOICES):
            self._look_at(self._topic(0, name))
        texts = [text for _, _, text in self.seen.values()]
        assert len(texts) == len(set(texts)), "something is there twice"
        numbers = [(place[0], *told[:2]) for place, told in self.seen.items() if told[0][0]]
        assert len(numbers) == len(set(numbers)), "a seqno is there twice"
        known = set(texts)
        assert self.promised <= known
        assert not self.forbidden & known
        for (topic, pair), acked in self.acked.items():
            assert {f"{topic}:{pair}:{number}" for number in range(1, acked + 1)} <= known
        self._check_positions(known)

    def _look_at(self, topic):
        """What was seen stays what and where it is, until retention takes it; order is that of seqnos."""
        here, last = {}, {}
        for message in topic.scan().messages():
            pair = message.producer_id, message.group
            here[topic.name, message.partition, message.offset] = pair, message.seqno, message.text
            if message.seqno is not None:
                assert last.get((message.partition, pair), 0) < message.seqno
                last[message.partition, pair] = message.seqno
        for place, told in here.items():
            assert self.seen.setdefault(place, told) == told
        starts = {log.partition: log.bounds().start for log in inside(topic).logs()}
        assert topic.options.retention_ns is not None or not any(starts.values())
        for name, partition, offset in self.seen:
            if name == topic.name and offset >= starts[partition]:
                assert (name, partition, offset) in here, "something is gone"

    def _check_positions(self, known):
        """Invoices are of the orders before the pipeline's position; members moved over what is done."""
        stored = {each.consumer: each.positions for each in self._topic(0, ORDERS).consumers()}
        orders = [place[1:] for place in self.seen if place[0] == ORDERS]
        passed = {f"copy of {p}/{o}" for p, o in orders if o < stored["pipeline"].get(p, 0)}
        assert {text for text in known if text.startswith("copy")} == passed
        for partition, offset in orders:
            if self.excused.get(partition, 0) <= offset < stored.get("members", {}).get(partition, 0):
                trimmed = offset < inside(self._topic(0, ORDERS)).log(partition).bounds().start
                assert trimmed or (partition, offset) in self.done, "a position went too far"

    # Inside.

    def _texts(self, kind, count):
        self.count += count
        return [
            f"{kind} {number} " + "." * (number % 3 * 90) for number in range(self.count - count, self.count)
        ]

    def _count_on(self, writer, count):
        texts = self._texts("counted", count)
        for text in texts:
            writer.write(text, key=f"key-{len(text) % 3}")
        assert not any(receipt.duplicate for receipt in writer.flush())
        self.promised.update(texts)

    @staticmethod
    def _age(writer):
        """The newest writer that counts has the highest epoch."""
        return writer.producer.epochs[0, ""]

    def _write_in(self, tx, texts):
        for place, text in enumerate(texts):
            tx.write((ORDERS, INVOICES)[place % 2], text, key=f"key-{place % 5}")

    def _ends(self, ending, store, body):
        """Run a transaction up to an end; whether it became true."""
        if ending in STEPS:
            return self._ends_in_a_kill(ending, store, body)
        with suppress(Rollback), self.stores[store].transaction() as tx:
            body(tx)
            if ending == "rollback":
                tx.rollback()
            elif ending == "error":
                raise Rollback
        return ending == "commit"

    def _ends_in_a_kill(self, step, store, body):
        """All processes are killed when the commit comes to a step for the first time."""
        owner, name = step
        called, images = getattr(owner, name), []

        def hooked(*args, **kwargs):
            if not images:
                images.append(self._image())
            return called(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patch, self.stores[store].transaction() as tx:
            body(tx)
            is_empty = not tx.written
            patch.setattr(owner, name, hooked)
            tx.commit()
        assert images or is_empty
        self._go_on_in(images[0] if images else self._image(), restart=False)
        return STEPS[step]

    def _image(self):
        """The folder as a kill would leave it now."""
        self.lives += 1
        image = os.path.join(self.room, str(self.lives))
        with suppress(shutil.Error):  # indexes that are being made come and go; nothing depends on them
            shutil.copytree(self.folder, image, ignore=shutil.ignore_patterns("*.tmp"))
        return image

    def _go_on_in(self, image, restart):
        self._die(close=False)
        self.boot += restart
        self.folder = image
        self._live(image)

    def _live(self, folder=None):
        self.folder = folder or getattr(self, "folder", os.path.join(self.room, "0"))
        self.stores = [
            penstock.open(self.folder, files=BootFiles(self.boot), clock=self.clock) for _ in range(2)
        ]
        #: What is open: writers that have not flushed, writers that count, readers and what they got.
        self.sending, self.counting, self.members = [], [], []

    def _die(self, close):
        """What is left open writes to a folder that nobody will look at."""
        for store in self.stores:
            with suppress(penstock.PenstockError):
                store.close()
        if not close:
            shutil.rmtree(self.folder)

    def _topic(self, store, name):
        return self.stores[store].topic(name)


TestPromises = PromisesMachine.TestCase
TestPromises.settings = everyday(60, 30)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (Producers, "admit", lambda self, claim, a, durable: None),
        (Repair, "finish_transactions", lambda self, ends: ends),
        (TransactionPart, "moves", lambda self, consumer: ()),
    ],
)
def test_canary_a_broken_promise_is_noticed(monkeypatch, owner, name, broken):
    monkeypatch.setattr(owner, name, broken)
    must_notice(PromisesMachine, 300)


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestPromisesAtLength(PromisesMachine.TestCase):
    settings = at_length(400, 60)
