"""A disk that fails to sync: `NotDurable`, cut back, and nobody is told that it went well.

The sync that failed is never tried again: the kernel may have dropped the pages. What was acknowledged
before stays, offsets that were given out are not given again.
"""

import errno
import os
import random
import threading

import pytest

import penstock
from penstock.errors import NotDurable
from tests.crash.explore import look, points
from tests.crash.hostile import HostileFiles, nth
from tests.crash.scenario import STORE, HandClock
from tests.crash.tracing import FIRST_BOOT, BootFiles, Trace, TracingFiles, traced_commits
from tests.kit.frames import encode
from tests.kit.logs import Repair
from tests.kit.topics import inside


def messages_of(topic):
    with topic.reader(follow=False) as reader:
        return {message.offset: message.value for message in reader}


def failing(kind):
    """Every sync of such a file fails."""
    return lambda call, path: errno.EIO if call == "sync" and path.endswith(kind) else 0


def working(call, path):
    return 0


@pytest.fixture
def files():
    return HostileFiles()


@pytest.fixture
def store(scratch, files):
    with penstock.open(os.path.join(scratch, STORE), files=files) as opened:
        yield opened
        files.decide = working


def test_a_message_that_could_not_be_synced_is_refused_and_gone(store, files):
    topic = store.create_topic("orders")
    assert topic.write(b"before").offset == 0
    files.decide = failing(".data")
    with pytest.raises(NotDurable):
        topic.write(b"refused")
    assert messages_of(topic) == {0: b"before"}
    files.decide = working
    offset = topic.write(b"after").offset
    assert offset == 2, "offsets that were given out are not given again"
    assert messages_of(topic) == {0: b"before", 2: b"after"}


def test_a_disk_that_keeps_failing_refuses_every_write_and_loses_nothing(store, files):
    topic = store.create_topic("orders")
    topic.write_many([b"%d" % n for n in range(5)])
    files.decide = failing(".data")
    for _ in range(4):
        with pytest.raises(NotDurable):
            topic.write(b"refused")
    assert list(messages_of(topic).values()) == [b"%d" % n for n in range(5)]
    files.decide = working
    topic.write(b"after")
    assert list(messages_of(topic).values()) == [*(b"%d" % n for n in range(5)), b"after"]


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_any_failing_sync_leaves_a_sound_log(scratch, sync):
    """The sync that fails is that of a message, a roll, a new segment, a folder, a reservation, an index."""
    failed = 0
    for number in range(60):
        folder = os.path.join(scratch, str(number))
        files = HostileFiles()
        acked = {}
        with penstock.open(folder, files=files) as store:
            topic = store.create_topic("orders", sync=sync, segment_bytes=4096)
            files.decide = nth(number, ("sync", "sync_dir"), errno.EIO)
            for count in range(24):
                value = b"%d " % count + b"x" * 500
                try:
                    acked[topic.write(value).offset] = value
                except NotDurable:
                    failed += 1
            store.flush_housekeeping()
            assert messages_of(topic) == acked
            files.decide = working
        assert list(acked) == sorted(acked)
        assert len(acked) >= 23
        for boot in (FIRST_BOOT, FIRST_BOOT + 1):
            with penstock.open(folder, files=BootFiles(boot)) as store:
                topic = store.topic("orders")
                assert messages_of(topic) == acked
                later = topic.write(b"more")
                assert later.offset > max(acked)
                acked[later.offset] = b"more"
    assert failed > 5


