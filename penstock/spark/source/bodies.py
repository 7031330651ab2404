"""Bodies outside the log, as tasks on executors find them: told where they lie, fetched many at a time.

A task opens no store. What it needs to know of a topic's places travels with its slice; credentials do not,
they come from the environment of the executor, a profile, or its machine's role.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from penstock import codecs, references
from penstock.errors import MessageTooLarge
from penstock.log import arrow_columns
from penstock.log.frame import RAW
from penstock.log.frame_header import CODECS, Head
from penstock.parse import MIB
from penstock.payloads.names import path_of
from penstock.references import Reference
from penstock.spark.source.body_places import BodyPlaces
from penstock.spark.source.segments import FramePart

#: Objects that a task fetches at the same time.
_AT_ONCE = 8
#: So many bytes of bodies are made one record batch; it is in memory a few times over.
_PORTION_BYTES = 32 * MIB
#: Arrow and Java count the bytes of a column of a batch with 31 bits; its small neighbours need some, too.
_ROW_BYTES_MOST = 2**31 - 64 * MIB

STRUCT = pa.struct(
    [
        ("place", pa.string()),
        ("name", pa.string()),
        ("path", pa.string()),
        ("start", pa.int64()),
        ("size", pa.int64()),
        ("sha256", pa.string()),
        ("codec", pa.string()),
        ("packed", pa.bool_()),
    ]
)


class Outside:
    """The values of a topic that lie outside the log, for one task: fetched, or told by where they lie."""

    def __init__(self, places: BodyPlaces | None = None, *, fetched: bool = True) -> None:
        self._fetched = fetched
        self._places = {} if places is None else places.by_number()
        self._addresses = {} if places is None else {n: places.address(p) for n, p in self._places.items()}
        if places is not None and fetched:
            for number, place in self._places.items():
                references.know(number, places.open(place))

    def portions(self, part: FramePart) -> Iterator[tuple[FramePart, int]]:
        """A part of a frame, cut so that the bodies of each piece fit into memory, and its bytes."""
        if not self._fetched or not may_refer(part.frame.head):
            yield part, part.bytes
            return
        first, weight, light = part.first, 0, part.bytes // max(part.stop - part.first, 1)
        for at, reference in enumerate(_references(part), part.first):
            size = light if reference is None else reference.size
            if at > first and weight + size > _PORTION_BYTES:
                yield part._replace(first=first, stop=at), weight
                first, weight = at, 0
            weight += size
        yield part._replace(first=first), weight

    def values(self, part: FramePart, topic: str, partition: int) -> pa.Array:
        """The values of a part of a frame; raises for the first that cannot be had."""
        numbers = part.frame.codec_numbers(part.first, part.stop)
        if references.CODEC not in numbers:
            return arrow_columns.decoded_values(*part, topic, partition)
        stored = part.frame.values(part.first, part.stop)
        where = _Where(topic, partition, part.frame.head.base + part.first)
        if self._fetched:
            return pa.array(_opened(list(zip(stored, numbers, strict=True)), where), pa.binary())
        values = [
            json.dumps(self._told(references.unpack(value)), ensure_ascii=False).encode()
            if value is not None and number == references.CODEC
            else where.decoded(at, value, number)
            for at, (value, number) in enumerate(zip(stored, numbers, strict=True))
        ]
        return pa.array(values, pa.binary())

    def column(self, part: FramePart) -> pa.Array:
        """Where the values of a part of a frame lie; null for those in the log, and for tombstones."""
        told = [None if each is None else self._told(each) for each in _references(part)]
        return pa.array(told, STRUCT)

    def _told(self, reference: Reference) -> dict[str, Any]:
        """What a user is told of a body, by name: enough to find it, to fetch it and to check it."""
        place = self._places.get(reference.place)
        known = self._addresses.get(reference.place)
        return {
            "place": f"#{reference.place:016x}" if place is None else place.address,
            "name": reference.name,
            "path": None if known is None else f"{known}/{path_of(reference.name)}",
            "start": reference.start,
            "size": reference.size,
            "sha256": reference.sha256.hex(),
            "codec": codecs.name_of(reference.codec),
            "packed": reference.is_packed,
        }


class _Where(NamedTuple):
    """Where a run of messages lies, to be said when one of them cannot be decoded."""

    topic: str
    partition: int
    offset: int

    def decoded(self, at: int, value: bytes | None, number: int) -> bytes | None:
        if value is None or number == RAW:
            return value
        return codecs.decoded(
            number, value, topic=self.topic, partition=self.partition, offset=self.offset + at
        )


def may_refer(head: Head) -> bool:
    """Whether a frame may hold a value that lies outside."""
    return bool(head.flags & CODECS) or head.codec == references.CODEC


def _references(part: FramePart) -> Iterator[Reference | None]:
    """The reference of each message of a part; None for one whose value is in the log."""
    if not may_refer(part.frame.head):
        yield from [None] * (part.stop - part.first)
        return
    stored = part.frame.values(part.first, part.stop)
    for value, number in zip(stored, part.frame.codec_numbers(part.first, part.stop), strict=True):
        yield None if value is None or number != references.CODEC else references.unpack(value)


def _opened(stored: Sequence[tuple[bytes | None, int]], where: _Where) -> list[bytes | None]:
    """All values, in order. Neighbours in one object are fetched one after the other, as one request."""
    runs = [list(run) for _, run in groupby(enumerate(stored), key=lambda each: _object(*each[1]))]

    def open_run(run: Sequence[tuple[int, tuple[bytes | None, int]]]) -> list[bytes | None]:
        return [_one(at, value, number, where) for at, (value, number) in run]

    outside = sum(_object(*run[0][1]) is not None for run in runs)
    if outside < 2:
        return [value for run in runs for value in open_run(run)]
    with ThreadPoolExecutor(min(_AT_ONCE, outside), "penstock-fetch") as pool:
        return [value for run in pool.map(open_run, runs) for value in run]


def _one(at: int, value: bytes | None, number: int, where: _Where) -> bytes | None:
    if value is not None and number == references.CODEC:
        size = references.unpack(value).size
        if size > _ROW_BYTES_MOST:
            raise MessageTooLarge(
                f"offset {where.offset + at} of {where.topic!r} partition {where.partition}: "
                f"a body of {size} bytes does not fit into a row of Spark's",
                hint='option("payload", "reference") gives where it lies',
            )
    return where.decoded(at, value, number)


def _object(value: bytes | None, number: int) -> tuple[int, str] | None:
    """What a body lies in; None for a value in the log."""
    if value is None or number != references.CODEC:
        return None
    reference = references.unpack(value)
    return reference.place, reference.name
