"""Key indexes that are lost, damaged, or half made when their maker is killed; segments that are gone.

And several processes that write while others read by key.
"""

import os
import signal
import threading

import pytest

import penstock
from tests.crash import test_missing_files as files
from tests.crash.processes import Worker, no_orphans
from tests.crash.test_damage import flip
from tests.crash.workers import ORDERS
from tests.kit import fork_server
from tests.kit.logs import do_housekeeping, seal_segment, stored_keys
from tests.kit.topics import inside

SEGMENTS = (range(40), range(40, 80), range(80, 120))
#: Seals a segment and dies at the `n`-th step of storing its key index: draft open, written, synced, renamed.
BUILDER = """
import os, signal, sys, penstock
from tests.kit.logs import seal_segment
from tests.kit.topics import inside
from penstock.files import Files

class Deadly(Files):
    steps = 0
    def at(self, path):
        if path.endswith(".keyindex.tmp"):
            Deadly.steps += 1
            if Deadly.steps == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
    def open(self, path, **options):
        self.at(path)
        fd = super().open(path, **options)
        self.drafts = getattr(self, "drafts", {})
        self.drafts[fd] = path
        return fd
    def pwrite(self, fd, data, at):
        path = self.drafts.get(fd, "")
        written = super().pwrite(fd, data[: len(data) // 2] if path.endswith(".keyindex.tmp") else data, at)
        self.at(path)
        return super().pwrite(fd, data, at) if path.endswith(".keyindex.tmp") else written
    def sync(self, fd):
        self.at(self.drafts.get(fd, ""))
        super().sync(fd)
    def rename(self, old, new):
        self.at(old)
        os.rename(old, new)

with penstock.open(sys.argv[1], files=Deadly()) as store:
    log = inside(store.topic("orders")).log(0)
    seal_segment(log)
    log.tidy()
"""


def key_of(offset):
    return ["k", offset % 4]


def fill(folder, *, tidy=True, segments=SEGMENTS):
    """Sealed segments, with key indexes or without, and an active one."""
    with penstock.open(folder) as store:
        topic = store.create_topic("orders", index="key")
        log = inside(topic).log(0)
        for segment in segments:
            if segment.start:
                seal_segment(log)
            for offset in segment:
                topic.write(b"value %d" % offset, key=key_of(offset))
        if tidy:
            do_housekeeping(log)
    return os.path.join(folder, files.PARTITION)


def offsets(topic, number, **options):
    return [message.offset for message in topic.read(key=["k", number], **options)]


