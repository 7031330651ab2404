"""A scripted run over everything that stores something, and the account of what it was promised.

Each step may fail, with an error of ours that says what to do; the journey does as it says: it goes on, sends
again, or asks once more under the same name. `check` opens the store on a disk that is well and compares.
"""

from __future__ import annotations

import os
import random
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import penstock
from penstock import PenstockError, Store, Topic
from tests.kit.stores import StoreVerifier
from tests.kit.system import Files

ORDERS, AUDIT, JOBS, SENT, LATER, STREAM = "orders", "audit", "jobs", "sent", "later", "stream"
SPLIT = "split"
_SMALL = {"segment_bytes": 4096}
#: How long a journey waits for what is due, when all is well again.
_DRAIN_S = 120.0
_PLACES = 5
_COMES_AGAIN = re.compile(f"^{LATER}: twice|^verify: a damaged entry: .* delivered again")


class Account:
    """What was tried and what was acknowledged, by kind."""

    def __init__(self) -> None:
        #: Kind → values that may be there, and those that must.
        self.tried: dict[str, set[str]] = {}
        self.promised: dict[str, set[str]] = {}
        #: Kinds of errors that were met.
        self.errors: Counter[str] = Counter()
        #: Anything that must not happen.
        self.problems: list[str] = []

    def try_(self, kind: str, value: str) -> None:
        self.tried.setdefault(kind, set()).add(value)

    def promise(self, kind: str, value: str) -> None:
        self.promised.setdefault(kind, set()).add(value)


