"""Few descriptors: a store may have more partitions than open files, and running out is no failed disk."""

import errno
import os
import resource
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import penstock
from penstock.errors import NotDurable, Unavailable
from tests.crash.tracing import FIRST_BOOT, BootFiles
from tests.kit.frames import encode
from tests.kit.logs import AWAKE, AwakeLogs
from tests.kit.topics import inside


class ScarceFiles(BootFiles):
    """Real files; as long as `refusal` is set, no segment can be opened."""

    refusal = 0

    def open(self, path: str, **how: bool) -> int:
        if self.refusal and path.endswith(".data"):
            raise OSError(self.refusal, os.strerror(self.refusal))
        return super().open(path, **how)


class CountingFiles(BootFiles):
    """Real files that count what is waited for."""

    syncs = 0

    def sync(self, fd: int) -> None:
        self.syncs += 1
        super().sync(fd)

    def sync_dir(self, path: str) -> None:
        self.syncs += 1
        super().sync_dir(path)


@pytest.fixture
def few():
    """No more than 100 descriptors besides those in use."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 100, before[1]))
    yield used + 100
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_topic_may_have_more_partitions_than_there_are_descriptors(scratch, few):
    path = os.path.join(scratch, "store")
    with penstock.open(path) as store:
        topic = store.create_topic("orders", partitions=150)
        for number in range(450):
            topic.write(b"%d" % number, partition=number % 150)
        assert sorted(int(message.text) for message in topic.scan().messages()) == list(range(450))
        with topic.reader(consumer="audit", follow=False) as reader:
            for message in reader:
                reader.commit(message)
            assert not reader.lag()
        assert len(AWAKE) <= AWAKE.most() < 150
    with penstock.open(path) as store:
        assert len(list(store.topic("orders").scan().messages())) == 450


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_thousand_partitions_with_1024_descriptors(scratch):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        with penstock.open(os.path.join(scratch, "store")) as store:
            topic = store.create_topic("orders", partitions=10_000)
            for number in range(10_000):
                topic.write(b"x", partition=number)
            assert sum(1 for _ in topic.scan().messages()) == 10_000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_logs_that_rest_while_threads_write_and_read_lose_nothing(scratch, monkeypatch, sync):
    """Every use of a log puts another one to rest, at any moment."""
    monkeypatch.setattr(AwakeLogs, "most", lambda self: 2)
    monkeypatch.setattr(AwakeLogs, "mapped_most", lambda self: 1)
    failures = []
    with penstock.open(os.path.join(scratch, "store")) as store:
        topic = store.create_topic("orders", partitions=6, sync=sync, segment_bytes=4096)
        acked = [[] for _ in range(4)]

        def write(number):
            try:
                for count in range(120):
                    value = b"%d:%d" % (number, count)
                    acked[number].append((topic.write(value, partition=count % 6).offset, count % 6, value))
            except BaseException as error:
                failures.append(error)

        def read():
            try:
                while any(thread.is_alive() for thread in writers):
                    for partition in range(6):
                        offsets = [message.offset for message in topic.read(partition=partition)]
                        assert offsets == list(range(len(offsets)))
            except BaseException as error:
                failures.append(error)

        writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        readers = [threading.Thread(target=read) for _ in range(2)]
        for thread in (*writers, *readers):
            thread.start()
        for thread in (*writers, *readers):
            thread.join(60)
        assert failures == []
        stored = [(message.offset, message.partition, message.value) for message in topic.scan().messages()]
        assert sorted(stored) == sorted(each for some in acked for each in some)


def test_a_log_that_rested_notices_that_its_topic_was_dropped(scratch):
    path = os.path.join(scratch, "store")
    with penstock.open(path) as here, penstock.open(path) as there:
        for again in (False, True):
            old = here.create_topic("orders")
            old.write(b"old")
            log = inside(old).log(0)
            assert log.rest()
            there.drop_topic("orders")
            if again:
                there.create_topic("orders").write(b"new")
            with pytest.raises(penstock.TopicReplaced):
                log.bounds()
            with pytest.raises((penstock.TopicReplaced, penstock.Closed)):
                old.write(b"lost")
            if again:
                assert [message.value for message in there.topic("orders").read()] == [b"new"]


def test_a_log_does_not_rest_while_someone_is_at_work(scratch):
    with penstock.open(os.path.join(scratch, "store")) as store:
        topic = store.create_topic("orders")
        topic.write(b"x")
        log = inside(topic).log(0)
        for lock in (log.folder.append, log.folder.tail):
            with lock:
                assert not log.rest()
                with ThreadPoolExecutor() as pool:
                    assert not pool.submit(log.rest).result(20)
        assert log.rest()
        assert topic.write(b"y").offset == 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_sync_that_could_not_be_tried_is_no_failed_sync(scratch, number):
    """Only an error of the sync itself makes the next writer cut back."""
    files = ScarceFiles(FIRST_BOOT)
    with penstock.open(os.path.join(scratch, "store"), files=files) as store:
        topic = store.create_topic("orders")
        log = inside(topic).log(0)
        appended = log.appender.append([encode([b"x"], created=1)])
        files.refusal = number
        with pytest.raises(NotDurable) as caught:
            log.syncer.sync(appended.next, appended.cuts)
        assert not caught.value.retryable, "it is stored: written again it would be there twice"
        assert not log.folder.read_durable().poisoned
        files.refusal = 0
        log.syncer.sync(appended.next, appended.cuts)
        assert topic.write(b"y").offset == 1
        assert [message.value for message in topic.read()] == [b"x", b"y"]


def test_a_write_that_finds_no_descriptor_may_be_tried_again(scratch):
    files = ScarceFiles(FIRST_BOOT)
    with penstock.open(os.path.join(scratch, "store"), files=files) as store:
        topic = store.create_topic("orders")
        files.refusal = errno.EMFILE
        with pytest.raises(Unavailable, match="ulimit"):
            topic.write(b"x")
        files.refusal = 0
        assert topic.write(b"x").offset == 0


def test_at_most_256_logs_of_a_topic_are_open_whatever_the_system_allows(scratch):
    """Many partitions (S001-12): those that were opened first give their files back, and are opened again."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 8000:
        pytest.skip("the limit of descriptors is lower than 256 logs")
    path, before = os.path.join(scratch, "store"), len(AWAKE)
    with penstock.open(path) as store:
        small, large = store.create_topic("small", partitions=3), store.create_topic("large", partitions=300)
        small.write_many([b"x"] * 3)
        for number in range(300):
            large.write(b"%d" % number, partition=number)
        assert len(AWAKE) - before <= 3 + 256
        assert small.stats().messages == 3
        assert [int(message.text) for message in large.scan().messages()] == list(range(300))


def test_stats_of_partitions_that_nobody_wrote_to_make_nothing_and_sync_nothing(scratch):
    """Each would cost a sync: seconds for some hundred partitions."""
    files = CountingFiles(FIRST_BOOT)
    with penstock.open(os.path.join(scratch, "store"), files=files) as store:
        topic = store.create_topic("orders", partitions=250)
        topic.write(b"x", partition=7)
        files.syncs = 0
        stats = topic.stats()
        assert files.syncs == 0
    assert stats.messages == 1
    assert [each.messages for each in stats.partitions] == [int(number == 7) for number in range(250)]
    assert [each.segments for each in stats.partitions] == [int(number == 7) for number in range(250)]
