"""Producers that are killed, stopped, and start again: each message is stored exactly once (S001-04)."""

import itertools
import os
import random
import signal
import time
from contextlib import suppress

import pytest

import penstock
from tests.crash.hostile import HostileFiles
from tests.crash.processes import Worker, no_orphans
from tests.crash.workers import ORDERS
from tests.kit.system import locks_module as locks


def found(topic: penstock.Topic, producer: str) -> list[penstock.Message]:
    return [message for message in topic.scan().messages() if message.producer_id == producer]


def check_exactly_once(topic: penstock.Topic, producer: str, acked: int) -> int:
    """Every seqno up to the last acknowledged is there, none twice, in order; the highest there is."""
    messages = found(topic, producer)
    seqnos = sorted(message.seqno for message in messages)
    assert seqnos == sorted(set(seqnos))
    assert set(range(1, acked + 1)) <= set(seqnos)
    assert all(int(message.value) == message.seqno for message in messages)
    for partition in range(len(topic.stats().partitions)):
        own = [message.seqno for message in messages if message.partition == partition]
        assert own == sorted(own)
    return seqnos[-1] if seqnos else 0


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_kill_between_write_and_ack_then_send_again(scratch, seed):
    """Killed at any moment; what was not acknowledged is sent again, also what was stored."""
    chance, acked = random.Random(seed), 0
    store = os.path.join(scratch, "store")
    with penstock.open(store) as opened:
        topic = opened.create_topic(ORDERS, partitions=3, segment_bytes=1 << 14)
        for run in range(6):
            worker = Worker("produce", store, "shop", str(acked + 1), out=os.path.join(scratch, f"run{run}"))
            with no_orphans([worker]):
                worker.wait_for(str(acked + 20))
                time.sleep(chance.uniform(0, 0.1))
                worker.send(signal.SIGKILL)
                worker.end()
            acked = int(worker.lines()[-1])
            check_exactly_once(topic, "shop", acked)
            if run == 2:
                opened.flush_housekeeping()
                topic.vacuum()
    with penstock.open(store) as opened, opened.topic(ORDERS).writer(producer_id="shop") as writer:
        last = writer.last_seqno()
        for seqno in range(1, last + 10):
            writer.write(str(seqno), key=f"key-{seqno % 7}", seqno=seqno)
        writer.flush()
        assert writer.skipped >= acked
        assert check_exactly_once(opened.topic(ORDERS), "shop", last + 9) == last + 9


def test_kill_between_two_partitions(scratch):
    """What the first partition has is not sent to it again; what the second lacks is not skipped."""
    store = os.path.join(scratch, "store")
    with penstock.open(store) as opened:
        topic = opened.create_topic(ORDERS, partitions=2)
        topic.write_many([b"begun"] * 2, partition=0)
        topic.write(b"begun", partition=1)
    worker = Worker("produce", store, "shop", "1", "1", out=os.path.join(scratch, "out"))
    with no_orphans([worker]):
        assert worker.end() == -signal.SIGKILL
    acked = int(worker.lines()[-1])
    with penstock.open(store) as opened:
        topic = opened.topic(ORDERS)
        by_partition = [{m.seqno for m in found(topic, "shop") if m.partition == p} for p in (0, 1)]
        assert max(by_partition[0]) > acked >= max(by_partition[1])
        with topic.writer(producer_id="shop", linger=60) as writer:
            for seqno in range(acked + 1, acked + 41):
                writer.write(str(seqno), key=f"key-{seqno % 7}", seqno=seqno)
            writer.flush()
            assert 0 < writer.skipped < 20
        check_exactly_once(topic, "shop", acked + 40)


def test_a_stopped_producer_that_wakes_up_is_fenced(scratch, monkeypatch):
    """SIGSTOP, takeover, SIGCONT: nothing of the older one comes behind the newer one's fence."""
    monkeypatch.setattr(locks, "PATIENCE_S", 2.0)
    store = os.path.join(scratch, "store")
    with penstock.open(store) as opened:
        topic = opened.create_topic(ORDERS, partitions=2)
        older = Worker("count_on", store, "shop", out=os.path.join(scratch, "older"))
        with no_orphans([older]):
            older.wait_for("20")
            while True:
                older.send(signal.SIGSTOP)
                try:  # it may hold a lock at this moment: then it must go on a little
                    newer = topic.writer(producer_id="shop")
                    newer.write(b"newer:0")
                    break
                except penstock.LockTimeout:
                    older.send(signal.SIGCONT)
                    time.sleep(0.05)
            newer.flush()
            before = len(found(topic, "shop"))
            older.send(signal.SIGCONT)
            older.wait_for("fenced")
            older.end()
            newer.write(b"newer:1")
            newer.close()
        messages = found(topic, "shop")
        assert len(messages) == before + 1
        seqnos = sorted(m.seqno for m in messages)
        assert seqnos == list(range(1, len(messages) + 1))
        newest = {m.seqno for m in messages if m.text.startswith("newer")}
        assert newest == set(seqnos[-2:])
        acknowledged = [int(line) for line in older.lines() if line != "fenced"]
        assert {f"shop:{number}" for number in acknowledged} <= {m.text for m in messages}


def test_a_producer_that_starts_again_and_again_takes_itself_over(scratch):
    store = os.path.join(scratch, "store")
    with penstock.open(store) as opened:
        opened.create_topic(ORDERS)
    for run in range(3):
        worker = Worker("count_on", store, "shop", out=os.path.join(scratch, f"run{run}"))
        with no_orphans([worker]):
            worker.wait_for("10")
            worker.send(signal.SIGKILL)
            worker.end()
    with penstock.open(store) as opened:
        topic = opened.topic(ORDERS)
        seqnos = [m.seqno for m in found(topic, "shop")]
        assert seqnos == list(range(1, len(seqnos) + 1))
        assert len(seqnos) >= 33


def test_a_power_cut_at_each_sync_of_a_checkpoint(scratch):
    """Checkpoints are made by write, sync and rename: one that fails leaves what was there."""
    for number in itertools.count():
        store = os.path.join(scratch, f"store{number}")
        failing = [number]

        def decide(call: str, path: str, failing=failing) -> int:
            if ".producers" not in path or call not in ("sync", "write", "create"):
                return 0
            failing[0] -= 1
            return 5 if failing[0] == -1 else 0

        with penstock.open(store, files=HostileFiles(decide)) as opened:
            topic = opened.create_topic(ORDERS, segment_bytes=4096, max_bytes=1)
            with topic.writer(producer_id="shop") as writer:
                for seqno in range(1, 300):
                    writer.write(b"x" * 100, seqno=seqno)
                    if not seqno % 20:
                        writer.flush()
            opened.flush_housekeeping()
            with suppress(penstock.PenstockError, OSError):
                topic.vacuum()
        with penstock.open(store) as opened, opened.topic(ORDERS).writer(producer_id="shop") as writer:
            assert writer.last_seqno() == 299
            writer.write(b"again", seqno=299)
            assert writer.flush()[0].duplicate
        if failing[0] >= 0:
            break
    assert number >= 6