@pytest.mark.parametrize(
    "spoil",
    [files.missing, files.short, files.empty, files.longer, files.flipped, files.of_another_segment],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_an_index_that_does_not_fit_is_made_again(scratch, spoil, read_only):
    folder = os.path.join(scratch, "store")
    path = os.path.join(fill(folder), f"{0:020d}.keyindex")
    with open(path, "rb") as file:
        right = file.read()
    spoil(path)
    with penstock.open(folder, read_only=read_only) as store:
        for number in range(4):
            assert offsets(store.topic("orders"), number) == list(range(number, 120, 4))
    with penstock.open(folder) as store:
        store.topic("orders").read(key=["k", 0])  # whoever meets a damaged one sees to it
        store.topic("orders").vacuum()
        assert stored_keys(inside(store.topic("orders")).log(0).segments, 0).is_sound()
    with open(path, "rb") as file:
        assert file.read() == right


def test_damage_is_said_where_it_may_hide_the_key_and_only_there(scratch):
    folder = os.path.join(scratch, "store")
    partition = fill(folder)
    data = os.path.join(partition, f"{40:020d}.data")
    with open(data, "rb") as file:
        flip(data, file.read().index(b"value 50"))
    with penstock.open(folder, read_only=True) as store:
        with pytest.raises(penstock.Corrupt):
            store.topic("orders").read(key=["k", 2])
    os.unlink(os.path.join(partition, f"{40:020d}.keyindex"))
    with penstock.open(folder) as store:
        topic = store.topic("orders")
        with pytest.raises(penstock.Corrupt) as caught:
            topic.read(key=["k", 1])
        assert (caught.value.first, caught.value.stop) == (40, 80)
        assert offsets(topic, 1, limit=10) == list(range(1, 40, 4))
        assert offsets(topic, 1, start=80) == list(range(81, 120, 4))
        assert topic.latest(["k", 1]).offset == 117
        assert topic.latest(["k", 1]) is not None
        with pytest.raises(penstock.Corrupt):
            topic.latest(["k", 7])
        topic.vacuum()
    assert not os.path.exists(os.path.join(partition, f"{40:020d}.keyindex"))


@pytest.mark.parametrize("gone", [0, 40])
def test_a_segment_that_is_gone_is_said(scratch, gone):
    """W004-06."""
    folder = os.path.join(scratch, "store")
    os.unlink(os.path.join(fill(folder), f"{gone:020d}.data"))
    with penstock.open(folder) as store:
        topic = store.topic("orders")
        with pytest.raises(penstock.Corrupt, match="missing") as caught:
            topic.read(key=["k", 0])
        assert (caught.value.first, caught.value.stop) == (gone, gone + 40)
        assert offsets(topic, 0, start=80) == list(range(80, 120, 4))


def test_damage_in_the_active_segment_is_said(scratch):
    folder = os.path.join(scratch, "store")
    data = os.path.join(fill(folder), f"{80:020d}.data")
    with open(data, "rb") as file:
        flip(data, file.read().index(b"value 100"))
    with penstock.open(folder) as store:
        topic = store.topic("orders")
        with pytest.raises(penstock.Corrupt) as caught:
            topic.read(key=["k", 1])
        assert (caught.value.first, caught.value.stop) == (100, 101)
        assert offsets(topic, 1, start=101) == [101, 105, 109, 113, 117]
        assert topic.latest(["k", 0]).offset == 116


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_builder_killed_at_any_step_leaves_nothing_that_is_believed(scratch, step):
    folder = os.path.join(scratch, "store")
    partition = fill(folder, tidy=False, segments=SEGMENTS[:1])
    ended = fork_server.run(["-c", BUILDER, folder, str(step)])
    assert ended.returncode == -signal.SIGKILL
    assert not os.path.exists(os.path.join(partition, f"{0:020d}.keyindex"))
    with penstock.open(folder) as store:
        topic = store.topic("orders")
        assert offsets(topic, 3) == list(range(3, 40, 4))
        topic.vacuum()
        assert stored_keys(inside(topic).log(0).segments, 0).is_sound()
        assert offsets(topic, 3) == list(range(3, 40, 4))
    assert not os.path.exists(os.path.join(partition, f"{0:020d}.keyindex.tmp"))


def test_keys_are_read_while_other_processes_write_and_are_killed(scratch):
    """Each look at a writer's key shows what it wrote, in order, and at least what was acknowledged."""
    folder, count = os.path.join(scratch, "store"), 600
    modes = ["one", "buffered", "many"]
    with penstock.open(folder) as store:
        topic = store.create_topic(ORDERS, index="key", segment_bytes=1 << 14)
        everyone: list[Worker] = []
        with no_orphans(everyone):
            for mode in modes:
                out = os.path.join(scratch, mode)
                everyone.append(Worker("write", folder, mode, mode, str(count), out=out))
            seen = dict.fromkeys(modes, 0)
            killed = False
            while any(worker.process.poll() is None for worker in everyone):
                for mode, worker in zip(modes, everyone, strict=True):
                    acked = len(worker.lines())
                    found = [m.text for m in topic.read(key=mode, limit=count)]
                    assert found == [f"{mode}:{n}" for n in range(len(found))]
                    assert len(found) >= max(acked, seen[mode])
                    latest = topic.latest(mode)
                    assert not found or int(latest.text.partition(":")[2]) >= len(found) - 1
                    seen[mode] = len(found)
                if not killed and seen["one"] > 100:
                    everyone[0].send(signal.SIGKILL)
                    killed = True
            for worker in everyone:
                worker.end()
        assert store.flush_housekeeping()
        for mode in modes[1:]:
            assert len(topic.read(key=mode, limit=count + 1)) == count
        assert len(topic.read(prefix="", limit=10_000)) == topic.stats().messages


def test_reads_by_key_bear_segments_that_are_removed_under_their_eyes(scratch):
    """What retention takes is never mistaken for damage (W004-05)."""
    folder = os.path.join(scratch, "store")
    with penstock.open(folder) as writing, penstock.open(folder) as reading:
        topic = writing.create_topic("orders", index="key", sync="os", max_bytes=1 << 16, segment_bytes=4096)
        done = threading.Event()

        def write():
            for number in range(400):
                topic.write_many([b"x" * 200] * 20, keys=[["k", each % 4] for each in range(20)])
                if number % 5 == 0:
                    topic.vacuum()
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        seen = -1
        while not done.is_set():
            latest = reading.topic("orders").latest(["k", 1])
            assert latest is None or latest.offset >= seen
            seen = seen if latest is None else latest.offset
            try:
                found = offsets(reading.topic("orders"), 1)
            except penstock.OffsetTrimmed:
                continue  # retention was quicker, and that is said
            assert found == sorted(set(found))
            assert all(offset % 4 == 1 for offset in found)
        writer.join()
        writing.flush_housekeeping()  # retention may still be at it
        assert offsets(reading.topic("orders"), 1)[-1] == 7997
