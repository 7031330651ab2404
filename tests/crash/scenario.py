"""A scripted run over a store, with a note of everything it was promised.

Two openings of the same folder (as two processes have it) write, read, commit, roll, tidy, vacuum,
add partitions, drop and create topics, and meet a disk that fails to sync, in an order that the
seed decides. What comes out is a trace: file calls, and between them marks:

    attempt    values that are being written from here on        (topic id, values)
    acked      a message that was acknowledged                   (topic id, partition, offset, value, sync)
    read       a message that a reader got                       (topic id, partition, offset, value)
    committed  a position that was stored                        (topic id, consumer, partition, position)
    together   values of one transaction: all are there or none  ([(topic id, value), …])
    moving     a position that moves with them, or does not      (topic id, consumer, partition, to, values)
    sending    messages of a producer, to be stored once each    (topic id, producer, group, [Sent, …])
    stored     one of them that was acknowledged, wherever it is (topic id, value, sync)
    start      how far retention may move the start from here on (topic id, partition, offset)
    created, altered, dropping, dropped                          (topic id, …)
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pytest

import penstock
from penstock import Clock, Store, Topic, Transaction, Writer
from penstock.errors import NotDurable, ProducerFenced
from tests.crash.tracing import Trace, TracingFiles, traced_commits
from tests.kit.frames import frame_encode_module as frame_encode
from tests.kit.logs import append_module as append
from tests.kit.logs import do_housekeeping, seal_segment
from tests.kit.logs import staging_module as staging
from tests.kit.system import NANOSECONDS
from tests.kit.topics import inside

#: The store's folder, below the scratch folder whose calls are traced.
STORE = "store"
HOUR_NS = 3600 * NANOSECONDS
AUDIT, PLAIN, COPYING = "audit", "plain", "copying"
COUNTING = "counting"


class Sent(NamedTuple):
    """A message of a producer that numbers its messages itself."""

    seqno: int
    key: bytes
    value: bytes


class Stream:
    """What a producer has sent so far; the first `acked` of it are acknowledged."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.acked = 0

    def add(self, values: list[bytes], chance: random.Random) -> None:
        """Messages to come, with gaps between their numbers now and then."""
        for value in values:
            last = self.sent[-1].seqno if self.sent else 0
            self.sent.append(Sent(last + chance.choice([1, 1, 1, 5]), b"k%d" % chance.randrange(5), value))


class HandClock(Clock):
    """A clock that stands still until it is moved."""

    def __init__(self, now_ns: int = 1_700_000_000 * NANOSECONDS) -> None:
        self.now = now_ns

    def now_ns(self) -> int:  # type: ignore[override]
        return self.now

    def forward(self, ns: int) -> None:
        self.now += ns