class Journey:
    """One run in one process; `play` may be called again, after the disk was mended, say."""

    def __init__(
        self, folder: str, seed: int, files: Files | None = None, *, account: Account | None = None,
        last_seqno: int = 0,
    ) -> None:  # fmt: skip
        """`last_seqno` is the last one that was acknowledged to the producer in an earlier journey."""
        self.folder = folder
        self.account = account or Account()
        self._seed = seed
        self._files = files or Files()
        self._chance = random.Random(seed)
        self._store: Store | None = None
        self._number = 0
        self._acked_seqno = self._last_seqno = last_seqno
        self._transactions = 0

    def play(self, steps: int) -> None:
        """Do things at random. Errors of ours are noted; others are problems."""
        acts = (
            self._write, self._write_many, self._produce, self._transact, self._work_on_queue, self._retry,
            self._delay, self._publish, self._split, self._tidy, self._alter, self._reopen,
        )  # fmt: skip
        for _ in range(steps):
            act = self._chance.choice(acts)
            with self._noting(act.__name__):
                act(self._opened())

    def end(self) -> None:
        """Close the store; what that raises is noted."""
        with self._noting("close"):
            if self._store is not None:
                self._store.close()
        self._store = None

    # What it does.

    def _write(self, store: Store) -> None:
        value = self._value("write")
        self.account.try_(ORDERS, value)
        self._topic(store, ORDERS, partitions=2).write(value, key=f"k{self._number % 5}")
        self.account.promise(ORDERS, value)

    def _write_many(self, store: Store) -> None:
        values = [self._value("many") + "x" * 300 for _ in range(8)]
        for value in values:
            self.account.try_(ORDERS, value)
        self._topic(store, ORDERS, partitions=2).write_many(values)
        for value in values:
            self.account.promise(ORDERS, value)

    def _produce(self, store: Store) -> None:
        """Send from the first message that was not acknowledged, and some more."""
        self._last_seqno += 3
        topic, first = self._topic(store, SENT, partitions=2), self._acked_seqno + 1
        numbers = range(first, self._last_seqno + 1)
        for number in numbers:
            self.account.try_(SENT, str(number))
        with topic.writer(producer_id="shop") as writer:
            for number in numbers:
                writer.write(str(number), key=f"k{number % 5}", seqno=number)
            writer.flush()
        self._acked_seqno = numbers[-1]
        for number in numbers:
            self.account.promise(SENT, str(number))

    def _transact(self, store: Store) -> None:
        """Write to two topics, all or nothing, under a name; ask again with it when something went wrong."""
        self._transactions += 1
        name = f"tx{self._seed}.{self._transactions}"
        size = self._chance.choice((10, 10, 200_000))
        self.account.try_(AUDIT, name)
        self._topic(store, AUDIT)
        self._topic(store, ORDERS, partitions=2)
        for _ in range(3):
            try:
                with store.transaction(name=name) as tx:
                    tx.write(AUDIT, name + " " * size)
                    tx.write(ORDERS, name)
                break
            except penstock.AlreadyCommitted:
                break
            except PenstockError as error:
                self.account.errors[type(error).__name__] += 1
        else:
            return
        self.account.promise(AUDIT, name)

    def _work_on_queue(self, store: Store) -> None:
        topic = self._topic(store, JOBS)
        value = self._value("job")
        self.account.try_(JOBS, value)
        topic.write(value)
        self.account.promise(JOBS, value)
        with topic.reader(consumer="workers", kind="queue", follow=False) as reader:
            for message in reader.receive_batch(2, timeout=0):
                reader.commit(message)

    def _retry(self, store: Store) -> None:
        topic = self._topic(store, ORDERS, partitions=2)
        with topic.reader(consumer="trying", follow=False, on_gap="skip") as reader:
            for message in reader.receive_batch(3, timeout=0):
                if self._chance.random() < 0.5 and message.attempt < 3:
                    reader.retry(message, after="10ms")
                else:
                    reader.commit(message)

    def _delay(self, store: Store) -> None:
        value = self._value("later")
        self.account.try_(LATER, value)
        self._topic(store, LATER).write(value, delay="30ms")
        self.account.promise(LATER, value)

    def _publish(self, store: Store) -> None:
        value = self._value("news")
        self.account.try_(STREAM, value)
        store.stream(STREAM).publish("a", value.encode())
        self.account.promise(STREAM, value)

    def _split(self, store: Store) -> None:
        """Write as a producer that counts for itself, and split one of the partitions now and then."""
        topic = store.create_topic(
            SPLIT, autopartitioning="paused", max_partitions=12, exists_ok=True, **_SMALL
        )
        values = [self._value("split") for _ in range(4)]
        for value in values:
            self.account.try_(SPLIT, value)
        with topic.writer(producer_id="counting") as writer:
            for value in values:
                writer.write(value, key=f"k{self._chance.randrange(8)}")
            writer.flush()
        for value in values:
            self.account.promise(SPLIT, value)
        active = [each.partition for each in topic.partitions() if each.state == "active"]
        if len(active) < 8:
            topic.split(self._chance.choice(active))

    def _tidy(self, store: Store) -> None:
        store.flush_housekeeping()
        self._topic(store, ORDERS, partitions=2).vacuum()

    def _alter(self, store: Store) -> None:
        topic = self._topic(store, SENT, partitions=2)
        if topic.options.partitions < 4 and self._chance.random() < 0.3:
            topic.alter(partitions=topic.options.partitions + 1)

    def _reopen(self, store: Store) -> None:
        self._store = None
        store.close()

    # Inside.

    def _opened(self) -> Store:
        if self._store is None:
            self._store = penstock.open(self.folder, files=self._files)
        return self._store

    def _topic(self, store: Store, name: str, partitions: int = 1) -> Topic:
        return store.create_topic(name, partitions=partitions, exists_ok=True, **_SMALL)

    def _value(self, kind: str) -> str:
        self._number += 1
        return f"{kind}:{self._seed}.{self._number}"

    @contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        try:
            yield
        except PenstockError as error:
            self.account.errors[type(error).__name__] += 1
        except Exception as error:
            self.account.problems.append(f"{what}: raw {type(error).__name__}: {error}, {_where(error)}")


def _where(error: BaseException) -> str:
    """The last few places of ours that an error came by."""
    ours = [each for each in traceback.extract_tb(error.__traceback__) if "/penstock/" in each.filename]
    return " < ".join(f"{os.path.basename(each.filename)}:{each.name}" for each in reversed(ours[-_PLACES:]))


