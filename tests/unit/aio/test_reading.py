"""Async readers: no thread while they wait, and nothing lost when they are cancelled."""

import asyncio
import contextlib
import threading
import time

import pytest

import penstock
import penstock.aio
from tests.kit.patience import PATIENCE_S


async def settled(seconds=0.05):
    await asyncio.sleep(seconds)


async def cancel(task):
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_thousand_waiting_readers_take_no_thread(tmp_path):
    before = threading.active_count()  # of other tests
    async with penstock.aio.open(tmp_path) as store:
        topic = await store.create_topic("orders", sync="os")
        readers = [await topic.reader() for _ in range(1000)]
        tasks = [asyncio.create_task(reader.receive()) for reader in readers]
        await settled(0.3)
        assert threading.active_count() < before + 20
        assert not any(task.done() for task in tasks)
        await topic.write(b"for all")
        received = await asyncio.wait_for(asyncio.gather(*tasks), 30)
        assert {message.value for message in received} == {b"for all"}
        for reader in readers:
            await reader.close()


async def test_a_cancelled_receive_loses_nothing(tmp_path):
    async with penstock.aio.open(tmp_path) as store:
        topic = await store.create_topic("orders", sync="os")
        async with topic.reader(consumer="c") as reader:
            for number in range(20):
                task = asyncio.create_task(reader.receive())
                await asyncio.sleep(0)
                await cancel(task)
                await topic.write(b"%d" % number)
                message = await reader.receive(timeout=10)
                assert message.value == b"%d" % number
                await reader.commit(message)


@pytest.mark.parametrize("steps", range(12))
async def test_a_cancellation_at_any_moment_loses_nothing(tmp_path, steps):
    """Also while a thread is reading: what it finds is kept for the next call."""
    async with penstock.aio.open(tmp_path) as store:
        topic = await store.create_topic("orders", sync="os")
        await topic.write_many([b"%d" % number for number in range(50)])
        seen = []
        async with topic.reader(follow=False) as reader:
            for _ in range(30):
                task = asyncio.create_task(reader.receive_batch(max_messages=7))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    seen += [int(message.value) for message in await task]
                except asyncio.CancelledError:
                    continue
            seen += [int(message.value) async for message in reader]
        assert seen == list(range(50))


async def test_a_batch_kept_from_a_cancelled_call_is_cut_to_what_the_next_one_asks(tmp_path):
    async with penstock.aio.open(tmp_path) as store:
        topic = await store.create_topic("orders", sync="os")
        await topic.write_many([b"%d" % number for number in range(10)])
        async with topic.reader(follow=False) as reader:
            task = asyncio.create_task(reader.receive_batch())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await cancel(task)
            await settled()
            assert [len(await reader.receive_batch(max_messages=n)) for n in (1, 4, 10)] == [1, 4, 5]


async def test_a_timeout_from_outside_leaves_the_reader_usable(tmp_path):
    async with penstock.aio.open(tmp_path) as store:
        topic = await store.create_topic("orders", sync="os")
        async with topic.reader() as reader:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await reader.receive()
            await topic.write(b"1")
            assert (await reader.receive(timeout=10)).value == b"1"


async def test_commits_go_on_beside_a_waiting_receive(tmp_path):
    async with penstock.aio.open(tmp_path) as store:
        topic = await store.create_topic("orders", sync="os")
        await topic.write_many([b"1", b"2"])
        async with topic.reader(consumer="c") as reader:
            messages = [await reader.receive() for _ in range(2)]
            waiting = asyncio.create_task(reader.receive())
            await settled()
            await asyncio.gather(*(reader.commit(message) for message in reversed(messages)))
            assert (await topic.consumers())[0].positions == {0: 2}
            await topic.write(b"3")
            assert (await asyncio.wait_for(waiting, 10)).value == b"3"


