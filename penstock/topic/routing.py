"""Which partition a message goes to: an explicit one, its group's, by its key, its producer's, or in turn.

`range` divides the hashes into contiguous ranges, so that a partition can later be split in two
without touching the others. `diskq` and `kafka` choose as those systems do, for data that is shared
with them.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, compress, pairwise
from typing import Any, NamedTuple, overload

from penstock.checksum import crc32
from penstock.errors import InvalidOption, WrongType
from penstock.log.frame_encode import MessageColumns
from penstock.partition_tree import MIX, PartitionTree, hash_of
from penstock.topic.write_batch import WriteBatch

#: From a key and the number of partitions to one of them; the same answer whenever it is asked.
Partitioner = Callable[[bytes, int], int]


class RoutePlaces(Sequence[int]):
    """The places of a batch's messages that go one way, ascending; found when they are asked for."""

    __slots__ = ("_count", "_lanes", "_number")

    def __init__(self, lanes: Sequence[int], number: int, count: int) -> None:
        self._lanes = lanes
        self._number = number
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return compress(range(len(self._lanes)), map(self._number.__eq__, self._lanes))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return list(self)[index]


class Route(NamedTuple):
    """Messages of one batch that go to one partition, and their group ("" is none)."""

    partition: int
    group: str
    columns: MessageColumns
    #: Which of the batch they are; None: all of it.
    places: Sequence[int] | None = None
    #: Keys have chosen the partition of some of them.
    keyed: bool = False
    #: Partitions that the caller chose, where it did so for some.
    chosen: Sequence[int | None] | None = None

    def among(self, places: Sequence[int]) -> Route:
        """This route of a part of a batch, with the places that its messages have in all of it."""
        own = places if self.places is None else [places[place] for place in self.places]
        return self._replace(places=own)


def route(
    batch: WriteBatch, tree: PartitionTree, choose: Partitioner | None, group: str,
    without_key: Callable[[str], int],
) -> list[Route]:  # fmt: skip
    """What each partition gets: those chosen, then by group, by key, and what `without_key` says of a group.

    `group` is that of messages without one of their own. Without `choose` keys are not looked at. What was
    meant for a partition that has been split since goes down the tree.
    """
    columns = batch.columns
    keys = columns.keys if choose is not None else None
    if batch.partitions is None and batch.groups is None:
        if len(tree.active) == 1:
            return [Route(tree.active[0], group, columns)]
        if group or keys is None:
            return [Route(without_key(group), group, columns)]
        if choose is by_range and None not in keys:
            lanes = tree_places(keys, tree)  # type: ignore[arg-type]  # none is None
            parts = split(columns, lanes, len(tree.active))
            return [
                Route(number, "", part, RoutePlaces(lanes, lane, len(part.values)), True)
                for lane, (number, part) in enumerate(zip(tree.active, parts, strict=True))
                if part is not None
            ]
    asked = batch.partitions
    first = asked[0] if asked and batch.groups is None else None
    if asked and first is not None and asked.count(first) == len(asked) and tree.is_active(first):
        return [Route(first, group, columns, None, keys is not None and not group, asked)]
    return _one_by_one(batch, tree, choose, group, without_key)


def partition_of(key: bytes, tree: PartitionTree, choose: Partitioner) -> int:
    """The partition that a key goes to."""
    if choose is by_range:
        return tree.find(hash_of(key))
    return tree.active[choose(key, len(tree.active))]


def tree_places(keys: Sequence[bytes], tree: PartitionTree) -> Sequence[int]:
    """For each key, which of the active partitions owns its hash, counted from 0."""
    if tree.even:
        return by_range_all(keys, len(tree.active))
    return tree.places(map(hash_of, keys))


def _one_by_one(
    batch: WriteBatch, tree: PartitionTree, choose: Partitioner | None, group: str,
    without_key: Callable[[str], int],
) -> list[Route]:  # fmt: skip
    columns, count = batch.columns, len(batch.columns.values)
    keys, asked, groups = columns.keys, batch.partitions, batch.groups
    if choose is None:
        keys = None
    ways: dict[tuple[int, str], int] = {}
    lanes: list[int] = []
    nothing: Sequence[Any] = [None] * count
    for number, own, key in zip(asked or nothing, groups or nothing, keys or nothing, strict=True):
        named = own or group
        if number is None:
            if key is None or named or choose is None:
                number = without_key(named)
            else:
                number = partition_of(key, tree, choose)
        elif not tree.is_active(number):
            number = _below(tree, number, key, named)
        lanes.append(ways.setdefault((number, named), len(ways)))
    parts = split(columns, lanes, len(ways)) if len(ways) > 1 else [columns]
    routes = []
    for (number, named), lane in ways.items():
        part = parts[lane]
        assert part is not None
        places = None if len(ways) == 1 else RoutePlaces(lanes, lane, len(part.values))
        chosen = asked if asked is None or places is None else [asked[place] for place in places]
        routes.append(Route(number, named, part, places, keys is not None and not named, chosen))
    return sorted(routes, key=lambda each: each[:2])


