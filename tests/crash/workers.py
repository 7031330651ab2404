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

import penstock
from penstock import locks
from penstock.store import Topic

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
        log = opened.topic(ORDERS)._partitions.log(0)
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
        folder = opened.topic(ORDERS)._partitions.log(0).folder
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
    for job in (write, read, vacuum, look_around, follow, hold, interrupted, fork, fork_inside)
}

if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