def test_others_who_wait_for_the_same_sync_get_no_false_acknowledgement(store, files):
    """Two writers have appended; the sync that would have covered both fails (docs/RECOVERY.md)."""
    topic = store.create_topic("orders")
    topic.write(b"before")
    begun, go_on = threading.Event(), threading.Event()
    syncs = []

    def slow_and_failing(call, path):
        if call != "sync" or not path.endswith(".data"):
            return 0
        syncs.append(path)
        if len(syncs) == 1:
            begun.set()
            assert go_on.wait(20)
            return errno.EIO
        return 0

    files.decide = slow_and_failing
    results = {}

    def write(value):
        try:
            results[value] = topic.write(value)
        except NotDurable as error:
            results[value] = error

    first = threading.Thread(target=write, args=(b"first",))
    first.start()
    assert begun.wait(20)
    others = [threading.Thread(target=write, args=(b"other %d" % n,)) for n in range(3)]
    for thread in others:
        thread.start()
    a = inside(topic).log(0).folder
    while a.read_append().next < 5:  # all four are appended, none is durable
        pass
    go_on.set()
    for thread in (first, *others):
        thread.join(20)
    assert all(isinstance(result, NotDurable) for result in results.values()), results
    assert len(results) == 4
    assert messages_of(topic) == {0: b"before"}
    assert topic.write(b"after").offset == 5
    assert messages_of(topic) == {0: b"before", 5: b"after"}


def test_a_message_that_was_synced_before_the_failure_is_acknowledged(store, files):
    """D has passed it when the next sync fails: it is in the log, so its writer must not hear otherwise."""
    topic = store.create_topic("orders")
    log = inside(topic).log(0)
    mine = log.appender.append([encode([b"mine"], created=0)])
    topic.write(b"of another writer")  # covers mine, too
    files.decide = failing(".data")
    with pytest.raises(NotDurable):
        topic.write(b"refused")
    log.syncer.sync(mine.next, mine.cuts)
    assert messages_of(topic) == {0: b"mine", 1: b"of another writer"}


def test_the_next_process_finds_the_mark_and_cuts_back(scratch, files):
    folder = os.path.join(scratch, STORE)
    with penstock.open(folder, files=files) as store:
        topic = store.create_topic("orders")
        topic.write(b"before")
        files.decide = failing(".data")
        with pytest.raises(NotDurable):
            topic.write(b"refused")
        with penstock.open(folder, files=BootFiles(FIRST_BOOT)) as other:
            assert messages_of(other.topic("orders")) == {0: b"before"}
            assert other.topic("orders").write(b"of another process").offset == 2
        files.decide = working
        assert topic.write(b"after").offset == 3
        assert messages_of(topic) == {0: b"before", 2: b"of another process", 3: b"after"}


def test_a_buffered_writer_says_so_and_ends(store, files):
    topic = store.create_topic("orders")
    topic.write(b"before")
    writer = topic.writer(linger=60)
    files.decide = failing(".data")
    writer.write(b"refused")
    with pytest.raises(NotDurable):
        writer.flush()
    files.decide = working
    with pytest.raises((NotDurable, penstock.Closed)):
        writer.write(b"more")
    assert writer.written == 0
    assert messages_of(topic) == {0: b"before"}


def test_a_start_that_could_not_be_synced_removes_nothing(scratch, files):
    clock = HandClock()
    with penstock.open(os.path.join(scratch, STORE), files=files, clock=clock) as store:
        topic = store.create_topic("orders", retention="1h", segment_bytes=4096)
        for number in range(20):
            topic.write(b"%d " % number + b"x" * 500)
        store.flush_housekeeping()
        clock.forward(7200 * 10**9)
        files.decide = failing("/tail")
        with pytest.raises(NotDurable):
            topic.vacuum()
        with pytest.raises(NotDurable):
            topic.vacuum()
        with penstock.open(os.path.join(scratch, STORE), read_only=True, clock=HandClock()) as before:
            assert len(messages_of(before.topic("orders"))) == 20  # before they expired, all are there
        files.decide = working
        assert topic.vacuum().messages == 20
        assert messages_of(topic) == {}
        assert topic.write(b"after").offset == 20