def _below(tree: PartitionTree, number: int, key: bytes | None, group: str) -> int:
    """Where a message goes that was meant for a partition which has been split since."""
    if key is not None and not group:
        return tree.descend(number, hash_of(key))
    return tree.descend_pair(number, "", group)


def split(columns: MessageColumns, lanes: Sequence[int], count: int) -> list[MessageColumns | None]:
    """Divide columns into `count` lanes; None for an empty one. `lanes` names the lane of each message."""
    if not isinstance(columns.values, (list, tuple)):
        return _split_by_places(columns, lanes, count)
    values = _gathered(columns.values, lanes, count)
    others = [
        [None] * count if column is None or isinstance(column, int) else _gathered(column, lanes, count)
        for column in (columns.keys, columns.headers, columns.timestamps, columns.seqnos, columns.codecs)
    ]
    uniform = (_if_uniform(columns.lengths[0]), _if_uniform(columns.lengths[1]))
    return [
        MessageColumns(
            value, key, _if_any(headers), times, None, seqnos,
            columns.codecs if codecs is None else codecs, lengths=uniform,
        )
        if value
        else None
        for value, key, headers, times, seqnos, codecs in zip(values, *others, strict=True)
    ]  # fmt: skip


def _gathered(column: Sequence[Any], lanes: Sequence[int], count: int) -> list[list[Any]]:
    """What each lane gets of a column. No step is taken in Python for a message."""
    lists: list[list[Any]] = [[] for _ in range(count)]
    deque(map(list.append, map(lists.__getitem__, lanes), column), 0)
    return lists


def _split_by_places(
    columns: MessageColumns, lanes: Sequence[int], count: int
) -> list[MessageColumns | None]:
    places = _gathered(range(len(lanes)), lanes, count)
    together = columns.take(array("q", chain.from_iterable(places)))
    bounds = pairwise(accumulate(map(len, places), initial=0))
    return [together.part(first, stop) if stop > first else None for first, stop in bounds]


def _if_uniform(lengths: Any) -> int | None:
    return lengths if isinstance(lengths, int) else None


def _if_any(headers: list[Any] | None) -> list[Any] | None:
    return headers if headers and any(headers) else None


_U32 = 0xFFFFFFFF


def by_range(key: bytes, partitions: int) -> int:
    """CRC-32 of the key, mixed, over equal contiguous ranges."""
    return hash_of(key) * partitions >> 32


def by_range_all(keys: Sequence[bytes], partitions: int) -> Sequence[int]:
    """`by_range` of each key: the sums of all are multiplied as one number, 64 bits for each."""
    count = len(keys)
    sums = int.from_bytes(array("Q", map(crc32, keys)).tobytes(), "little")
    lower_halves = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * count, "little")
    placed = ((sums * MIX & lower_halves) * partitions).to_bytes(8 * count, "little")
    return placed[4::8] if partitions <= 256 else memoryview(placed).cast("I")[1::2].tolist()


def by_diskq(key: bytes, partitions: int) -> int:
    """go-diskq's choice: FNV-1 (not 1a), 32 bits, modulo (B004-06)."""
    hashed = 0x811C9DC5
    for byte in key:
        hashed = (hashed * 0x01000193 & _U32) ^ byte
    return hashed % partitions


def by_kafka(key: bytes, partitions: int) -> int:
    """Kafka's default choice: murmur2, made positive, modulo."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash as Kafka's Java client computes it."""
    multiplier, length = 0x5BD1E995, len(data)
    hashed = (0x9747B28C ^ length) & _U32
    whole = length - length % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * multiplier & _U32
        word = (word ^ word >> 24) * multiplier & _U32
        hashed = (hashed * multiplier & _U32) ^ word
    if length % 4:
        hashed ^= int.from_bytes(data[whole:], "little")
        hashed = hashed * multiplier & _U32
    hashed = (hashed ^ hashed >> 13) * multiplier & _U32
    return hashed ^ hashed >> 15


def checked(choose: object) -> Partitioner:
    """A partitioner of the user's own (S001-38), whose answers are checked."""
    if not callable(choose):
        raise WrongType(f"partitioner is a function of a key and a number, not {type(choose).__name__}")

    def chosen(key: bytes, partitions: int) -> int:
        number = choose(key, partitions)
        if type(number) is not int or not 0 <= number < partitions:
            raise InvalidOption(
                f"the partitioner chose {number!r} for key {key[:60]!r}",
                hint=f"an int from 0 to {partitions - 1}",
            )
        return number

    return chosen


#: The hashes of diskq and Kafka are computed in Python: keys that come again are looked up.
_remembered = lru_cache(maxsize=65_536)
PARTITIONERS: dict[str, Partitioner] = {
    "range": by_range,
    "diskq": _remembered(by_diskq),
    "kafka": _remembered(by_kafka),
}
