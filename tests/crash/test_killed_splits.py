"""kill -9 at every step of a split or an addition: the next process finishes it or begins it anew.

Nothing is lost, stored twice or out of order by it, and the logs alone tell the tree (S001-20, S001-23).
"""

import itertools
import os
import random
import signal
import time

import pytest

import penstock
from tests.crash.processes import Worker, no_orphans
from tests.crash.tracing import FIRST_BOOT, BootFiles
from tests.kit.topics import inside
from tests.kit.trees import PartitionTree, read_birth, read_seal

KEYS = [f"key-{number}" for number in range(40)]


def make(store, name):
    topic = store.create_topic(name, autopartitioning="paused")
    send(topic, range(40))
    return topic


def send(topic, numbers):
    """Messages numbered by a producer, each with a key of its own."""
    with topic.writer(producer_id="shop") as writer:
        for number in numbers:
            writer.write(b"%d" % number, key=KEYS[number % 40], seqno=number)


def by_key(topic):
    """Values by key, in the order of (partition, offset)."""
    found = {}
    for message in topic.scan().messages():
        found.setdefault(message.key.decode(), []).append(message.value)
    found.pop("warm", None)
    return found


def told_by_logs(topic):
    """(parents, children) of each partition, as its own log tells."""
    found = {}
    for log in inside(topic).logs():
        birth, seal = read_birth(log.folder), read_seal(log.folder)
        found[log.partition] = (
            () if birth is None else tuple(sorted(birth.parents)),
            () if seal is None else seal.children,
        )
    return found


@pytest.mark.parametrize("job", ["die_splitting", "die_adding"])
def test_a_process_killed_at_any_step(scratch, job):
    folder = os.path.join(scratch, "store")
    done, everyone = 0, []
    with no_orphans(everyone):
        for calls in itertools.count():
            name = f"topic-{calls}"
            with penstock.open(folder) as store:
                make(store, name)
            worker = Worker(job, folder, name, str(calls), out=os.path.join(scratch, f"w{calls}"))
            everyone.append(worker)
            assert worker.end() == -signal.SIGKILL, worker.errors()
            with penstock.open(folder) as store:
                topic = store.topic(name)
                # The first to come reads, writes, or splits it again.
                if calls % 3 == 1:
                    send(topic, range(40))
                if calls % 3 == 2:
                    with topic_is_split(topic):
                        topic.split(0)
                assert by_key(topic) == {key: [b"%d" % n] for n, key in enumerate(KEYS)}, f"call {calls}"
                send(topic, range(80))
                wanted = {key: [b"%d" % n, b"%d" % (n + 40)] for n, key in enumerate(KEYS)}
                assert by_key(topic) == wanted, f"call {calls}"
                with topic.reader(consumer="c", follow=False) as reader:
                    order = [message.value for message in committed(reader) if message.key != b"warm"]
                assert [order.index(b"%d" % n) < order.index(b"%d" % (n + 40)) for n in range(40)] == [
                    True
                ] * 40
                tree = inside(topic).tree
                assert isinstance(tree, PartitionTree)
                told = told_by_logs(topic)
                for row in tree:
                    assert told[row.partition][0] == row.parents
                    assert told[row.partition][1] == (row.children[-2:] if row.state == "inactive" else ())
                done += len(tree.rows) > 1
            if "split" in worker.lines():
                break
    assert calls > 10, "too few steps: it was not killed inside"
    assert done > 1


class topic_is_split:
    """Lets a second split of the same partition be refused."""

    def __init__(self, topic):
        self._topic = topic

    def __enter__(self):
        return self._topic

    def __exit__(self, kind, error, trace):
        return kind is not None and issubclass(kind, penstock.PartitionInactive)


