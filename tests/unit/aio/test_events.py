"""Many coroutines subscribe: none takes a thread, each hears its own keys, a cancelled one leaves nothing."""

import asyncio
import threading

import penstock.aio
from penstock.events.event_query import EventQuery
from penstock.testing import Clock
from tests.kit.cursors import id_of

COUNT = 300


async def waiters(events, count):
    """Return when so many wait."""
    async with asyncio.timeout(60):
        while events._listeners.waiting != count:  # noqa: ASYNC110 - who begins to wait rings no bell
            await asyncio.sleep(0.001)


async def test_many_wait_without_threads_and_each_is_woken_by_its_key(tmp_path):
    before = threading.active_count()  # of other tests
    async with penstock.aio.open(tmp_path / "store") as store:
        events = await store.events()
        cursor = (await events.subscribe(["k"])).next
        waiting = [
            asyncio.create_task(events.subscribe([["n", number], "all"], cursor, timeout=60))
            for number in range(COUNT)
        ]
        await waiters(events, COUNT)
        assert threading.active_count() < before + 20
        await events.push(["n", 7], "for one")
        assert [event.data for event in (await waiting.pop(7)).events] == ["for one"]
        await waiters(events, COUNT - 1)
        await events.push("all", "for all")
        answers = await asyncio.gather(*waiting)
        assert {event.data for answer in answers for event in answer.events} == {"for all"}
        assert {id_of(answer.next) for answer in answers} == {f"{events.epoch}.3"}


async def test_a_cancelled_subscriber_leaves_nothing_behind(tmp_path):
    async with penstock.aio.open(tmp_path / "store") as store:
        events = await store.events()
        cursor = (await events.subscribe(["k"])).next
        waiting = asyncio.create_task(events.subscribe(["k"], cursor, timeout=60))
        await waiters(events, 1)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        await waiters(events, 0)
        assert not events.blocking.open_topic.readers


async def test_an_event_costs_only_those_it_is_for(tmp_path, monkeypatch):
    """The others do not look; and what passed them by and expired meanwhile is no gap for them."""
    clock = Clock()
    async with penstock.aio.open(tmp_path / "store", clock=clock) as store:
        topic = await store.create_topic("events", index="key", retention="1h")
        events = await store.events()
        cursor = (await events.subscribe(["k"])).next
        waiting = [
            asyncio.create_task(events.subscribe([["n", number]], cursor, timeout=60))
            for number in range(COUNT)
        ]
        await waiters(events, COUNT)
        looked = []
        search = EventQuery.search
        monkeypatch.setattr(EventQuery, "search", lambda *args: looked.append(args) or search(*args))
        for number in range(20):
            await events.push(["n", 0] if number == 10 else "nobody", number)
        assert (await waiting[0]).events[0].data == 10
        await asyncio.sleep(0)
        assert len(looked) == 1
        async with asyncio.timeout(60):
            while events._listeners._tail.position < 20:  # noqa: ASYNC110 - until all have passed them by
                await asyncio.sleep(0.001)
        clock.advance("2h")
        await topic.vacuum()
        assert (await topic.stats()).messages == 0
        await events.push(["n", 1], "for one")
        answer = await waiting[1]
        assert ([event.data for event in answer.events], answer.gap) == (["for one"], None)
        for task in waiting[2:]:
            task.cancel()
        await asyncio.wait(waiting)


async def test_pushes_at_the_same_time_get_ids_of_their_own(tmp_path):
    async with penstock.aio.open(tmp_path / "store") as store:
        events = await store.events()
        pushed = await asyncio.gather(*(events.push("k", number) for number in range(50)))
        assert sorted(each.first for each in pushed) == list(range(1, 51))
        answer = await events.subscribe(["k"], rewind=50)
        assert {event.id: event.data for event in answer.events} == {
            each.first: number for number, each in enumerate(pushed)
        }
