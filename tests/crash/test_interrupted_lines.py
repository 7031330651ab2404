"""KeyboardInterrupt at every line of appending, syncing, rolling and committing.

No lock is left behind, nothing acknowledged is lost, nothing is stored twice, and both this process and
another can go on at once.

A second opening of the store stands for the other process: its locks are on files of its own.
"""

import os
from functools import partial

import pytest

import penstock
from tests.crash.interrupter import Interrupter
from tests.kit.frames import encode
from tests.kit.logs import Pair
from tests.kit.system import locks_module as locks
from tests.kit.topics import inside

LOG = ("log/", "locks.py", "files.py")
COMMIT = (*LOG, "store/commit.py")


@pytest.fixture
def path(scratch, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE_S", 0.05)  # a lock that was left behind is soon noticed
    return os.path.join(scratch, "store")


class Values:
    """Values that were tried, and those that were acknowledged."""

    def __init__(self):
        self.tried = []
        self.acked = []

    def write_to(self, *topics):
        """Writes to each of the topics, when it is called."""
        return lambda: [self.write(topic) for topic in topics]

    def next(self):
        self.tried.append(b"%d" % len(self.tried))
        return self.tried[-1]

    def write(self, topic, **how):
        value = self.next()
        topic.write(value, **how)
        self.acked.append(value)

    def check(self, topic):
        stored = [message.value for message in topic.scan().messages()]
        assert len(set(stored)) == len(stored), "stored twice"
        assert set(self.acked) <= set(stored) <= set(self.tried)
        assert stored == sorted(stored, key=int), "out of order"


@pytest.mark.parametrize("sync", ["disk", "os"])
@pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "opcodes"])
def test_a_write_may_be_interrupted_anywhere(path, sync, opcodes):
    values = Values()
    with penstock.open(path) as here, penstock.open(path) as there:
        topic, other = here.create_topic("orders", sync=sync), there.topic("orders")
        values.write(other)
        values.write(topic)
        steps = Interrupter(LOG, opcodes=opcodes).each(values.write_to(topic), values.write_to(other, topic))
        assert steps > (500 if opcodes else 80)
        values.check(topic)
    with penstock.open(path) as again:
        values.check(again.topic("orders"))


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_a_roll_may_be_interrupted_anywhere(path, sync):
    values = Values()
    with penstock.open(path) as here, penstock.open(path) as there:
        topic, other = here.create_topic("orders", sync=sync), there.topic("orders")
        log = inside(topic).log(0)
        values.write(topic)
        steps = Interrupter(LOG).each(log.appender.seal_active, values.write_to(other, topic))
        assert steps > 80
        values.check(topic)
    with penstock.open(path) as again:
        values.check(again.topic("orders"))


def test_a_repair_may_be_interrupted_anywhere(path):
    """A writer died behind its frame, before A was published."""
    values = Values()
    with penstock.open(path) as here, penstock.open(path) as there:
        topic, other = here.create_topic("orders"), there.topic("orders")
        folder = inside(topic).log(0).folder

        def write_behind():
            before = folder.read_append()
            values.write(topic)
            folder.publish_append(before)
            values.write(other)

        steps = Interrupter(LOG).each(write_behind, values.write_to(other, topic))
        assert steps > 150
        values.check(topic)


def test_a_write_that_does_not_wait_may_be_interrupted_anywhere(path):
    values = Values()
    with penstock.open(path) as here, penstock.open(path) as there:
        topic, other = here.create_topic("orders"), there.topic("orders")
        values.write(topic)
        opened = inside(topic)

        def write():
            value = values.next()
            frame = encode([value], created=1)
            if opened.log(0).write_at_once([frame], tree=opened.record.tree) is not None:
                values.acked.append(value)

        write()
        assert values.acked[-1] == values.tried[-1]
        steps = Interrupter(LOG).each(write, values.write_to(other, topic))
        assert steps > 80
        values.check(topic)


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_housekeeping_may_be_interrupted_anywhere(path, sync):
    """Moving the start, giving offsets back, helping: what takes the append lock besides writers."""
    values = Values()
    with penstock.open(path) as here, penstock.open(path) as there:
        topic, other = here.create_topic("orders", sync=sync), there.topic("orders")
        log = inside(topic).log(0)

        def keep_house():
            log.help()
            log.finish_transactions()
            log.trim(log.bounds().end - 2)
            log.lower_reserve()

        def then():
            values.write(other)
            values.write(topic)
            values.acked = values.acked[-2:]

        for _ in range(4):
            values.write(topic)
        steps = Interrupter(LOG).each(keep_house, then)
        assert steps > 120
        values.acked = values.acked[-2:]
        values.check(topic)


