"""A day of retries in a second: the clock is moved by hand, from one due time to the next."""

import penstock
from penstock import Retry
from penstock.testing import Clock

FAILING = 20


def test_a_day_of_retries(tmp_path):
    """Each message is tried at its times, none early, and is a dead letter at the end of the day."""
    clock = Clock()
    policy = Retry(first="1m", factor=2, limit="2h", attempts=18, jitter=0)
    tried: dict[int, list[int]] = {}

    def handle(message):
        tried.setdefault(message.offset, []).append(clock.now_ns() // 10**9)
        raise ValueError("not today")

    with penstock.open(tmp_path / "store", clock=clock) as store:
        topic = store.create_topic("orders")
        topic.write_many([b"x"] * FAILING)
        begin = clock.now_ns() // 10**9
        with topic.reader(consumer="billing", retry=policy) as reader:
            for _ in range(26 * 60):
                reader.process(handle, follow=False)
                clock.advance("1m")
        assert store.dead_letters("orders").count() == FAILING
    waits = [policy.back_off_s(attempt) for attempt in range(1, 18)]
    due = [begin + sum(waits[:attempt]) for attempt in range(18)]
    assert due[-1] - begin > 20 * 3600
    assert len(tried) == FAILING
    assert all(times == due for times in tried.values())


def test_what_waits_is_found_again_by_a_new_process_every_hour(tmp_path):
    clock = Clock()
    policy = Retry(first="90m", factor=1, limit="90m", attempts=10, jitter=0.5)
    attempts = []
    with penstock.open(tmp_path / "store", clock=clock) as store:
        store.create_topic("orders").write("x")
    for _ in range(24):
        with penstock.open(tmp_path / "store", clock=clock) as store:
            with store.topic("orders").reader(consumer="billing", retry=policy, follow=False) as reader:
                for message in reader:
                    attempts.append(message.attempt)
                    reader.retry(message)
        clock.advance("1h")
    assert attempts == list(range(1, len(attempts) + 1))
    assert 8 <= len(attempts) <= 10
