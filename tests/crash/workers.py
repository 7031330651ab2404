"""What other processes do in these tests: `python -m tests.crash.workers <job> <store> …`.

Acknowledgements go to standard output, a line each, written by one system call: what a process that is
killed has written down, it was promised.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import penstock
from penstock import Topic
from tests.kit.system import locks_module as locks
from tests.kit.topics import inside

ORDERS, CLICKS = "orders", "clicks"


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def acked(partition: int, offset: int, value: bytes) -> str:
    return f"{partition} {offset} {value.decode()}"


def write(store: str, name: str, mode: str, count: str = "1000000000") -> None:
    """Write counted messages under a name, one at a time, many at a time, or buffered."""
    with penstock.open(store) as opened:
        topic = opened.topic(CLICKS if mode == "os" else ORDERS)
        numbers = iter(range(int(count)))
        if mode == "buffered":
            _write_buffered(topic, name, numbers)
        elif mode == "many":
            while values := [b"%s:%d" % (name.encode(), n) for _, n in zip(range(20), numbers, strict=False)]:
                receipts = topic.write_many(values, keys=[name.encode()] * len(values))
                lines = [acked(r.partition, r.offset, v) for r, v in zip(receipts, values, strict=True)]
                say("\n".join(lines))
        else:
            for number in numbers:
                value = b"%s:%d" % (name.encode(), number)
                receipt = topic.write(value, key=name)
                say(acked(receipt.partition, receipt.offset, value))


def _write_buffered(topic: Topic, name: str, numbers: object) -> None:
    with topic.writer() as writer:
        values = []
        for number in numbers:  # type: ignore[attr-defined]
            values.append(b"%s:%d" % (name.encode(), number))
            writer.write(values[-1], key=name)
            if len(values) == 50:
                _flush(writer, values)
        _flush(writer, values)


def _flush(writer: penstock.Writer, values: list[bytes]) -> None:
    receipts = writer.flush()
    if values:
        say("\n".join(acked(r.partition, r.offset, v) for r, v in zip(receipts, values, strict=True)))
    values.clear()


def transact(store: str, name: str) -> None:
    """Transactions over both topics, small ones and large ones; says the number of each that is committed."""
    with penstock.open(store) as opened:
        for number in itertools.count():
            value = b"%s:%d" % (name.encode(), number)
            with opened.transaction() as tx:
                tx.write(ORDERS, value, key=name)
                tx.write_many(CLICKS, [value + b"/%d" % n for n in range(3)])
                if number % 7 == 0:
                    tx.write_many(
                        ORDERS, [value + b"+" * 9000 + b"%d" % n for n in range(40)], keys=[name] * 40
                    )
            say(value.decode())


def die_in_transaction(store: str, calls: str) -> None:
    """One transaction over two topics, killed (by its own hand) at a given file call of its commit."""
    files = Deadly(int(calls))
    with penstock.open(store, files=files) as opened:
        tx = opened.transaction()
        tx.write_many(ORDERS, [b"tx:%s/%d" % (calls.encode(), n) + b"." * 9000 for n in range(30)])
        tx.write(CLICKS, b"tx:%s" % calls.encode())
        say("begun")
        files.armed = True
        tx.commit()
        say("committed")
        os.kill(os.getpid(), signal.SIGKILL)


def die_splitting(store: str, topic: str, calls: str) -> None:
    """Split a partition, killed by its own hand at a given file call."""
    _die_growing(store, topic, calls, lambda found: found.split(0))


def die_adding(store: str, topic: str, calls: str) -> None:
    """Add a partition beside another, killed by its own hand at a given file call."""
    _die_growing(store, topic, calls, lambda found: found.alter(partitions=2))


def _die_growing(store: str, topic: str, calls: str, grow: Callable[[penstock.Topic], object]) -> None:
    files = Deadly(int(calls))
    with penstock.open(store, files=files) as opened:
        found = opened.topic(topic)
        found.write(b"warm", key="warm")
        files.armed = True
        grow(found)
        say("split")
        os.kill(os.getpid(), signal.SIGKILL)


def split_under_load(store: str, topic: str, name: str) -> None:
    """Write numbered messages of many keys, until told to end; says each number once it is acknowledged."""
    with penstock.open(store) as opened:
        found, first = opened.topic(topic), 0
        while not os.path.exists(os.path.join(store, "enough")):
            with found.writer(producer_id=name) as writer:
                for number in range(first, first + 50):
                    writer.write(f"{name}:{number}", key=f"{name}:{number % 20}", seqno=number)
                writer.flush()
            first += 50
            say(str(first - 1))


def die_counting(store: str, calls: str) -> None:
    """Count the next payment in a transaction, killed at a given file call of the commit."""
    files = Deadly(int(calls))
    with penstock.open(store, files=files) as opened:
        with opened.topic(ORDERS).reader(consumer="counting") as reader:
            tx = opened.transaction()
            batch = reader.receive_batch(1, timeout=10, tx=tx)
            tx.write(CLICKS, b"%d" % (batch[0].offset + 1))
            say("begun")
            sys.stdin.readline()
            files.armed = True
            tx.commit()
            say("committed")
            os.kill(os.getpid(), signal.SIGKILL)


class Deadly(penstock.Files):
    """Kills this process before the n-th call that changes something."""

    def __init__(self, calls: int) -> None:
        self._left = calls
        self.armed = False

    def _count(self) -> None:
        self._left -= self.armed
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def pwrite(self, *args: object) -> int:
        self._count()
        return super().pwrite(*args)  # type: ignore[arg-type]

    def pwritev(self, *args: object) -> int:
        self._count()
        return super().pwritev(*args)  # type: ignore[arg-type]

    def rename(self, *args: str) -> None:  # type: ignore[override]
        self._count()
        os.rename(*args)

    def sync(self, fd: int) -> None:
        self._count()
        super().sync(fd)

    def unlink(self, path: str) -> None:  # type: ignore[override]
        self._count()
        os.unlink(path)


def read(store: str, topic: str, consumer: str, stop: str) -> None:
    """Follow a topic as a consumer, say every message; end when `stop` is there and all is read."""
    with penstock.open(store) as opened, opened.topic(topic).reader(consumer=consumer) as reader:
        while True:
            over = os.path.exists(stop)
            batch = reader.receive_batch(timeout=0.2)
            if batch:
                say("\n".join(f"{m.partition} {m.offset} {m.text}" for m in batch))
                reader.commit(batch)
            elif over:
                return


def member(store: str, topic: str, consumer: str, stop: str, pace: str = "0") -> None:
    """Read for a consumer together with others; say what came under which epoch, and what was committed.

    Each line carries the time, on a clock that all processes share. `pace` is how long a batch takes.
    """
    with penstock.open(store) as opened, opened.topic(topic).reader(consumer=consumer) as reader:
        had: list[tuple[str, int]] | None = None
        while not os.path.exists(stop):
            batch = reader.receive_batch(max_messages=5, timeout=0.05)
            if reader.assigned != had:
                had = reader.assigned
                say(f"has {time.monotonic_ns()} {','.join(str(number) for _, number in had)}")
            if not batch:
                continue
            first, last = batch[0], batch[-1]
            source = reader.engine[topic, first.partition]
            place = f"{first.partition} {source.epoch} {first.offset} {last.offset + 1}"
            say(f"got {time.monotonic_ns()} {place}")
            time.sleep(float(pace))
            try:
                reader.commit(batch)
                say(f"done {time.monotonic_ns()} {place}")
            except penstock.PartitionLost:
                say(f"lost {time.monotonic_ns()} {place}")
        say(f"over {time.monotonic_ns()} -")


def vacuum(store: str, stop: str) -> None:
    """Vacuum again and again."""
    with penstock.open(store) as opened:
        topic, removed = opened.topic(ORDERS), 0
        while not os.path.exists(stop):
            removed += topic.vacuum().messages
        say(f"removed {removed}")


def look_around(store: str, stop: str) -> None:
    """Read in every way while others write and remove; only what retention took may be missing."""
    with penstock.open(store) as opened:
        topic, looks = opened.topic(ORDERS), 0
        while not os.path.exists(stop):
            try:
                offsets = [message.offset for message in topic.scan(partition=0).messages()]
                assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True
                recent = topic.read(partition=0, start="1s")
                if recent:
                    assert topic.get(recent[0].offset).value == recent[0].value
                topic.stats()
                looks += 1
            except penstock.OutOfRange:
                continue
        say(f"looked {looks}")


def follow(store: str, stop: str) -> None:
    """Follow a topic, passing over what retention took; say how many came."""
    with penstock.open(store) as opened, opened.topic(ORDERS).reader(on_gap="skip") as reader:
        last, came = -1, 0
        while not os.path.exists(stop):
            for message in reader.receive_batch(timeout=0.1):
                assert message.offset > last
                last, came = message.offset, came + 1
        say(f"came {came}")


def hold(store: str, which: str) -> None:
    """Take a lock, stop as by Ctrl-Z, and let go when continued."""
    with penstock.open(store) as opened:
        log = inside(opened.topic(ORDERS)).log(0)
        lock = {"append": log.folder.append, "tail": log.folder.tail, "state": opened._database.lock}[which]
        with lock:
            say("held")
            os.kill(os.getpid(), signal.SIGSTOP)
        say("released")


def interrupted(store: str, name: str, mode: str) -> None:
    """Write and go on after each Ctrl-C, until asked to end; a message is tried once."""
    locks.PATIENCE_S = 10.0
    over = at_work = False

    def end(*_: object) -> None:
        nonlocal over
        over = True

    def interrupt(*_: object) -> None:
        if at_work:
            raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    if mode != "leave":
        signal.signal(signal.SIGINT, interrupt)
    opened = penstock.open(store)
    topic = opened.topic(ORDERS)
    say("ready")
    for number in itertools.count():
        if over:
            break
        value = b"%s:%d" % (name.encode(), number)
        try:
            at_work = True
            if mode == "commit":
                _commit_one(topic, name)
            receipt = topic.write(value, key=name)
            say(acked(receipt.partition, receipt.offset, value))
            at_work = False
        except KeyboardInterrupt:
            at_work = False
            if mode == "leave":
                raise
        except RuntimeError as error:  # Python's own Thread.start() does not bear an interrupt well
            at_work = False
            if "release unlocked lock" not in str(error):
                raise
    say("over")
    time.sleep(60)  # the locks, if any were kept, are kept by a living process


def _commit_one(topic: Topic, name: str) -> None:
    with topic.reader(consumer=name, follow=False) as reader:
        message = reader.receive()
        if message is not None:
            reader.commit(message)


def fork(store: str, children: str) -> None:
    """Fork while a thread and a buffered writer are at work; each child looks at what it inherited."""
    opened = penstock.open(store)
    topic = opened.topic(ORDERS)
    writer, reader = topic.writer(), topic.reader(consumer="parent")
    over = threading.Event()

    def load() -> None:
        for number in itertools.count():
            if over.is_set():
                return
            receipt = topic.write(b"thread:%d" % number)
            say(acked(receipt.partition, receipt.offset, b"thread:%d" % number))

    thread = threading.Thread(target=load)
    thread.start()
    pids, values = [], []
    for child in range(int(children)):
        for _ in range(50):
            values.append(b"buffered:%d" % len(values))
            writer.write(values[-1])
        if message := reader.receive(timeout=0.01):
            reader.commit(message)
        pid = os.fork()
        if pid == 0:
            os._exit(_child(store, child, opened, topic, writer, reader))
        pids.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    over.set()
    thread.join()
    _flush(writer, values)
    writer.close()
    assert codes == [0] * len(codes), codes
    opened.close()


def _child(store: str, number: int, opened: object, topic: Topic, writer: object, reader: object) -> int:
    """What a child may and may not do; the exit code says whether it was so."""
    attempts = [
        lambda: topic.write(b"child:inherited"),
        lambda: topic.read(),
        lambda: writer.write(b"child:inherited"),  # type: ignore[attr-defined]
        lambda: writer.flush(),  # type: ignore[attr-defined]
        lambda: reader.receive(timeout=0),  # type: ignore[attr-defined]
        lambda: opened.topics(),  # type: ignore[attr-defined]
    ]
    for which, attempt in enumerate(attempts):
        try:
            attempt()
        except penstock.Closed:
            continue
        return 10 + which
    with penstock.open(store) as own:
        value = b"child%d:0" % number
        receipt = own.topic(ORDERS).write(value)
        say(acked(receipt.partition, receipt.offset, value))
        own.topic(ORDERS).add_consumer(f"child{number}")
    return 0


def fork_inside(store: str) -> None:
    """Fork with a lock held; the child ends; say whether the lock is still ours."""
    with penstock.open(store) as opened:
        folder = inside(opened.topic(ORDERS)).log(0).folder
        for lock in (folder.append, folder.tail, opened._database.lock):
            with lock:
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)
                say(
                    "kept"
                    if locks.flock_holder(lock.fd) == os.getpid() and not _is_free(lock.path)
                    else "lost"
                )
            say("free" if _is_free(lock.path) else "stuck")


def fork_member(store: str) -> None:
    """Read for a consumer, fork, and wait; the child waits too."""
    opened = penstock.open(store)
    reader = opened.topic(ORDERS).reader(consumer="c")
    reader.receive(timeout=0)
    if not os.fork():  # the child tells: by then it has let go of what it got from its parent
        say(f"child {os.getpid()}")
    time.sleep(60)


def produce(store: str, producer: str, first: str, dies_at: str = "") -> None:
    """Write numbered messages with keys under a producer id, from `first` on; say each acknowledged seqno.

    With `dies_at` the process kills itself when it writes to that partition for the third time.
    """
    files = _DeadlyAt(f"/{int(dies_at):06d}/") if dies_at else None
    with (
        penstock.open(store, files=files) as opened,
        opened.topic(ORDERS).writer(producer_id=producer) as writer,
    ):
        for begin in itertools.count(int(first), 20):
            for seqno in range(begin, begin + 20):
                writer.write(b"%d" % seqno, key=b"key-%d" % (seqno % 7), seqno=seqno)
            writer.flush()
            say(str(begin + 19))


class _DeadlyAt(penstock.Files):
    """Kills the process at its third write to a path."""

    def __init__(self, path: str) -> None:
        self._path, self._left = path, 3

    def pwritev(self, fd: int, parts: list[bytes | bytearray | memoryview], at: int) -> int:
        if self._path in os.readlink(f"/proc/self/fd/{fd}"):
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().pwritev(fd, parts, at)


def count_on(store: str, producer: str) -> None:
    """Write under a producer id, with automatic seqnos, until someone takes it over."""
    with penstock.open(store) as opened:
        writer = opened.topic(ORDERS).writer(producer_id=producer)
        try:
            for number in itertools.count():
                writer.write(b"%s:%d" % (producer.encode(), number))
                writer.flush()
                say(str(number))
                time.sleep(0.01)  # stopped at any moment, it mostly holds no lock
        except penstock.ProducerFenced:
            say("fenced")


def _is_free(path: str) -> bool:
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


JOBS = {
    job.__name__: job
    for job in (
        write,
        read,
        member,
        vacuum,
        look_around,
        follow,
        hold,
        interrupted,
        fork,
        fork_inside,
        transact,
        die_in_transaction,
        die_counting,
        die_splitting,
        die_adding,
        split_under_load,
        fork_member,
        produce,
        count_on,
    )
}

if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