def test_a_numbered_write_may_be_interrupted_anywhere(path):
    """S001-04: what is sent again is there once, wherever the first try was interrupted."""
    with penstock.open(path) as here, penstock.open(path) as there:
        topic, other = here.create_topic("orders"), there.topic("orders")
        sent = []

        def send(to):
            with to.writer(producer_id="shop") as writer:
                for seqno, value in enumerate(sent, 1):
                    writer.write(value, seqno=seqno)
                writer.flush()

        interrupter, number = Interrupter(LOG), 0
        is_over = False
        log = inside(topic).log(0)
        while not is_over:
            number += 1
            sent.append(b"%d" % number)
            pair = Pair(f"p{number}", "")
            is_over = not interrupter.run(number, partial(log.appender.take_over, pair))
            log.appender.producers.load()
            send(other if number % 2 else topic)
            assert log.appender.known(pair).epoch <= 1
        assert number > 80
        stored = [message.value for message in topic.scan().messages()]
        assert stored == sent


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_a_commit_may_be_interrupted_anywhere(path, sync):
    """All of a transaction is there or nothing, and once (ctrl-C in a notebook: the program goes on)."""
    tried = []
    with penstock.open(path) as here, penstock.open(path) as there:
        for name in ("a", "b"):
            here.create_topic(name, sync=sync, partitions=2)
        values = Values()

        def commit():
            with here.transaction() as tx:
                value = values.next()
                tried.append(value)
                for topic in ("a", "b"):
                    for partition in (0, 1):
                        tx.write(topic, value, partition=partition)

        def then():
            for store in (there, here):
                for topic in ("a", "b"):
                    for partition in (0, 1):
                        store.topic(topic).write(b"between", partition=partition)

        commit()
        steps = Interrupter(COMMIT).each(commit, then)
        assert steps > 200
        lists = [
            [
                m.value
                for m in here.topic(topic).read(partition=partition, limit=10**6)
                if m.value != b"between"
            ]
            for topic in ("a", "b")
            for partition in (0, 1)
        ]
        for stored in lists:
            assert len(set(stored)) == len(stored), "stored twice"
            assert set(stored) == set(lists[0]), "half a transaction"
            assert tried[0] in stored
            assert tried[-1] in stored


def test_a_signal_handler_that_writes_inside_a_section_is_refused_and_frees_nothing(path):
    """The thread has the lock already: waiting would take for ever, and dropping it would let others in."""
    values = Values()
    with penstock.open(path) as store:
        topic = store.create_topic("orders")
        values.write(topic)
        log = inside(topic).log(0)

        def section():
            with pytest.raises(penstock.LockTimeout, match="signal handler"):
                topic.write(b"from the handler")
            assert log.write_at_once([encode([b"x"], created=1)], tree=inside(topic).record.tree) is None
            log.finish_transactions()
            assert not log.rest()
            return log.folder.append.is_mine()

        assert locks.hold((log.folder.append,), section)
        assert not log.folder.append.is_mine()
        values.write(topic)
        values.check(topic)


def test_canary_a_lock_that_is_left_behind_is_noticed(path, monkeypatch):
    """The handler that lets go of a lock after an interrupt is what the tests above rest on."""
    monkeypatch.setattr(locks.FileLock, "drop", lambda self: None)
    values = Values()
    with penstock.open(path) as here, penstock.open(path) as there:
        topic, other = here.create_topic("orders"), there.topic("orders")
        values.write(topic)
        with pytest.raises(penstock.LockTimeout):
            Interrupter(LOG).each(values.write_to(topic), values.write_to(other, topic))
        monkeypatch.undo()
        inside(topic).log(0).folder.append.drop()
        inside(topic).log(0).folder.tail.drop()
