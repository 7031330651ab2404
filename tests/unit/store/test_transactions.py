"""One transaction at a time: in a thread, or in a task."""

import asyncio
import gc
import threading

import pytest

import penstock
import penstock.aio
from penstock.errors import Closed, UsageError


def test_nested_in_a_thread(tmp_path):
    with penstock.open(tmp_path) as store:
        with store.transaction() as outer, pytest.raises(UsageError, match="nested"):
            store.transaction()
        with pytest.raises(Closed):
            outer.commit()
        with store.transaction():
            pass


def test_side_by_side_in_two_threads(tmp_path):
    with penstock.open(tmp_path) as store:
        topic = store.create_topic("orders")

        def other():
            with store.transaction() as tx:
                tx.write(topic, b"other")

        with store.transaction() as tx:
            tx.write(topic, b"one")
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        assert [message.value for message in topic.read()] == [b"other", b"one"]


def test_nested_in_a_task_and_side_by_side_in_two(tmp_path):
    async def main():
        async with penstock.aio.open(tmp_path) as store:
            topic = await store.create_topic("orders")
            async with store.transaction() as outer:
                await outer.write("orders", b"outer")
                with pytest.raises(UsageError, match="nested"):
                    store.transaction()

            async def work(number):
                async with store.transaction() as tx:
                    await tx.write(topic, b"%d" % number)

            await asyncio.gather(*map(work, range(5)))
            return sorted(message.value for message in await topic.read())

    assert asyncio.run(main()) == [b"0", b"1", b"2", b"3", b"4", b"outer"]


def test_one_that_nobody_holds_any_more_is_rolled_back(tmp_path, caplog):
    with penstock.open(tmp_path) as store:
        topic = store.create_topic("orders")
        tx = store.transaction()
        tx.write_many(topic, [b"x" * 1000] * 200)
        del tx
        gc.collect()
        assert "left open" in caplog.text
        assert not list(tmp_path.rglob("*.staged"))
        with store.transaction() as tx:
            tx.write(topic, b"next")
        assert len(topic.read()) == 1
