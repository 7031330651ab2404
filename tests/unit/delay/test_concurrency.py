"""Threads that share one `WaitingMessages`."""

import threading
from collections import Counter

from penstock.delay.records import NewRecord
from penstock.delay.waiting import WaitingMessages


def test_threads_that_store_together_lose_nothing(tmp_path):
    """B003-17: each call returns when its messages are durable; files roll meanwhile, one thread takes."""
    with WaitingMessages(tmp_path / "delay", ladder=["1ms"], file_bytes=4096) as waiting:
        failures = []

        def store(name):
            try:
                for number in range(60):
                    entry = NewRecord(number % 2, bytes(16), "t", 0, b"%d %d" % (name, number) + bytes(100))
                    waiting.store_many([entry])
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=store, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        came = Counter()
        while len(came) < 240 and not failures:
            assert waiting.wait(30)
            taken = waiting.take(7)
            came.update(each.data for each in taken)
            waiting.finish(taken)
        for thread in threads:
            thread.join()
        assert failures == []
        assert set(came.values()) == {1}
        assert waiting.count() == 0


def test_workers_that_finish_out_of_order_lose_nothing(tmp_path):
    with WaitingMessages(tmp_path / "delay", sync="os") as waiting:
        waiting.store_many(NewRecord(0, bytes(16), "t", 0, b"%d" % n) for n in range(400))
        assert waiting.wait(5)
        taken = waiting.take(400)
        workers = [
            threading.Thread(target=lambda part: [each.done() for each in part], args=(taken[n::4],))
            for n in range(4)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert waiting.count() == 0
