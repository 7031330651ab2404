"""Four processes write to one topic and four read it, each as a consumer of its own."""

import os

import pytest

import penstock
from tests.crash.processes import Worker, no_orphans, told
from tests.crash.test_killed_writers import check_order
from tests.crash.workers import ORDERS


@pytest.mark.parametrize("partitions", [1, 3])
def test_every_message_reaches_every_consumer_once_and_each_writers_order_is_kept(scratch, partitions):
    store, stop, count = os.path.join(scratch, "store"), os.path.join(scratch, "stop"), 800
    with penstock.open(store) as opened:
        opened.create_topic(ORDERS, partitions=partitions, segment_bytes=1 << 16)
    everyone: list[Worker] = []
    with no_orphans(everyone):
        readers = [
            Worker("read", store, ORDERS, f"consumer{number}", stop, out=os.path.join(scratch, f"r{number}"))
            for number in range(4)
        ]
        everyone += readers
        writers = [
            Worker(
                "write", store, f"writer{number}", mode, str(count), out=os.path.join(scratch, f"w{number}")
            )
            for number, mode in enumerate(["one", "one", "buffered", "many"])
        ]
        everyone += writers
        for writer in writers:
            assert writer.end() == 0, writer.errors()
        open(stop, "w").close()
        for reader in readers:
            assert reader.end() == 0, reader.errors()
    written = [told(writer.lines()) for writer in writers]
    assert [len(acked) for acked in written] == [count] * 4
    everything = {(partition, offset): value for acked in written for partition, offset, value in acked}
    assert len(everything) == 4 * count
    for reader in readers:
        received = told(reader.lines())
        assert len(received) == 4 * count
        assert {(partition, offset): value for partition, offset, value in received} == everything
        check_order(everything)
        for partition in range(partitions):
            offsets = [offset for at, offset, _ in received if at == partition]
            assert offsets == list(range(len(offsets))), "in order, without a hole"
    with penstock.open(store) as opened:
        assert {consumer.lag for consumer in opened.topic(ORDERS).consumers()} == {0}


def test_readers_and_writers_bear_vacuum_and_repacking_by_others(scratch):
    """Segments are sealed, repacked, renamed and removed under everyone's eyes (W004-05, W004-06)."""
    store, stop = os.path.join(scratch, "store"), os.path.join(scratch, "stop")
    with penstock.open(store) as opened:
        opened.create_topic(ORDERS, max_bytes=1 << 18, segment_bytes=1 << 16)
    everyone: list[Worker] = []
    with no_orphans(everyone):
        for job in ("look_around", "look_around", "follow", "vacuum", "vacuum"):
            everyone.append(Worker(job, store, stop, out=os.path.join(scratch, f"{job}{len(everyone)}")))
        writers = [
            Worker("write", store, f"writer{number}", mode, count, out=os.path.join(scratch, f"w{number}"))
            for number, (mode, count) in enumerate(
                [("one", "5000"), ("buffered", "60000"), ("many", "30000")]
            )
        ]
        everyone += writers
        for writer in writers:
            assert writer.end() == 0, writer.errors()
        open(stop, "w").close()
        for worker in everyone:
            if worker not in writers:
                assert worker.end() == 0, worker.errors()
    said = [int(worker.lines()[-1].split()[1]) for worker in everyone if worker not in writers]
    assert min(said[:3]) > 0
    acked = {each for writer in writers for each in told(writer.lines())}
    assert len(acked) == 95_000
    with penstock.open(store) as opened:
        topic = opened.topic(ORDERS)
        left = {(m.partition, m.offset, m.text) for m in topic.scan().messages()}
        start = topic.stats().partitions[0].start
    assert start > 0
    assert left == {each for each in acked if each[1] >= start}
