"""Async writing: coroutines share syncs, get their own results, and never hold up the loop."""

import asyncio
import threading
import time

import pytest

import penstock
import penstock.aio
from tests.contract.disks import Disk


@pytest.fixture
def disk():
    disk = Disk()
    yield disk
    disk.is_full = disk.sync_fails = False
    disk.go_on_syncing()


async def opened_topic(path, disk, **options):
    store = await penstock.aio.open(path, files=disk)
    topic = await store.create_topic("orders", **options)
    await topic.read()  # its files are made when they are first needed
    return store, topic


async def test_coroutines_that_write_at_once_share_syncs(tmp_path, disk):
    store, topic = await opened_topic(tmp_path, disk)
    async with store:
        before = disk.syncs
        receipts = await asyncio.gather(*(topic.write(b"%d" % n, key=b"%d" % n) for n in range(500)))
        assert disk.syncs - before <= 5
        assert sorted(receipt.offset for receipt in receipts) == list(range(500))
        for number, receipt in list(enumerate(receipts))[::100]:
            assert (await topic.get(receipt.offset)).value == b"%d" % number


async def test_each_coroutine_gets_the_receipt_of_its_own_partition(tmp_path, disk):
    store, topic = await opened_topic(tmp_path, disk, partitions=3)
    async with store:
        writes = [topic.write(b"%d" % n, partition=n % 3, headers={"n": str(n)}) for n in range(60)]
        for number, receipt in enumerate(await asyncio.gather(*writes)):
            assert receipt.partition == number % 3
            message = await topic.get(receipt.offset, partition=receipt.partition)
            assert (message.value, dict(message.headers)) == (b"%d" % number, {"n": str(number)})


async def test_a_bad_message_fails_alone(tmp_path, disk):
    store, topic = await opened_topic(tmp_path, disk)
    async with store:
        results = await asyncio.gather(
            topic.write(b"1"), topic.write(5), topic.write(b"2", key="\ud800"), topic.write(b"3"),
            return_exceptions=True,
        )  # fmt: skip
        assert [type(result) for result in results] == [
            penstock.Receipt,
            penstock.WrongType,
            penstock.InvalidOption,
            penstock.Receipt,
        ]
        assert [m.value for m in await topic.read()] == [b"1", b"3"]


async def test_a_full_disk_fails_the_group_and_the_next_one_goes_on(tmp_path, disk):
    store, topic = await opened_topic(tmp_path, disk)
    async with store:
        disk.is_full = True
        results = await asyncio.gather(*(topic.write(b"x") for _ in range(10)), return_exceptions=True)
        assert {type(result) for result in results} == {penstock.DiskFull}
        disk.is_full = False
        assert (await topic.write(b"1")).offset == 0


async def test_a_failed_sync_fails_those_who_waited_for_it(tmp_path, disk):
    store, topic = await opened_topic(tmp_path, disk)
    async with store:
        await topic.write(b"acknowledged")
        disk.sync_fails = True
        results = await asyncio.gather(*(topic.write(b"x") for _ in range(10)), return_exceptions=True)
        assert {type(result) for result in results} == {penstock.NotDurable}
        disk.sync_fails = False
        await topic.write(b"again")
        assert [m.value for m in await topic.read()] == [b"acknowledged", b"again"]


async def test_a_slow_disk_does_not_hold_up_the_loop(tmp_path, disk):
    store, topic = await opened_topic(tmp_path, disk)
    async with store:
        disk.stop_syncing()
        writes = [asyncio.create_task(topic.write(b"x")) for _ in range(20)]
        async with topic.writer() as writer:
            for _ in range(5):
                await writer.write(b"y")
            began = time.monotonic()
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert time.monotonic() - began < 25, "the disk lets a sync wait for 30 s"
            assert not any(write.done() for write in writes)
            disk.go_on_syncing()
            await asyncio.gather(*writes)


