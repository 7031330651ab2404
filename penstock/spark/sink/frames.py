"""Which messages of a batch go where: by the partition they name, by their key, or in turn.

Keys choose as they do for every other writer. Where that is costly, each different key of a batch is looked
at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import UnknownTopic
from penstock.log.arrow_columns import numbers_column
from penstock.log.arrow_input import ArrowHeaders, ArrowStrings, numbers
from penstock.log.frame_encode import MessageColumns
from penstock.topic.routing import PARTITIONERS, partition_of, tree_places
from penstock.topic.write_plan import TopicPlan


def columns_of(messages: pa.RecordBatch, created: int) -> MessageColumns:
    """A batch of messages as columns of a frame, in Arrow's buffers; those without a time get `created`."""
    there = dict(zip(messages.schema.names, messages.columns, strict=True))
    keys, headers, times = there.get("key"), there.get("headers"), there.get("time")
    header_column = None if headers is None else ArrowHeaders(headers)
    if times is not None and times.null_count:
        times = pc.fill_null(times, pa.scalar(created, pa.int64()))
    return MessageColumns(
        ArrowStrings(there["value"]),
        None if keys is None or keys.null_count == len(keys) else ArrowStrings(keys),
        None if header_column is None or header_column.is_empty else header_column,
        None if times is None else numbers(times),
    )


def by_topic(topics: pa.Array, plans: Mapping[str, TopicPlan]) -> Iterator[tuple[TopicPlan, pa.Array]]:
    """The topics that a batch names, each with the places of its rows, in order."""
    encoded = topics.dictionary_encode()
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        if name not in plans:
            raise UnknownTopic(name, tuple(sorted(plans)))
        yield plans[name], pc.indices_nonzero(pc.equal(encoded.indices, code))


def chosen(keys: pa.Array | None, asked: pa.Array | None, plan: TopicPlan, turn: int) -> pa.Array | int:
    """The partition of each message, or the one of all; those that have no choice share that of `turn`."""
    next_in_turn = plan.rows.active[turn % len(plan.rows.active)]
    if asked is not None and asked.null_count < len(asked):
        _check_partitions(asked, plan)
        by_key = _by_key(keys, plan, next_in_turn)
        return pc.fill_null(asked, by_key) if isinstance(by_key, int) else pc.coalesce(asked, by_key)
    return _by_key(keys, plan, next_in_turn)


def _by_key(keys: pa.Array | None, plan: TopicPlan, next_in_turn: int) -> pa.Array | int:
    if len(plan.rows.active) == 1 or keys is None or keys.null_count == len(keys):
        return next_in_turn
    if plan.partitioner == "range":
        there = pc.fill_null(keys, b"") if keys.null_count else keys
        places = tree_places(ArrowStrings(there), plan.rows)  # type: ignore[arg-type]
        numbers = numbers_column(array("i", plan.rows.active)).take(_small_numbers(places))
        return pc.if_else(keys.is_valid(), numbers, next_in_turn) if keys.null_count else numbers
    encoded = keys.dictionary_encode()
    choose = PARTITIONERS[plan.partitioner]
    chosen = [partition_of(key, plan.rows, choose) for key in encoded.dictionary.to_pylist()]
    numbers = numbers_column(array("i", chosen)).take(encoded.indices)
    return pc.fill_null(numbers, next_in_turn) if keys.null_count else numbers


def _small_numbers(numbers: Sequence[int]) -> pa.Array:
    if isinstance(numbers, bytes):
        return pa.Array.from_buffers(pa.uint8(), len(numbers), [None, pa.py_buffer(numbers)])
    return pa.array(numbers, pa.int32())


def _check_partitions(asked: pa.Array, plan: TopicPlan) -> None:
    for number in pc.unique(asked.drop_null()).to_pylist():
        if not plan.rows.is_active(number):
            raise plan.rows.unknown(plan.name, number)


def divided(messages: pa.RecordBatch, numbers: pa.Array | int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Divide messages by partition; their order stays."""
    if isinstance(numbers, int):
        yield numbers, messages
        return
    together = messages.take(pc.array_sort_indices(numbers))  # which keeps the order of equals
    first = 0
    for counted in sorted(pc.value_counts(numbers).to_pylist(), key=lambda each: each["values"]):
        yield counted["values"], together.slice(first, counted["counts"])
        first += counted["counts"]
