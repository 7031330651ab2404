"""Messages as users have them: text keys, headers, times, typed values; and the calls that write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import msgspec
import pyarrow as pa

from benchmarks.harness import Batch

#: What most messages of a program have in common, and what differs from message to message.
HEADERS = {"source": "web", "trace": "4bf92f3577b34da6"}
PARTITIONS = 4


class Order(msgspec.Struct):
    """What typed topics hold: about 170 bytes of JSON."""

    id: str
    customer: str
    amount: float
    items: list[str]
    note: str


@dataclass(frozen=True)
class TextBatch:
    """A thousand messages as users have them: keys are text."""

    batch: Batch

    @cached_property
    def keys(self) -> list[str]:
        return [key.hex()[: len(key)] for key in self.batch.keys]

    @cached_property
    def texts(self) -> list[str]:
        return [value.hex()[: len(value)] for value in self.batch.values]

    @cached_property
    def orders(self) -> list[Order]:
        return [Order(key, key[:6], 12.5, ["pen", "ink"], "x" * 90) for key in self.keys]

    @cached_property
    def table(self) -> pa.Table:
        return pa.table({"value": pa.array(self.batch.values, pa.binary()), "key": self.keys})


#: Writes the messages of one batch through `writer.write`.
Calls = Callable[[Callable[..., None], TextBatch], None]


def with_key(write: Callable[..., None], batch: TextBatch) -> None:
    for value, key in zip(batch.batch.values, batch.keys, strict=True):
        write(value, key=key)


def with_text(write: Callable[..., None], batch: TextBatch) -> None:
    for value, key in zip(batch.texts, batch.keys, strict=True):
        write(value, key=key)


def with_headers(write: Callable[..., None], batch: TextBatch) -> None:
    for value, key in zip(batch.batch.values, batch.keys, strict=True):
        write(value, key=key, headers=HEADERS)


def with_equal_headers(write: Callable[..., None], batch: TextBatch) -> None:
    for value, key in zip(batch.batch.values, batch.keys, strict=True):
        write(value, key=key, headers={"source": "web", "trace": "4bf92f3577b34da6"})


def with_own_headers(write: Callable[..., None], batch: TextBatch) -> None:
    for value, key in zip(batch.batch.values, batch.keys, strict=True):
        write(value, key=key, headers={"source": "web", "trace": key})


def with_time(write: Callable[..., None], batch: TextBatch) -> None:
    for value, key, moment in zip(batch.batch.values, batch.keys, count(10**18, 1000), strict=False):
        write(value, key=key, timestamp=moment)


def with_order(write: Callable[..., None], batch: TextBatch) -> None:
    for order, key in zip(batch.orders, batch.keys, strict=True):
        write(order, key=key)