async def test_a_cancelled_write_disturbs_no_other(tmp_path, disk):
    store, topic = await opened_topic(tmp_path, disk)
    async with store:
        disk.stop_syncing()
        first = [asyncio.create_task(topic.write(b"first %d" % n)) for n in range(3)]
        await asyncio.sleep(0.05)  # they are on their way to the disk
        second = [asyncio.create_task(topic.write(b"second %d" % n)) for n in range(3)]
        await asyncio.sleep(0)  # they wait for the next group
        first[1].cancel()
        second[1].cancel()
        disk.go_on_syncing()
        results = await asyncio.gather(*first, *second, return_exceptions=True)
        assert [isinstance(result, asyncio.CancelledError) for result in results] == [
            False, True, False, False, True, False,
        ]  # fmt: skip
        stored = [m.value for m in await topic.read()]
        assert b"second 1" not in stored, "it had not left, so it is not written"
        for number, result in enumerate(results):
            if isinstance(result, penstock.Receipt):
                kind = b"first" if number < 3 else b"second"
                assert stored[result.offset] == kind + b" %d" % (number % 3)


async def test_topics_opened_twice_share_a_group(tmp_path, disk):
    store, topic = await opened_topic(tmp_path, disk)
    async with store:
        same = await store.topic("orders")
        before = disk.syncs
        await asyncio.gather(*(each.write(b"x") for each in (topic, same) for _ in range(50)))
        assert disk.syncs - before <= 4


async def test_writes_under_way_are_finished_by_close_and_later_ones_refused(tmp_path, disk):
    store, topic = await opened_topic(tmp_path, disk)
    disk.stop_syncing()
    writes = [asyncio.create_task(topic.write(b"x")) for _ in range(5)]
    await asyncio.sleep(0.05)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0.05)
    disk.go_on_syncing()
    await closing
    assert all(isinstance(receipt, penstock.Receipt) for receipt in await asyncio.gather(*writes))
    with pytest.raises(penstock.Closed):
        await topic.write(b"late")
    await store.close()


async def test_close_is_bounded_whatever_hangs(tmp_path, disk, monkeypatch):
    from penstock.aio import store as module

    monkeypatch.setattr(module, "_CLOSE_WAIT_S", 0.1)
    store, topic = await opened_topic(tmp_path, disk, sync="os")
    blocked = threading.Event()
    stuck = [asyncio.ensure_future(store.threads.run(blocked.wait, 20)) for _ in range(12)]
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await store.close()
    assert time.monotonic() - began < 15, "what hangs does so for 20 s"
    with pytest.raises(penstock.Closed):
        await topic.stats()
    blocked.set()
    await asyncio.gather(*stuck)


async def test_a_writer_waits_its_turn_and_keeps_the_order(tmp_path, disk):
    store, topic = await opened_topic(tmp_path, disk)
    async with store:
        async with topic.writer() as writer:
            for number in range(30_000):
                await writer.write(b"%d" % number)
            await writer.write_many([b"30000", b"30001"])
            await writer.write(b"30002")
            receipts = await writer.flush()
            assert len(receipts) == writer.written == 30_003
        values = [int(m.value) async for m in (await topic.scan()).messages()]
        assert values == list(range(30_003))


async def test_a_cancelled_write_to_a_full_buffer_was_not_accepted(tmp_path, disk):
    store, topic = await opened_topic(tmp_path, disk)
    async with store:
        writer = topic.writer(buffer="64KiB")
        disk.stop_syncing()
        accepted = 0

        async def fill():
            nonlocal accepted
            while True:
                await writer.write(b"%03d" % accepted + b"x" * 500_000)
                accepted += 1

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(fill(), 0.3)
        assert accepted < 12
        disk.go_on_syncing()
        await writer.close()
        assert [int(m.value[:3]) for m in await topic.read()] == list(range(accepted))


async def test_a_writer_shared_by_coroutines_loses_nothing(tmp_path, disk):
    store, topic = await opened_topic(tmp_path, disk, partitions=2)
    async with store:
        async with topic.writer(linger="1ms") as writer:

            async def work(worker):
                for number in range(100):
                    await writer.write(b"%d" % number, key=b"%d" % worker)
                    if number % 30 == 0:
                        await writer.flush()

            await asyncio.gather(*(work(worker) for worker in range(10)))
        seen = {}
        async for message in topic.reader(follow=False):
            seen.setdefault(int(message.key), []).append(int(message.value))
        assert seen == {worker: list(range(100)) for worker in range(10)}
