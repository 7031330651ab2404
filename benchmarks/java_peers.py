"""The calls of a program that writes and reads, beside Apache Kafka and Chronicle Queue on this machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from benchmarks.harness import BATCH, TOPIC, Bench, rate
from benchmarks.peers import chronicle, kafka
from benchmarks.peers.kafka import Broker, Produce
from benchmarks.peers.program import Missing
from benchmarks.rows import Row, ratio_at_least
from benchmarks.usual_messages import HEADERS, PARTITIONS, Calls, TextBatch, with_headers, with_key
from benchmarks.writing import TextWrites

_AHEAD = ratio_at_least(1)
_HEADERS = list(HEADERS.items())


def run(bench: Bench) -> Iterator[Row]:
    with bench.room() as room:
        try:
            with kafka.broker(room) as broker:
                yield from _writing(bench, broker)
                yield from _reading(bench, broker)
        except Missing as missing:
            yield Row(name="kafka", what=kafka.NAME, skipped=str(missing))


def run_chronicle(bench: Bench) -> Iterator[Row]:
    what, text = "writer.write(value, key=str)", TextWrites(bench)
    try:
        with chronicle.writer(bench) as warm:
            ours, theirs, first = bench.interleave(
                lambda: text.written(with_key), warm, lambda: chronicle.first(bench)
            )
    except Missing as missing:
        yield Row(name="chronicle", what=chronicle.NAME, skipped=str(missing))
        return
    yield _row("chronicle/write-str-key", what, ours, theirs, f"{chronicle.NAME}, warm")
    yield _row("chronicle/write-first", what, ours, first, f"{chronicle.NAME}, first in its process")


def _writing(bench: Bench, broker: Broker) -> Iterator[Row]:
    text, count = TextWrites(bench), bench.sizes.messages
    cases: tuple[tuple[str, str, Calls, Produce, dict[str, Any], dict[str, Any]], ...] = (
        ("str-key", "writer.write(value, key=str)", with_key, _keyed, {}, {}),
        ("headers", "… and two headers", with_headers, _with_headers, {}, {}),
        ("partitions", f"… into {PARTITIONS} partitions", with_key, _keyed, {"partitions": PARTITIONS}, {}),
        (
            "numbered", "writer(producer_id=…), text keys", with_key, _keyed, {"producer_id": "shop-1"},
            {"enable.idempotence": True},
        ),
    )  # fmt: skip
    for name, what, call, produce, ours, theirs in cases:

        def sent(
            produce: Produce = produce, partitions: int = ours.get("partitions", 1),
            options: dict[str, Any] = theirs,
        ) -> float:  # fmt: skip
            topic = broker.topic(partitions)
            try:
                return rate(count, lambda: broker.produce(topic, text.batches, produce, **options))
            finally:
                broker.remove(topic)

        one, other = bench.interleave(lambda c=call, o=ours: text.written(c, **o), sent)  # type: ignore[misc]
        yield _row(f"kafka/write-{name}", what, one, other)


def _reading(bench: Bench, broker: Broker) -> Iterator[Row]:
    text = TextWrites(bench)
    there = broker.topic()
    broker.produce(there, text.batches, _keyed)
    with bench.store() as store:
        here = store.create_topic(TOPIC, sync="os")
        for batch in text.batches:
            here.write_many(batch.batch.values, keys=batch.keys)
        count, turns = bench.sizes.messages, itertools.count()

        def batches() -> float:
            def work() -> None:
                with here.reader(consumer=f"c{next(turns)}", follow=False) as reader:
                    while batch := reader.receive_batch(BATCH):
                        for message in batch:
                            assert message.value
                        reader.commit(batch)

            return rate(count, work)

        def each() -> float:
            def work() -> None:
                with here.reader(consumer=f"c{next(turns)}", follow=False) as reader:
                    for message in reader:
                        assert message.value

            return rate(count, work)

        ours, theirs = bench.interleave(batches, lambda: _consumed(broker, there, count))
        yield _row("kafka/read-batches", "receive_batch(1000), a look at each, commit(batch)", ours, theirs)
        ours, theirs = bench.interleave(each, lambda: _polled(broker, there, count))
        yield _row("kafka/read-iterate", "for message in reader", ours, theirs)


def _row(name: str, what: str, ours: Any, theirs: Any, peer: str = kafka.NAME) -> Row:
    return Row(
        name=name, what=what, ours=ours, peer=peer, theirs=theirs, target=_AHEAD,
        by_processor=False,
    )  # fmt: skip


def _keyed(produce: Any, topic: str, batch: TextBatch) -> None:
    for value, key in zip(batch.batch.values, batch.keys, strict=True):
        produce(topic, value, key=key)


def _with_headers(produce: Any, topic: str, batch: TextBatch) -> None:
    for value, key in zip(batch.batch.values, batch.keys, strict=True):
        produce(topic, value, key=key, headers=_HEADERS)


def _consumed(broker: Broker, topic: str, count: int) -> float:
    with broker.consumer(topic) as consumer:

        def work() -> None:
            left = count
            while left:
                messages = consumer.consume(BATCH, timeout=10)
                for message in messages:
                    assert message.value()
                consumer.commit(message, asynchronous=False)
                left -= len(messages)

        return rate(count, work)


def _polled(broker: Broker, topic: str, count: int) -> float:
    with broker.consumer(topic) as consumer:

        def work() -> None:
            for _ in range(count):
                message = consumer.poll(10)
                assert message.value()

        return rate(count, work)