def check(folder: str, account: Account, files: Files | None = None, *, crashed: bool = False) -> list[str]:
    """What is not as promised, with a disk that is well; `files` may tell of another boot.

    Behind a crash delayed messages may have come twice: that they were appended is noted behind it, and not
    synced. Entries of the list of those notes may be torn, then.
    """
    found = list(account.problems)
    try:
        if account.tried:  # before that, the store itself may be half made
            found += (f"verify: {each.what} ({each.path})" for each in _damage(folder, files))
        with penstock.open(folder, files=files) as store:
            found += _looked(store, account)
    except Exception as error:
        found.append(f"opened again: {type(error).__name__}: {error}")
    return [each for each in found if not (crashed and _COMES_AGAIN.search(each))]


def _damage(folder: str, files: Files | None) -> Iterator[Any]:
    if os.path.exists(os.path.join(folder, "state.db")):
        findings = StoreVerifier(folder, files=files).findings()
        yield from (each for each in findings if each.severity == "damage")


def _looked(store: Store, account: Account) -> Iterator[str]:
    names = {topic.name for topic in store.topics()}
    texts = {name: _texts(store, name) for name in (ORDERS, AUDIT, SENT) if name in names}
    texts[AUDIT] = [text.strip() for text in texts.get(AUDIT, [])]
    yield from _compared(ORDERS, [each for each in texts.get(ORDERS, []) if each[:2] != "tx"], account)
    yield from _compared(AUDIT, texts[AUDIT], account)
    yield from _compared(SENT, texts.get(SENT, []), account)
    halves = set(texts[AUDIT]) ^ {each for each in texts.get(ORDERS, []) if each[:2] == "tx"}
    if halves:
        yield f"half a transaction: {sorted(halves)[:3]}"
    if LATER in names:
        wanted = account.promised.get(LATER, set())
        _wait(lambda: wanted <= set(_texts(store, LATER)))
        yield from _compared(LATER, _texts(store, LATER), account)
    if SPLIT in names:
        yield from _compared(SPLIT, _texts(store, SPLIT), account)
    if JOBS in names:
        yield from _drained_queue(store, account)
    if STREAM in names:
        yield from _compared(STREAM, _texts(store, STREAM), account)


def _compared(kind: str, texts: list[str], account: Account) -> Iterator[str]:
    missing = account.promised.get(kind, set()) - set(texts)
    strange = set(texts) - account.tried.get(kind, set())
    twice = [text for text, count in Counter(texts).items() if count > 1]
    if missing:
        yield f"{kind}: acknowledged and lost: {sorted(missing)[:3]} ({len(missing)})"
    if strange:
        yield f"{kind}: never written: {sorted(strange)[:3]}"
    if twice:
        yield f"{kind}: twice: {sorted(twice)[:3]} ({len(twice)})"


def _drained_queue(store: Store, account: Account) -> Iterator[str]:
    """Every job is done or comes: the queue can be emptied."""
    topic = store.topic(JOBS)
    with topic.reader(consumer="workers", kind="queue", follow=False) as reader:
        end = time.monotonic() + _DRAIN_S
        while time.monotonic() < end:
            batch = reader.receive_batch(50, timeout=0.05)
            for message in batch:
                reader.commit(message)
            if not batch and not _lag(topic):
                break
    if _lag(topic):
        yield f"{JOBS}: {_lag(topic)} jobs do not come"
    yield from _compared(JOBS, _texts(store, JOBS), account)


def _lag(topic: Topic) -> int:
    return sum(each.lag for each in topic.consumers() if each.consumer == "workers")


def _texts(store: Store, name: str) -> list[str]:
    return [message.text for message in store.topic(name).scan().messages()]


def _wait(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + _DRAIN_S
    while not is_so() and time.monotonic() < end:
        time.sleep(0.02)