def test_an_offset_reservation_that_could_not_be_synced_is_made_again(scratch, files):
    """On sync="os" topics an offset is given only below a durable mark (W000-2)."""
    folder = os.path.join(scratch, STORE)
    with penstock.open(folder, files=files) as store:
        topic = store.create_topic("clicks", sync="os")
        inside(topic).log(0).bounds()
        files.decide = failing("/append")
        for _ in range(2):
            with pytest.raises(NotDurable):
                topic.write(b"refused")
        files.decide = working
        assert topic.write(b"first").offset == 0


def cut_back_then_power_loss(scratch, seed):
    """A sync fails, the next writer cuts back, the power goes at any call; yields what is wrong then."""
    print(f"seed {seed}")
    folder, trace, clock = os.path.join(scratch, f"run{seed}"), Trace(), HandClock()
    os.mkdir(folder)
    files = TracingFiles(folder, trace)
    with traced_commits(trace):
        store = penstock.open(os.path.join(folder, STORE), files=files, clock=clock)
        topic = store.create_topic("ledger")
        trace.mark("created", topic.id, "ledger", 1, "disk")
        for number in range(4):
            values = [b"%d %d " % (number, n) + b"x" * 200 for n in range(5)]
            trace.mark("attempt", topic.id, values)
            files.fails = lambda path, fails=number == 2: fails and path.endswith(".data")
            try:
                for receipt, value in zip(topic.write_many(values), values, strict=True):
                    trace.mark("acked", topic.id, 0, receipt.offset, value, "disk")
            except NotDurable:
                files.fails = lambda path: False
        store.close()
    for point in points(trace.calls, random.Random(seed)):
        if point.kind == "lost":
            yield from look(os.path.join(scratch, "crashed"), point, clock.now)


def test_what_was_cut_off_does_not_return_with_the_next_boot(scratch):
    assert [found for seed in range(4) for found in cut_back_then_power_loss(scratch, seed)] == []


def test_canary_a_cut_that_is_not_made_durable_is_noticed(scratch, monkeypatch):
    monkeypatch.setattr(Repair, "_sync_cut", lambda self: None)
    assert any("Corrupt" in found for seed in range(20) for found in cut_back_then_power_loss(scratch, seed))


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_a_transaction_whose_sync_failed_tells_where_its_messages_are(store, files, sync):
    """They were cut off and came in again, or were written again where they are."""
    topic = store.create_topic("orders", sync=sync)
    topic.write(b"before")
    tx = store.transaction()
    tx.write_many("orders", [b"first", b"second"])
    failures = [errno.EIO]
    files.decide = lambda call, path: failures.pop() if failures and failing(".data")(call, path) else 0
    tx.commit()
    assert not failures
    (run,) = tx.stored["orders"]
    assert [topic.get(run.first + place).value for place in range(run.count)] == [b"first", b"second"]
    assert sorted(messages_of(topic).values()) == [b"before", b"first", b"second"]


def test_what_a_transaction_brought_into_an_os_topic_survives_a_failed_sync_and_then_the_power(scratch):
    """It was seen, so it stays where it is; a sync that failed and is only tried again would not keep it."""
    folder, trace, clock = os.path.join(scratch, "run"), Trace(), HandClock()
    os.mkdir(folder)
    files = TracingFiles(folder, trace)
    with traced_commits(trace):
        with penstock.open(os.path.join(folder, STORE), files=files, clock=clock) as store:
            topic = store.create_topic("orders", sync="os")
            trace.mark("created", topic.id, "orders", 1, "os")
            failures = [True]

            def fails(path):
                if path.endswith(".data") and failures:
                    trace.mark("sync_failed")
                    return failures.pop()
                return False

            trace.mark("attempt", topic.id, [b"before", b"kept"])
            topic.write(b"before")
            files.fails = fails
            with store.transaction() as tx:
                tx.write(topic, b"kept")
            assert not failures
            trace.mark("acked", topic.id, 0, tx.stored["orders"][0].first, b"kept", "disk")
    found = []
    for seed in range(5):
        for point in points(trace.calls, random.Random(seed)):
            found += look(os.path.join(scratch, "crashed"), point, clock.now)
    assert found == []
