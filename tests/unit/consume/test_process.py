"""`process` in the thread that calls it: what it keeps of a batch, and what an interrupt leaves undone."""

import random
import time
import weakref
from contextlib import suppress

import msgspec
import pytest

import penstock
from penstock.state.database import Database
from tests.crash.interrupter import Interrupter


class Order(msgspec.Struct, weakref=True):
    number: int


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path / "store") as opened:
        opened.create_topic("orders", sync="os")
        yield opened


@pytest.mark.parametrize("slow_s", [0, 0.02], ids=["quick", "slow"])
def test_what_was_handled_is_let_go_before_the_next_one(store, slow_s):
    topic = store.topic("orders", type=Order)
    topic.write_many([Order(number) for number in range(20)])
    values = []

    def handle(message):
        assert not any(each() is not None for each in values)
        time.sleep(slow_s)  # after slow ones there is a commit
        values.append(weakref.ref(message.value))

    with topic.reader(consumer="c") as reader:
        assert reader.process(handle, follow=False).handled == 20
    assert len(values) == 20


@pytest.mark.parametrize("opcodes", [False, True], ids=["lines", "opcodes"])
def test_an_interrupt_at_any_moment_loses_no_message(store, opcodes):  # S001-03
    topic = store.topic("orders")
    handled = set()

    def handle(message):
        handled.add(message.offset)

    def process(reader):
        reader.process(handle, follow=False, signals=False)

    readers = [topic.reader(consumer="c")]

    def write_and_process():
        topic.write_many([b"value"] * 3)
        process(readers[-1])

    def check():
        process(readers[-1])  # goes on where it was
        readers.pop().close()
        readers.append(topic.reader(consumer="c"))
        process(readers[-1])  # what was read and not yet in hand when the interrupt came
        assert handled == set(range(topic.stats().messages))

    steps = Interrupter(("consume/process.py",), opcodes=opcodes).each(write_and_process, check)
    readers.pop().close()
    assert steps > (300 if opcodes else 50)


@pytest.mark.parametrize(
    "options", [{}, {"workers": 4}, {"keep_order": True}, {"workers": 4, "keep_order": True}], ids=str
)
def test_a_commit_that_failed_is_made_good_by_the_next_process(store, monkeypatch, options):
    topic, source, rate = store.topic("orders"), random.Random(15), [0.3]
    topic.write_many([b"value"] * 2000, keys=[b"%d" % (number % 50) for number in range(2000)])
    quick, handled, failed = Database.quick, set(), set()

    def sometimes(self, *arguments):
        if source.random() < rate[0]:
            raise penstock.Unavailable("the disk is busy")
        return quick(self, *arguments)

    monkeypatch.setattr(Database, "quick", sometimes)

    def handle(message):
        if message.offset % 97 == 0 and message.offset not in failed:
            failed.add(message.offset)
            raise ValueError("not yet")
        handled.add(message.offset)

    with topic.reader(consumer="c", retry=penstock.Retry(first="1ms", jitter=0)) as reader:
        for _ in range(30):
            with suppress(penstock.Unavailable):
                reader.process(handle, follow=False, **options)
        rate[0] = 0.0
        while len(handled) < 2000:
            reader.process(handle, follow=False, **options)
        reader.process(handle, follow=False, **options)
        assert [each.lag for each in topic.consumers()] == [0]