async def test_two_coroutines_cannot_receive_from_one_reader(tmp_path):
    async with penstock.aio.open(tmp_path) as store:
        topic = await store.create_topic("orders", sync="os")
        async with topic.reader() as reader:
            waiting = asyncio.create_task(reader.receive())
            await settled()
            with pytest.raises(penstock.UsageError, match="another coroutine"):
                await reader.receive()
            await topic.write(b"1")
            assert (await asyncio.wait_for(waiting, 10)).value == b"1"


async def test_a_busy_reader_leaves_others_their_turn(tmp_path):
    """It reads in the loop when it is at the end, and must not keep the loop for itself."""
    async with penstock.aio.open(tmp_path) as store:
        topic = await store.create_topic("orders", sync="os")
        with penstock.open(tmp_path) as writing:
            elsewhere, stop = writing.topic("orders"), threading.Event()

            def write():
                while not stop.is_set():
                    elsewhere.write(b"x")

            thread = threading.Thread(target=write)
            thread.start()
            try:
                async with topic.reader() as reader:

                    async def read():
                        async for _ in reader:
                            pass

                    task = asyncio.create_task(read())
                    for _ in range(50):
                        await asyncio.wait_for(asyncio.sleep(0.001), 5)
                    await cancel(task)
            finally:
                stop.set()
                thread.join()


async def test_a_backlog_is_read_in_threads_and_news_in_the_loop(tmp_path, monkeypatch):
    async with penstock.aio.open(tmp_path) as store:
        topic = await store.create_topic("orders", sync="os")
        await topic.write_many([b"x"] * 3000)
        async with topic.reader() as reader:
            threads = []
            poll = reader.engine.poll

            def noted(*limits):
                threads.append(threading.current_thread())
                return poll(*limits)

            monkeypatch.setattr(reader.engine, "poll", noted)
            while await reader.receive_batch(timeout=0):
                pass
            assert threading.main_thread() not in threads
            threads.clear()
            await topic.write(b"news")
            assert len(await reader.receive_batch(timeout=10)) == 1
            assert set(threads) == {threading.main_thread()}


async def test_a_reader_can_be_awaited_entered_and_iterated_at_once(tmp_path):
    async with penstock.aio.open(tmp_path) as store:
        topic = await store.create_topic("orders", sync="os")
        await topic.write_many([b"1", b"2"])
        assert [m.value async for m in topic.reader(follow=False)] == [b"1", b"2"]
        reader = await topic.reader(follow=False)
        assert [m.value async for m in reader] == [b"1", b"2"]
        await reader.close()
        async with topic.reader(follow=False) as reader:
            assert (await reader.receive()).value == b"1"
            assert reader.consumer is None
            assert reader.assigned == [("orders", 0)]


async def test_an_opening_that_is_cancelled_leaves_no_watch_and_no_lock(tmp_path):
    with penstock.open(tmp_path) as store:
        store.create_topic("orders", sync="os")
    for steps in range(4):
        opening = asyncio.ensure_future(_opened(tmp_path))
        for _ in range(steps):
            await asyncio.sleep(0)
        await cancel(opening)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            store = await penstock.aio.open(tmp_path, exclusive=True)
            break
        except penstock.OwnedElsewhere:
            assert time.monotonic() < deadline
            await settled(0.01)
    await store.close()


async def _opened(path):
    return await penstock.aio.open(path)


def test_a_ring_after_the_loop_is_closed_harms_nobody(tmp_path):
    """The thread that hears of writes serves all readers of the process; an error would end it."""

    async def abandon():
        store = await penstock.aio.open(tmp_path)
        topic = await store.create_topic("orders", sync="os")
        return await topic.reader(), store

    reader, store = asyncio.run(abandon())
    with penstock.open(tmp_path) as writing:
        topic = writing.topic("orders")
        with topic.reader() as following:
            assert following.receive(timeout=0) is None
            waits = []
            for number in range(5):
                topic.write(b"%d" % number)
                began = time.monotonic()
                assert following.receive(timeout=10).value == b"%d" % number
                waits.append(time.monotonic() - began)
            assert min(waits) < 0.9, "nobody hears of writes any more"
    reader.engine.close()
    store.blocking.close()
