"""Bodies of 1 KB in an object store: packed many to an object, against one object a message.

The store is SeaweedFS on this machine, so nothing is spent on a network: elsewhere packing saves more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from benchmarks.harness import Bench, rate
from benchmarks.rows import Row, ratio_at_least
from penstock import Payloads
from tests.s3 import S3, MissingServer, started_server

_BODY_BYTES = 1000
#: Written with one call.
_BATCH = 1000
#: One object a message is slow: so many are enough to know its rate.
_ALONE = 500


def run(bench: Bench) -> Iterator[Row]:
    what = "write_many of 1000, 1 KB each, to S3"
    try:
        with started_server() as server:
            os.environ.update(server.options)
            packed, alone, buffered = bench.interleave(
                lambda: many(bench, server, pack="1MiB", count=20 * _BATCH),
                lambda: many(bench, server, pack="0", count=_ALONE),
                lambda: one_by_one(bench, server),
            )
            read, read_alone = bench.interleave(
                lambda: reading(bench, server, pack="1MiB", count=5 * _BATCH),
                lambda: reading(bench, server, pack="0", count=_ALONE),
            )
    except MissingServer as error:
        yield Row(name="payloads", what=what, skipped=str(error))
        return
    peer = "one object a message, 16 at once"
    yield Row(
        name="payloads/packed", what=what, ours=packed, peer=peer, theirs=alone, target=ratio_at_least(10)
    )
    yield Row(
        name="payloads/buffered", what="writer.write, 1 KB each, to S3", ours=buffered, peer=peer,
        theirs=alone, target=ratio_at_least(10),
    )  # fmt: skip
    yield Row(
        name="payloads/read", what="message.value of packed bodies, in order", ours=read,
        peer="one object a message", theirs=read_alone, target=ratio_at_least(10),
    )  # fmt: skip


def many(bench: Bench, server: S3, *, pack: str, count: int) -> float:
    batch = min(_BATCH, count)
    values = [os.urandom(_BODY_BYTES) for _ in range(batch)]
    with bench.store() as store:
        topic = store.create_topic("bodies", payloads=_chosen(server, pack))
        return rate(count, lambda: [topic.write_many(values) for _ in range(count // batch)])


def one_by_one(bench: Bench, server: S3) -> float:
    values = [os.urandom(_BODY_BYTES) for _ in range(10 * _BATCH)]
    with bench.store() as store:
        topic = store.create_topic("bodies", payloads=_chosen(server, "1MiB"))

        def work() -> None:
            with topic.writer() as writer:
                for value in values:
                    writer.write(value)

        return rate(len(values), work)


def reading(bench: Bench, server: S3, *, pack: str, count: int) -> float:
    with bench.store() as store:
        topic = store.create_topic("bodies", payloads=_chosen(server, pack))
        topic.write_many([os.urandom(_BODY_BYTES) for _ in range(count)])
        return rate(count, lambda: sum(len(message.value or b"") for message in topic.scan().messages()))


def _chosen(server: S3, pack: str) -> Payloads:
    return Payloads(place=server.table("bodies"), above=0, pack=pack)
