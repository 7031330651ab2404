"""Subject streams: the four calls that MiniToolStream gives figures for, one at a time, and a subject among
few and among many messages.

The peer is the same Python call on a stream in Tarantool, in the same run, where that is installed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import penstock
from benchmarks.harness import BATCH, Bench, rate
from benchmarks.peers.program import Missing
from benchmarks.peers.tarantool_stream import tarantool_stream
from benchmarks.rows import Row, Samples, Target, ratio_at_least

_HEADERS = {"content-type": "application/json", "source": "shop"}
_CONSUMERS = [f"consumer-{number}" for number in range(100)]
_SUBJECTS = 10_000
#: What one call asks for of a subject among many.
_LIMIT = 100
_LOOKS = 200
#: What the original says of itself, a second (S000-32), and three times the same call in Tarantool.
_CLAIMED = {"publish": 50_000, "get": 100_000, "update": 80_000, "position": 100_000}
_THRICE, _FLAT = ratio_at_least(3), ratio_at_least(0.5)

Call = Callable[[penstock.Stream, int], object]
CALLS: dict[str, tuple[str, Call]] = {
    "publish": ("publish_message(…)", lambda stream, _: stream.publish_message("orders", "o/1", _HEADERS)),
    "get": ("get_message_by_sequence(…)", lambda stream, n: stream.get_message_by_sequence(n + 1)),
    "update": (
        "update_consumer_position(…)",
        lambda stream, n: stream.update_consumer_position(_CONSUMERS[n % 100], "orders", n),
    ),
    "position": (
        "get_consumer_position(…)",
        lambda stream, n: stream.get_consumer_position(_CONSUMERS[n % 100], "orders"),
    ),
}


def run(bench: Bench) -> Iterator[Row]:
    with bench.store() as store:
        yield from one_at_a_time(bench, store)
    yield by_subject(bench)


def one_at_a_time(bench: Bench, store: penstock.Store) -> Iterator[Row]:
    ours = store.stream("stream", sync="os")
    try:
        with bench.room() as room, tarantool_stream(store, room) as theirs:
            yield from called(bench, ours, theirs, "Tarantool, the same call", _THRICE)
    except Missing as missing:
        yield from called(bench, ours, None, f"({missing})", None)


def called(
    bench: Bench, ours: penstock.Stream, theirs: penstock.Stream | None, peer: str, target: Target | None
) -> Iterator[Row]:
    """A row for each call, on a stream of ours, and on any other beside it."""
    count = bench.sizes.lookups
    for name, (what, call) in CALLS.items():

        def measured(stream: penstock.Stream, call: Call = call) -> float:
            return rate(count, lambda: [call(stream, number) for number in range(count)])

        samples: list[Samples] = bench.interleave(
            *(lambda stream=stream: measured(stream) for stream in (ours, theirs) if stream is not None)
        )
        yield Row(
            name=f"streams/{name}", what=f"{what}; the original claims {_CLAIMED[name]:,}", ours=samples[0],
            peer=peer, theirs=samples[1] if theirs is not None else (), target=target,
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
        name="streams/by-subject",
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