class Run:
    """One scripted run; `trace` is what it leaves."""

    def __init__(self, folder: str, seed: int, files: type[TracingFiles] = TracingFiles) -> None:
        self.chance = random.Random(seed)
        self.trace = Trace()
        self.clock = HandClock()
        self.files = files(folder, self.trace)
        self._path = os.path.join(folder, STORE)
        self._stores: list[Store] = []
        self._count = 0
        #: (topic id, producer, group) → what it has sent.
        self._streams: dict[tuple[int, str, str | None], Stream] = {}
        self._failing = False
        self.files.fails = self._fails

    def play(self, steps: int) -> Trace:
        """Set up three topics, take `steps` random steps, close."""
        with traced_commits(self.trace), pytest.MonkeyPatch.context() as patch:
            patch.setattr(frame_encode, "FRAME_MESSAGES", 3)  # so that one write makes several frames
            patch.setattr(staging, "INLINE_BYTES", 400)  # so that transactions take every way in
            patch.setattr(staging, "ADOPT_BYTES", 900)
            patch.setattr(append, "ADOPT_BYTES", 900)
            self._stores = [self._open(), self._open()]
            self._create("ledger", partitions=2, segment_bytes=4096)
            self._create("clicks", sync="os", segment_bytes=4096)
            brief = self._create("brief", retention="1h", segment_bytes=4096, index="key")
            brief.add_consumer(AUDIT, important=True)
            for _ in range(steps):
                self._step()
                self.clock.forward(NANOSECONDS)
            for store in self._stores:
                try:
                    store.close()
                except NotDurable:
                    assert self._met_failure, "no sync failed in this run"
        return self.trace

    def _step(self) -> None:
        choices: list[tuple[int, Callable[[], None]]] = [
            (10, self._write),
            (6, self._write_many),
            (4, self._write_buffered),
            (4, self._read_as_consumer),
            (2, self._read_all),
            (2, self._vacuum),
            (1, self._seal_and_tidy),
            (1, self._add_partition),
            (1, self._drop_and_create),
            (1, self._reopen),
            (1, self._write_to_failing_disk),
            (5, self._transact),
            (1, self._transact_and_roll_back),
            (4, self._copy),
            (5, self._send),
            (2, self._take_over),
        ]
        weights, steps = zip(*choices, strict=True)
        step = self.chance.choices(steps, weights)[0]
        with self._starts_noted():
            self._failed = False
            try:
                step()
            except NotDurable:
                assert self._met_failure, "no sync failed in this run"
            finally:
                self._failing = False
            for store in self._stores:
                store.flush_housekeeping()

    # Steps.

    def _write(self) -> None:
        topic = self._topic()
        (value,) = self._values(topic, 1)
        key = self.chance.choice([None, b"", b"k%d" % self.chance.randrange(5)])
        receipt = topic.write(value, key=key)
        self._acked(topic, receipt.partition, receipt.offset, value, receipt.sync)

    def _write_many(self) -> None:
        topic = self._topic()
        values = self._values(topic, self.chance.randrange(1, 8))
        keys = [b"k%d" % self.chance.randrange(5) for _ in values]
        for value, receipt in zip(values, topic.write_many(values, keys=keys), strict=True):
            self._acked(topic, receipt.partition, receipt.offset, value, receipt.sync)

    def _write_buffered(self) -> None:
        topic = self._topic()
        sync = self.chance.choice([None, "os"])
        partition = self.chance.randrange(topic.options.partitions)
        values = self._values(topic, self.chance.randrange(1, 6))
        with topic.writer(linger=10, sync=sync) as writer:
            for value in values:
                writer.write(value, partition=partition)
            for value, receipt in zip(values, writer.flush(), strict=True):
                self._acked(topic, receipt.partition, receipt.offset, value, receipt.sync)

    def _read_as_consumer(self) -> None:
        topic = self._topic()
        consumer = AUDIT if topic.name == "brief" and self.chance.random() < 0.5 else PLAIN
        with topic.reader(consumer=consumer, follow=False, on_gap="skip") as reader:
            messages = []
            for _ in range(self.chance.randrange(1, 12)):
                message = reader.receive()
                if message is None:
                    break
                assert message.value is not None
                self.trace.mark("read", topic.id, message.partition, message.offset, message.value)
                messages.append(message)
            self.chance.shuffle(messages)
            for message in messages:
                reader.commit(message)
                position = reader.engine[topic.name, message.partition].commits.position
                self.trace.mark("committed", topic.id, consumer, message.partition, position)

    def _read_all(self) -> None:
        topic = self._topic()
        for message in topic.scan().messages():
            self.trace.mark("read", topic.id, message.partition, message.offset, message.value)

    def _vacuum(self) -> None:
        self.clock.forward(self.chance.randrange(HOUR_NS))
        self.chance.choice(self._stores).topic("brief").vacuum()

    def _seal_and_tidy(self) -> None:
        log = inside(self._topic()).log(0)
        seal_segment(log)
        do_housekeeping(log)

    def _add_partition(self) -> None:
        topic = self._topic()
        if topic.options.partitions < 4:
            topic.alter(partitions=topic.options.partitions + 1)
            self.trace.mark("altered", topic.id, topic.options.partitions)

    def _drop_and_create(self) -> None:
        store = self.chance.choice(self._stores)
        topic = store.topic("ledger")
        self.trace.mark("dropping", topic.id)
        store.drop_topic("ledger")
        self.trace.mark("dropped", topic.id)
        self._create("ledger", partitions=self.chance.randrange(1, 3), segment_bytes=4096)

    def _reopen(self) -> None:
        which = self.chance.randrange(2)
        try:
            self._stores[which].close()
        finally:
            self._stores[which] = self._open()

    def _write_to_failing_disk(self) -> None:
        self._failing = self._met_failure = True
        steps = [self._write, self._write_many, self._write_buffered, self._transact, self._copy, self._send]
        self.chance.choice(steps)()

    def _transact(self) -> None:
        store = self.chance.choice(self._stores)
        with store.transaction() as transaction:
            written = self._write_in(transaction, store)
        self._acked_together(transaction, store, written)

    def _transact_and_roll_back(self) -> None:
        transaction = (store := self.chance.choice(self._stores)).transaction()
        self._write_in(transaction, store)
        transaction.rollback()

    def _write_in(self, transaction: Transaction, store: Store) -> dict[tuple[int, int], list[bytes]]:
        """Write to some partitions of some topics; what went where."""
        written: dict[tuple[int, int], list[bytes]] = {}
        names = self.chance.sample(["ledger", "clicks", "brief"], self.chance.randrange(1, 4))
        for topic in map(store.topic, names):
            for value in self._values(topic, self.chance.randrange(1, 9)):
                partition = self.chance.randrange(topic.options.partitions)
                transaction.write(topic, value, partition=partition)
                written.setdefault((topic.id, partition), []).append(value)
        self.trace.mark(
            "together", [(topic_id, value) for (topic_id, _), values in written.items() for value in values]
        )
        return written

    def _copy(self) -> None:
        """What is read of one topic is written to another, and committed with it."""
        store = self.chance.choice(self._stores)
        source, target = map(store.topic, self.chance.sample(["ledger", "clicks"], 2))
        with source.reader(consumer=COPYING, follow=False, on_gap="skip") as reader:
            with store.transaction() as transaction:
                batch = reader.receive_batch(max_messages=self.chance.randrange(1, 5), tx=transaction)
                values = self._values(target, len(batch))
                partition = self.chance.randrange(target.options.partitions)
                for value in values:
                    transaction.write(target, value, partition=partition)
                if not batch:
                    return
                together = [(target.id, value) for value in values]
                self.trace.mark("together", together)
                last = batch[-1]
                self.trace.mark("moving", source.id, COPYING, last.partition, last.offset + 1, together)
            self.trace.mark("committed", source.id, COPYING, last.partition, last.offset + 1)
            self._acked_together(transaction, store, {(target.id, partition): values})

    def _send(self) -> None:
        """A producer sends what was not acknowledged, some of what was, and something new."""
        topic = self._topic()
        producer, group = self.chance.choice([("a", None), ("b", None), ("a", "g")])
        stream = self._streams.setdefault((topic.id, producer, group), Stream())
        first = max(stream.acked - self.chance.choice([0, 0, 2, 5]), 0)
        stream.add(self._values(topic, self.chance.randrange(1, 6)), self.chance)
        messages = stream.sent[first:]
        self.trace.mark("sending", topic.id, producer, group, list(stream.sent))
        writer = topic.writer(producer_id=producer, group=group, linger=10)
        try:
            for message in messages:
                writer.write(message.value, key=message.key, seqno=message.seqno)
            writer.flush()
        finally:
            with suppress(NotDurable):  # which flush has raised
                writer.close()
        for message in messages:
            self.trace.mark("stored", topic.id, message.value, topic.options.sync)
        stream.acked = len(stream.sent)

    def _take_over(self) -> None:
        """Of two writers that count, the newer goes on, and nothing of the older is stored from then on."""
        name = self.chance.choice(["ledger", "clicks", "brief"])
        older, newer = (store.topic(name).writer(producer_id=COUNTING, linger=10) for store in self._stores)
        try:
            self._count_on(self._stores[0].topic(name), older)
            self._count_on(self._stores[1].topic(name), newer)
            older.write(b"fenced", key=b"k0")
            try:
                older.flush()
            except ProducerFenced:
                return
            raise AssertionError("the older writer was not fenced")
        finally:
            for writer in (older, newer):
                with suppress(ProducerFenced, NotDurable):
                    writer.close()

    def _count_on(self, topic: Topic, writer: Writer) -> None:
        values = self._values(topic, self.chance.randrange(1, 4))
        for value in values:
            writer.write(value, key=b"k%d" % self.chance.randrange(5))
        assert not any(receipt.duplicate for receipt in writer.flush())
        for value in values:
            self.trace.mark("stored", topic.id, value, topic.options.sync)

    # Inside.

    #: Whether a sync failed: in this run, in this step.
    _met_failure = _failed = False

    def _acked_together(
        self, transaction: Transaction, store: Store, written: dict[tuple[int, int], list[bytes]]
    ) -> None:
        for topic_id, runs in ((store.topic(name).id, runs) for name, runs in transaction.stored.items()):
            for run in runs:
                for place, value in enumerate(written[topic_id, run.partition]):
                    self.trace.mark("acked", topic_id, run.partition, run.first + place, value, "disk")

    def _fails(self, path: str) -> bool:
        fails = self._failing and path.endswith(".data") and self.chance.random() < 0.5
        if fails:
            self._failing, self._failed = False, True
            self.trace.mark("sync_failed")
        return fails

    def _open(self) -> Store:
        return penstock.open(self._path, files=self.files, clock=self.clock)

    def _topic(self) -> Topic:
        return self.chance.choice(self._stores).topic(self.chance.choice(["ledger", "clicks", "brief"]))

    def _create(self, name: str, **options: object) -> Topic:
        topic = self.chance.choice(self._stores).create_topic(name, **options)
        self.trace.mark("created", topic.id, name, topic.options.partitions, topic.options.sync)
        return topic

    def _values(self, topic: Topic, count: int) -> list[bytes]:
        values = []
        for _ in range(count):
            self._count += 1
            padding = b"." * self.chance.choice([0, 3, 40, 300, 700])
            values.append(b"%s %d %s" % (topic.name.encode(), self._count, padding))
        self.trace.mark("attempt", topic.id, values)
        return values

    def _acked(self, topic: Topic, partition: int, offset: int, value: bytes, sync: str) -> None:
        with self.trace.mutex:
            # The thread that syncs behind an early acknowledgement may have failed before we come to note it.
            if not (self._failed and sync == "os" and topic.options.sync == "disk"):
                self.trace.mark("acked", topic.id, partition, offset, value, sync)

    @contextmanager
    def _starts_noted(self) -> Iterator[None]:
        """Where retention moved a start, allow it from before the step on."""
        before = len(self.trace)
        starts = self._starts()
        yield
        for (topic_id, partition), start in self._starts().items():
            if start != starts.get((topic_id, partition), 0):
                self.trace.mark("start", topic_id, partition, start, at=before)

    def _starts(self) -> dict[tuple[int, int], int]:
        topic = self._stores[0].topic("brief")
        return {(topic.id, log.partition): log.bounds().start for log in inside(topic).logs()}
