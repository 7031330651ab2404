"""Which messages of a batch go where: by the partition they name, by their key, or in turn.

Keys choose as they do for every other writer; each different key of a batch is looked at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.checksum import crc32
from penstock.errors import InvalidOption, UnknownTopic
from penstock.log.frame_columns import pack_bits, padded
from penstock.log.frame_encode import EncodedFrame
from penstock.log.frame_header import HEADERS, KEY_NULLS, KEYS, TIMES, VALUE_NULLS
from penstock.parse import MIB
from penstock.topic.routing import MIX, PARTITIONERS
from penstock.topic.write_plan import TopicPlan

#: Frames are about as large as those of other writers.
FRAME_BYTES = MIB
FRAME_MESSAGES = 10_000


def drafts(messages: pa.RecordBatch, created: int, *, compress: bool) -> Iterator[EncodedFrame]:
    """A batch of messages as frames of about 1 MiB, in order; messages without a time get `created`."""
    for part in _cut(messages):
        yield _draft(part, created, compress=compress)


def _cut(messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of equal count; where a few large values make one too large, that one is cut again."""
    count = messages.num_rows
    parts = max(-(-messages.nbytes // FRAME_BYTES), -(-count // FRAME_MESSAGES))
    parts = min(parts, count)
    if parts <= 1:
        if count:
            yield messages
        return
    bounds = [count * i // parts for i in range(parts + 1)]
    for first, stop in pairwise(bounds):
        yield from _cut(messages.slice(first, stop - first))


def _draft(messages: pa.RecordBatch, created: int, *, compress: bool) -> EncodedFrame:
    there = dict(zip(messages.schema.names, messages.columns, strict=True))
    flags = 0
    fixed: list[Any] = []
    strings: list[Any] = []
    key_nulls = b""
    keys = there.get("key")
    if keys is not None and keys.null_count < len(keys):
        offsets, data, key_nulls = _strings(keys)
        flags |= KEYS | (KEY_NULLS if key_nulls else 0)
        fixed.append(offsets)
        strings.append(data)
    offsets, data, value_nulls = _strings(there["value"])
    flags |= VALUE_NULLS if value_nulls else 0
    fixed += (offsets, key_nulls, value_nulls)
    strings.append(data)
    if "time" in there:
        created, times = _times(there["time"], created)
        flags |= TIMES if times else 0
        fixed.append(times)
    if "headers" in there:
        columns, texts = _headers(there["headers"])
        flags |= HEADERS if texts else 0
        fixed += columns
        strings += texts
    return EncodedFrame(
        (*fixed, *strings), count=messages.num_rows, flags=flags, created=created, compress=compress
    )


def _strings(column: pa.Array) -> tuple[bytes, Any, bytes]:
    """Offsets from 0 on, the strings back to back, and the bitmap of those there are ("" when all are)."""
    nulls = b""
    if column.null_count:
        nulls = padded(_bits(pc.is_valid(column)))
        column = pc.fill_null(column, b"" if pa.types.is_binary(column.type) else "")
    _, offsets, data = column.buffers()
    first, stop, packed = _rebased(offsets, column.offset, len(column))
    return packed, (data.slice(first, stop - first) if stop > first else b""), nulls


def _rebased(offsets: pa.Buffer | None, at: int, count: int) -> tuple[int, int, bytes]:
    """`count + 1` offsets from the one at `at` on, less the first; and the first and the last."""
    if offsets is None or not offsets.size:
        return 0, 0, padded(bytes(4 * (count + 1)))
    cut = pa.Array.from_buffers(pa.int32(), count + 1, [None, offsets], offset=at)
    first, stop = cut[0].as_py(), cut[count].as_py()
    if first:
        offsets, at = pc.subtract(cut, pa.scalar(first, pa.int32())).buffers()[1], 0
    return first, stop, padded(offsets.slice(4 * at, 4 * (count + 1)).to_pybytes())


def _bits(flags: pa.Array) -> bytes:
    if flags.offset:
        return pack_bits(flags.to_pylist())
    stored: bytes = flags.buffers()[1].slice(0, (len(flags) + 7) // 8).to_pybytes()
    spare = -len(flags) % 8
    return stored[:-1] + bytes([stored[-1] & 0xFF >> spare])


def _times(column: pa.Array, created: int) -> tuple[int, bytes]:
    """What the frame says of its time: one for all, or one each."""
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(created, pa.int64()))
    least, most = pc.min_max(column).as_py().values()
    if least == most:
        return least, b""
    return created, column.buffers()[1].slice(8 * column.offset, 8 * len(column)).to_pybytes()


def _headers(column: pa.Array) -> tuple[list[bytes], list[Any]]:
    first, stop, bounds = _rebased(column.buffers()[1], column.offset, len(column))
    if first == stop:
        return [], []
    names, values = column.keys.slice(first, stop - first), column.items.slice(first, stop - first)
    name_offsets, name_bytes, _ = _strings(names)
    value_offsets, value_bytes, _ = _strings(values)
    is_text = pack_bits([pa.types.is_string(values.type)] * len(values))
    return [bounds, name_offsets, value_offsets, is_text], [name_bytes, value_bytes]


def by_topic(topics: pa.Array, plans: Mapping[str, TopicPlan]) -> Iterator[tuple[TopicPlan, pa.Array]]:
    """The topics that a batch names, each with the places of its rows, in order."""
    encoded = topics.dictionary_encode()
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        if name not in plans:
            raise UnknownTopic(name, tuple(sorted(plans)))
        yield plans[name], pc.indices_nonzero(pc.equal(encoded.indices, code))


def chosen(keys: pa.Array | None, asked: pa.Array | None, plan: TopicPlan, turn: int) -> pa.Array | int:
    """The partition of each message, or the one of all; those that have no choice share that of `turn`."""
    next_in_turn = turn % plan.partitions
    if asked is not None and asked.null_count < len(asked):
        _check_partitions(asked, plan)
        by_key = _by_key(keys, plan, next_in_turn)
        return pc.fill_null(asked, by_key) if isinstance(by_key, int) else pc.coalesce(asked, by_key)
    return _by_key(keys, plan, next_in_turn)


def _by_key(keys: pa.Array | None, plan: TopicPlan, next_in_turn: int) -> pa.Array | int:
    if plan.partitions == 1 or keys is None or keys.null_count == len(keys):
        return next_in_turn
    encoded = keys.dictionary_encode()
    different = encoded.dictionary.to_pylist()
    if plan.partitioner == "range":
        numbers = _by_range(different, plan.partitions)
    else:
        choose = PARTITIONERS[plan.partitioner]
        numbers = pa.array([choose(key, plan.partitions) for key in different], pa.int32())
    return pc.fill_null(numbers.take(encoded.indices), next_in_turn)


def _by_range(keys: Sequence[bytes], partitions: int) -> pa.Array:
    """`routing.by_range` of many keys: but for the checksums, no key is looked at by itself."""
    sums = pa.array(array("I", map(crc32, keys)), pa.uint64())
    mixed = pc.bit_wise_and(pc.multiply(sums, pa.scalar(MIX, pa.uint64())), pa.scalar(2**32 - 1, pa.uint64()))
    scaled = pc.multiply(mixed, pa.scalar(partitions, pa.uint64()))
    return pc.shift_right(scaled, pa.scalar(32, pa.uint64())).cast(pa.int32())


def _check_partitions(asked: pa.Array, plan: TopicPlan) -> None:
    for number in pc.min_max(asked).as_py().values():
        if not 0 <= number < plan.partitions:
            raise InvalidOption(
                f"topic {plan.name!r} has no partition {number}",
                hint=f"they are 0 to {plan.partitions - 1}",
            )


def divided(messages: pa.RecordBatch, numbers: pa.Array | int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Partitions with what they get, in the order in which it came."""
    if isinstance(numbers, int):
        yield numbers, messages
        return
    together = messages.take(pc.array_sort_indices(numbers))  # which keeps the order of equals
    first = 0
    for counted in sorted(pc.value_counts(numbers).to_pylist(), key=lambda each: each["values"]):
        yield counted["values"], together.slice(first, counted["counts"])
        first += counted["counts"]