def committed(reader):
    for message in reader:
        yield message
        reader.commit(message)


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_a_restart_of_the_machine_knows_a_split_from_the_log(scratch, sync):
    """S is lost, and the rows too: the seal tells."""
    folder = os.path.join(scratch, "store")
    with penstock.open(folder, files=BootFiles(FIRST_BOOT)) as store:
        topic = store.create_topic("orders", autopartitioning="paused", sync=sync)
        topic.write_many([b"1"] * 40, keys=KEYS)
        topic.split(0)
    tail = os.path.join(folder, "topics", "orders", "parts", "000000", "tail")
    with open(tail, "r+b") as file:
        file.write(bytes(64))
    with penstock.open(folder, files=BootFiles(FIRST_BOOT + 1)) as store:
        log = inside(store.topic("orders")).log(0)
        log.bounds()
        shown = log.folder.read_shown()
        assert shown is not None
        assert shown.sealed
        assert read_seal(log.folder).children == (1, 2)
        store.topic("orders").write_many([b"2"] * 40, keys=KEYS)
        assert all(values == [b"1", b"2"] for values in by_key(store.topic("orders")).values())


def test_a_seal_is_not_trimmed_away(scratch):
    """Retention takes the messages; that the partition was split is known from its log all the same."""
    folder = os.path.join(scratch, "store")
    with penstock.open(folder, files=BootFiles(FIRST_BOOT)) as store:
        topic = make(store, "orders")
        topic.split(0)
        log = inside(topic).log(0)
        log.trim(40)
        assert topic.partitions()[0].messages == 0
        assert log.appender.ready().shown.sealed
    with penstock.open(folder, files=BootFiles(FIRST_BOOT + 1)) as store:
        log = inside(store.topic("orders")).log(0)
        log.bounds()
        assert log.folder.read_shown().sealed
        assert log.appender.ready().append.next == 40, "a sealed log gets no new segment"


def test_a_child_whose_first_checkpoint_is_gone_asks_its_parent(scratch):
    folder = os.path.join(scratch, "store")
    with penstock.open(folder) as store:
        make(store, "orders").split(0)
    parts = os.path.join(folder, "topics", "orders", "parts")
    for child in ("000001", "000002"):
        os.unlink(os.path.join(parts, child, f"{0:020d}.producers"))
    with penstock.open(folder) as store:
        send(store.topic("orders"), range(40))
        assert by_key(store.topic("orders")) == {key: [b"%d" % n] for n, key in enumerate(KEYS)}
    os.unlink(os.path.join(parts, "000000", f"{40:020d}.gate.producers"))
    with penstock.open(folder) as store, pytest.raises(penstock.Corrupt):
        send(store.topic("orders"), range(40))


def test_writers_of_several_processes_through_splits_and_kills(scratch):
    """Each acknowledged message once, in order by key, whoever was killed when (S001-20, S001-23)."""
    folder = os.path.join(scratch, "store")
    chance = random.Random(17)
    with penstock.open(folder) as store:
        topic = store.create_topic("orders", autopartitioning="paused", segment_bytes=1 << 16)
        everyone = []
        with no_orphans(everyone):
            workers = {}
            for name in ("a", "b", "c"):
                out = os.path.join(scratch, name)
                workers[name] = Worker("split_under_load", folder, "orders", name, out=out)
                everyone.append(workers[name])
            for worker in workers.values():
                worker.wait_for("49")
            for step in range(6):
                chosen = chance.choice(inside(topic).active())
                try:
                    topic.split(chosen)
                except penstock.LockTimeout:  # a worker was stopped with a lock in its hands
                    workers["c"].send(signal.SIGCONT)
                    topic.split(chosen)
                if step == 2:
                    workers["b"].send(signal.SIGKILL)
                if step == 3:
                    workers["c"].send(signal.SIGSTOP)
                time.sleep(0.05)  # some writes between two splits; nothing depends on how many
            workers["c"].send(signal.SIGCONT)
            open(os.path.join(folder, "enough"), "w").close()
            assert workers["a"].end() == 0, workers["a"].errors()
            assert workers["c"].end() == 0, workers["c"].errors()
            workers["b"].end()
        found = {}
        for message in topic.scan().messages():
            name, _, number = message.text.partition(":")
            found.setdefault((name, message.key), []).append(int(number))
        for name, worker in workers.items():
            numbers = sorted(n for (who, _), values in found.items() if who == name for n in values)
            acknowledged = [int(line) for line in worker.lines()]
            assert len(set(numbers)) == len(numbers), f"{name}: stored twice"
            assert set(range(acknowledged[-1] + 1)) <= set(numbers), f"{name}: lost"
        assert all(values == sorted(values) for values in found.values()), "out of order"
        assert sum(each.state == "active" for each in topic.partitions()) == 7
