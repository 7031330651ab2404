"""Subject streams, call by call, and a subject among few and among many messages.

Peers take turns with ours in the same run: bare statements on SQLite tables with the same indexes, and the
same Python call on a stream in Tarantool over loopback, where that is installed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import penstock
from benchmarks.harness import BATCH, Bench, rate
from benchmarks.peers.program import Missing
from benchmarks.peers.sqlite_stream import SqliteStream
from benchmarks.peers.tarantool_stream import tarantool_stream
from benchmarks.rows import Row, ratio_at_least

_HEADERS = {"content-type": "application/json", "source": "shop"}
_CONSUMERS = [f"consumer-{number}" for number in range(100)]
_SUBJECTS = 10_000
#: What one call asks for of a subject among many.
_LIMIT = 100
_LOOKS = 200
#: Subjects that have so many messages, in the streams whose calls are compared.
_ASKED = 20
_FLAT = ratio_at_least(0.5)

Call = Callable[[Any, int], object]
#: What it says in the table, how it is called, and what is asked of it beside SQLite and beside Tarantool.
CALLS: dict[str, tuple[str, Call, float | None, float]] = {
    "by-subject": (
        f"get_messages_by_subject(…, {_LIMIT})",
        lambda stream, n: stream.get_messages_by_subject(f"subject-{n % _ASKED}", 1, _LIMIT),
        None,
        2,
    ),
    "publish": (
        "publish_message(…)",
        lambda stream, _: stream.publish_message("orders", "o/1", _HEADERS),
        1,
        3,
    ),
    "get": ("get_message_by_sequence(…)", lambda stream, n: stream.get_message_by_sequence(n + 1), 1, 3),
    "update": (
        "update_consumer_position(…)",
        lambda stream, n: stream.update_consumer_position(_CONSUMERS[n % 100], "orders", n),
        0.8,
        3,
    ),
    "position": (
        "get_consumer_position(…)",
        lambda stream, n: stream.get_consumer_position(_CONSUMERS[n % 100], "orders"),
        1,
        3,
    ),
}
#: Calls that answer with a hundred messages are made less often.
_DEAR = {"by-subject"}


def run(bench: Bench) -> Iterator[Row]:
    with ExitStack() as stack:
        store = stack.enter_context(bench.store())
        ours, room = store.stream("stream", sync="os"), stack.enter_context(bench.room())
        sqlite = stack.enter_context(closing(SqliteStream(room / "stream.db")))
        try:
            tarantool, missing = stack.enter_context(tarantool_stream(store, room)), ""
        except Missing as error:
            tarantool, missing = None, str(error)
        for stream in (ours, sqlite, tarantool):
            if stream is not None:
                _publish_some(stream)
        for name in CALLS:
            yield from called(bench, name, ours, sqlite, tarantool, missing)
    yield by_subject(bench)


def _publish_some(stream: Any) -> None:
    for number in range(_ASKED * _LIMIT):
        stream.publish_message(f"subject-{number % _ASKED}", "o/1", _HEADERS)


def called(bench: Bench, name: str, ours: Any, sqlite: Any, tarantool: Any, missing: str) -> Iterator[Row]:
    """A call on our stream, as statements of SQLite, and on a stream in Tarantool."""
    what, call, beside_sqlite, beside_tarantool = CALLS[name]
    count = bench.sizes.lookups // (10 if name in _DEAR else 1)

    def measured(stream: Any) -> float:
        return rate(count, lambda: [call(stream, number) for number in range(count)])

    streams = [stream for stream in (ours, sqlite, tarantool) if stream is not None]
    for stream in streams:  # all have been open and asked for a while
        for number in range(_ASKED):
            call(stream, number)
    samples = bench.interleave(*(lambda stream=stream: measured(stream) for stream in streams))
    yield Row(
        name=f"streams/{name}", what=what, ours=samples[0], peer="sqlite3, the same indexes",
        theirs=samples[1], target=None if beside_sqlite is None else ratio_at_least(beside_sqlite),
    )  # fmt: skip
    if tarantool is None:
        yield Row(name=f"streams/{name}-tarantool", what=what, skipped=missing)
        return
    yield Row(
        name=f"streams/{name}-tarantool", what=what, ours=samples[0], peer="Tarantool, the same call",
        theirs=samples[2], target=ratio_at_least(beside_tarantool), by_processor=False,
    )  # fmt: skip


def by_subject(bench: Bench) -> Row:
    """A hundred messages of one subject: whether their number is all that counts."""
    few = max(bench.sizes.messages // 10, _LIMIT * BATCH)
    many = max(bench.sizes.messages, 2 * few)
    with bench.store() as small, bench.store() as large:
        streams = filled(small, few), filled(large, many)
        for stream in streams:
            looked(stream)  # both have been open for a while
        theirs, ours = bench.interleave(*(lambda stream=stream: looked(stream) for stream in streams))
    return Row(
        name="streams/by-subject-growth",
        what=f"get_messages_by_subject(…, {_LIMIT}), {_SUBJECTS:,} subjects, {many:,} messages",
        ours=ours, peer=f"{few:,} messages", theirs=theirs, target=_FLAT,
    )  # fmt: skip


def filled(store: penstock.Store, messages: int) -> penstock.Stream:
    """Subjects at random, in the proportion of a batch to all of them whatever the size."""
    stream = store.stream("stream", sync="os", retention=None)
    topic, chance = store.topic("stream"), random.Random(7)
    wanted = [b"subject-%d" % number for number in range(_LOOKS)]
    for number in range(messages // BATCH):
        keys = [b"subject-%d" % chance.randrange(_SUBJECTS) for _ in range(BATCH)]
        if number < _LIMIT:  # the first hundred batches hold those that are asked for
            keys[: len(wanted)] = wanted
        topic.write_many([b""] * BATCH, keys=keys)
    store.flush_housekeeping(600)
    return stream


def looked(stream: penstock.Stream) -> float:
    """Calls a second, each of a subject that has a hundred messages at least."""

    def work() -> None:
        for number in range(_LOOKS):
            stream.get_messages_by_subject(f"subject-{number}", 1, _LIMIT)

    return rate(_LOOKS, work)
