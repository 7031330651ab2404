"""When messages leave a writer: alone, in company, and behind a sync that is under way."""

import signal
import threading
import time

import pytest

import penstock
from penstock.topic import flusher

PATIENCE_S = 60


def wait_until(is_so):
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_lone_message_does_not_wait_for_company_that_does_not_come(tmp_path, monkeypatch):
    """It waits for a part of `linger`; here that is milliseconds of an hour."""
    monkeypatch.setattr(flusher, "_ALONE", 1e-6)
    with penstock.open(tmp_path / "store") as store:
        topic = store.create_topic("orders", sync="os")
        with topic.writer(linger="1h") as writer:
            writer.write(b"alone")
            wait_until(lambda: len(topic.read()) == 1)
            assert writer.written == 1


def test_an_interrupt_right_behind_the_storing_of_delayed_messages_stores_none_twice(tmp_path, monkeypatch):
    with penstock.open(tmp_path / "store") as store:
        topic = store.create_topic("orders", sync="os")
        delayed = topic.open_topic.delayed
        add = delayed.add

        def interrupted(*arguments, **options):
            add(*arguments, **options)
            signal.raise_signal(signal.SIGINT)

        with topic.writer(linger="1h") as writer:
            with monkeypatch.context() as patch:
                patch.setattr(delayed, "add", interrupted)
                writer.write(b"once", delay="1ms")
                with pytest.raises(KeyboardInterrupt):
                    writer.flush()
        assert writer.written == 1
        with topic.reader() as reader:
            assert reader.receive(timeout=PATIENCE_S).value == b"once"
            assert reader.receive(timeout=0.3) is None


class HeldSyncs(penstock.Files):
    """A disk whose syncs wait until they are let go."""

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()
        self.go_on.set()
        self.syncs = 0

    def sync(self, fd):
        self.syncs += 1
        self.go_on.wait(PATIENCE_S)
        super().sync(fd)


def test_durable_messages_gather_behind_the_sync_that_is_under_way(tmp_path):
    """Without linger: the first leaves at once, all that come during its sync leave as one frame after it."""
    files = HeldSyncs()
    with penstock.open(tmp_path / "store", files=files) as store:
        topic = store.create_topic("orders", sync="disk")
        with topic.writer(linger=0) as writer:
            writer.write(b"warm")
            writer.flush()
            wait_until(lambda: not writer.flusher._unsynced)
            files.go_on.clear()
            before = files.syncs
            writer.write(b"first")
            wait_until(lambda: files.syncs > before)
            for number in range(100):
                writer.write(b"%d" % number)
            assert writer.buffer.count == 100
            files.go_on.set()
            assert len(writer.flush()) == 101
        found = topic.read()
        assert [m.value for m in found] == [b"warm", b"first", *(b"%d" % n for n in range(100))]
        # One frame for each group: its messages were written at the same moment.
        assert len({m.written_at for m in found[2:]}) == 1


def test_durable_messages_gather_while_the_thread_that_syncs_is_on_its_way(tmp_path, monkeypatch):
    """Without linger, on a busy machine: all that come before the first sync has begun are one frame."""
    run, goes_on = flusher._run, threading.Event()

    def run_later(alive):
        goes_on.wait(PATIENCE_S)
        run(alive)

    monkeypatch.setattr(flusher, "_run", run_later)
    with penstock.open(tmp_path / "store") as store:
        topic = store.create_topic("orders", sync="disk")
        with topic.writer(linger=0) as writer:
            for number in range(101):
                writer.write(b"%d" % number)
            assert writer.buffer.count == 100
            goes_on.set()
            wait_until(lambda: writer.written == 101)
        found = topic.read()
        assert [m.value for m in found] == [b"%d" % number for number in range(101)]
        assert len({m.written_at for m in found[1:]}) == 1


def test_frames_are_cut_by_size_not_by_the_clock(tmp_path):
    """A writer that goes on writing fills its frames, however slow the machine."""
    with penstock.open(tmp_path / "store") as store:
        topic = store.create_topic("orders", sync="os")
        with topic.writer(linger="1h") as writer:
            for _ in range(8000):
                writer.write(b"x" * 200, key="key")
            assert 0 < writer.written < 8000
            writer.flush()
        frames = {}
        for message in topic.read(limit=10_000):
            frames.setdefault(message.written_at, []).append(message)
        assert 2 <= len(frames) <= 4
        assert max(map(len, frames.values())) > 3000


@pytest.mark.parametrize("sync", ["os", "disk"])
def test_threads_share_a_writer_and_lose_nothing(tmp_path, sync):
    with penstock.open(tmp_path / "store") as store:
        topic = store.create_topic("orders", sync="os", partitions=3)
        with topic.writer(linger="1ms", sync=sync) as writer:

            def work(name):
                for number in range(3000):
                    writer.write(f"{name}.{number}", key=f"{name}", headers={"n": str(number)})

            threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        found = [m for p in range(3) for m in topic.read(partition=p, limit=20_000)]
        for name in "abcd":
            own = [m for m in found if m.key == name.encode()]
            assert [m.text for m in own] == [f"{name}.{number}" for number in range(3000)]
            assert [m.headers["n"] for m in own] == [str(number) for number in range(3000)]
