"""Partitions as rows: which hashes each one owns, what it came from, and what may still be written to.

Hashes of keys run from 0 up to 2³². The active partitions divide them among themselves, without a gap and
without an overlap, at every moment: a partition that is split gives its range to two children and is only
read from then on, one that is added takes the upper half of another's range. No hash moves in any other
way. A number is used once, and that of a child is above those of its parents: (partition, offset) is
the order of each key.

Everything here is a value: a change makes a new tree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, NamedTuple

from penstock.checksum import crc32
from penstock.errors import DataError, InvalidOption

#: Hashes are below this.
HASHES = 2**32
#: Spreads neighbouring checksums over the whole range.
MIX = 0x9E3779B1
_U32 = HASHES - 1

#: Written to and read; split, and only read; empty for good, without a folder.
RowState = Literal["active", "inactive", "removed"]
_NONE: Mapping[int, int] = MappingProxyType({})


def hash_of(key: bytes) -> int:
    """The hash of a key: its CRC-32, mixed."""
    return crc32(key) * MIX & _U32


def pair_hash(producer: str, group: str, parent: int) -> int:
    """The hash by which a producer's group, bound to a partition that was split, chooses a child of it."""
    return hash_of(f"{parent}\0{producer}\0{group}".encode())


class PartitionRow(NamedTuple):
    """One partition: whose hashes it owns and where it stands in the tree."""

    partition: int
    state: RowState
    #: Its hashes are those from `low` up to, and without, `high`; of a split one those it had.
    low: int
    high: int
    #: Those it took its range from.
    parents: tuple[int, ...] = ()
    #: Those that took theirs from it.
    children: tuple[int, ...] = ()
    #: It opens to a reader who is done with each of these partitions up to this offset.
    gates: Mapping[int, int] = _NONE
    #: Of a split one: the offset behind its last message.
    end: int | None = None

    @property
    def width(self) -> int:
        """How many hashes it owns."""
        return self.high - self.low


class PartitionTree:
    """The partitions of a topic as they are at one moment."""

    __slots__ = ("_by_number", "_lows", "active", "even", "has_grown", "numbers", "rows")

    def __init__(self, rows: Iterable[PartitionRow]) -> None:
        #: All of them, by number.
        self.rows: tuple[PartitionRow, ...] = tuple(sorted(rows, key=lambda row: row.partition))
        self._by_number = {row.partition: row for row in self.rows}
        active = sorted((row for row in self.rows if row.state == "active"), key=lambda row: row.low)
        _require_tiles(active)
        #: Those that can be written to, by their ranges.
        self.active: tuple[int, ...] = tuple(row.partition for row in active)
        #: Those that can be read, ascending.
        self.numbers: tuple[int, ...] = tuple(row.partition for row in self.rows if row.state != "removed")
        self._lows = [row.low for row in active]
        #: Some came later than others.
        self.has_grown: bool = any(row.parents or row.gates for row in self.rows)
        #: The active ones are 0 to N - 1 with equal ranges, as a new topic has them.
        self.even: bool = self.active == tuple(range(len(active))) and self._lows == _even_lows(len(active))

    @classmethod
    def equal(
        cls, count: int, gates: Mapping[int, Mapping[int, int]] = MappingProxyType({})
    ) -> PartitionTree:
        """The layout of a new topic; `gates` are those of partitions added before there were rows."""
        lows = [*_even_lows(count), HASHES]
        return cls(
            PartitionRow(number, "active", low, high, gates=gates.get(number, _NONE))
            for number, (low, high) in enumerate(pairwise(lows))
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, PartitionTree) and self.rows == other.rows)

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, partition: int) -> bool:
        """Whether there is, or was, a partition of that number."""
        return partition in self._by_number

    def __iter__(self) -> Iterator[PartitionRow]:
        return iter(self.rows)

    def __reduce__(self) -> tuple[type[PartitionTree], tuple[list[PartitionRow]]]:
        return PartitionTree, ([row._replace(gates=dict(row.gates)) for row in self.rows],)

    def __repr__(self) -> str:
        return f"<PartitionTree: {len(self.active)} active of {len(self.rows)}>"

    def row(self, partition: int) -> PartitionRow:
        """The row of a partition that there is, or was."""
        return self._by_number[partition]

    def removed(self) -> dict[int, int]:
        """The partitions that are gone, each with the offset behind its last message."""
        return {row.partition: row.end or 0 for row in self.rows if row.state == "removed"}

    def is_active(self, partition: int) -> bool:
        """Whether a partition can be written to."""
        row = self._by_number.get(partition)
        return row is not None and row.state == "active"

    def has(self, partition: int) -> bool:
        """Whether there is a partition of that number, or was one."""
        return partition in self._by_number

    def unknown(self, topic: str, partition: object) -> InvalidOption:
        """The error for a number that is no partition of a topic."""
        numbers = self.numbers
        are = f"{numbers[0]} to {numbers[-1]}"
        if len(numbers) != numbers[-1] - numbers[0] + 1:
            are = ", ".join(map(str, numbers[:20])) + (", …" if len(numbers) > 20 else "")
        return InvalidOption(f"topic {topic!r} has no partition {partition!r}", hint=f"they are {are}")

    # Where hashes go.

    def find(self, hashed: int) -> int:
        """The active partition that owns a hash."""
        return self.active[bisect_right(self._lows, hashed) - 1]

    def places(self, hashes: Iterable[int]) -> list[int]:
        """For each hash, which of `active` owns it, counted from 0."""
        return list(map(partial(bisect_right, self._lows[1:]), hashes))

    def descend(self, partition: int, hashed: int) -> int:
        """The active partition that has what was meant for this one, by the hash of a key."""
        row = self._by_number[partition]
        while row.state != "active":
            low, high = self._halves(row)
            row = low if hashed < high.low else high
        return row.partition

    def descend_pair(self, partition: int, producer: str, group: str) -> int:
        """The active partition that has what a producer's group was bound to this one for."""
        row = self._by_number[partition]
        while row.state != "active":
            low, high = self._halves(row)
            hashed = row.low + (pair_hash(producer, group, row.partition) * row.width >> 32)
            row = low if hashed < high.low else high
        return row.partition

    def ancestors(self, partition: int) -> Iterator[PartitionRow]:
        """What a partition came from, the nearest first."""
        seen, left = {partition}, list(self._by_number[partition].parents)
        while left:
            number = left.pop(0)
            if number not in seen:
                seen.add(number)
                yield self._by_number[number]
                left += self._by_number[number].parents

    def gates(self, partition: int) -> dict[int, int]:
        """Which partitions a reader must be done with, and up to where, before it reads this one.

        A parent that never held a message is passed by everyone, so its own gates count in its place.
        Those that are gone stop nobody.
        """
        found: dict[int, int] = {}
        left = [self._by_number[partition]]
        while left:
            for parent, offset in left.pop().gates.items():
                row = self._by_number.get(parent)
                if row is None or row.state == "removed":
                    continue
                found[parent] = max(offset, found.get(parent, 0))
                if not offset:
                    left.append(row)
        return found

    def _halves(self, row: PartitionRow) -> tuple[PartitionRow, PartitionRow]:
        """The two children of a split: those made last, since nothing is added beside a split one."""
        low, high = row.children[-2:]
        return self._by_number[low], self._by_number[high]

    # Changes.

    def cut(self, partition: int, at: int | None) -> int:
        """The hash at which a partition is divided: `at`, or the middle; raises `InvalidOption`."""
        row = self._by_number[partition]
        if row.width < 2:
            raise InvalidOption(
                f"partition {partition} owns one hash only and cannot be divided",
                hint="what is written there has one key, or keys that hash alike",
            )
        cut = row.low + row.width // 2 if at is None else at
        if not row.low < cut < row.high:
            raise InvalidOption(
                f"partition {partition} cannot be divided at {cut}",
                hint=f"choose a hash between {row.low + 1} and {row.high - 1}, or none for the middle",
            )
        return cut

    def split(self, partition: int, at: int, children: tuple[int, int], end: int) -> PartitionTree:
        """The tree when a partition that ends at `end` was divided at hash `at`."""
        row, (low, high) = self._by_number[partition], children
        return self._with(
            row._replace(state="inactive", children=(*row.children, low, high), end=end),
            PartitionRow(low, "active", row.low, at, (partition,), gates={partition: end}),
            PartitionRow(high, "active", at, row.high, (partition,), gates={partition: end}),
        )

    def grown(self, donor: int, number: int, end: int, at: int | None = None) -> PartitionTree:
        """The tree when a new partition took the upper half of a donor's range, the donor ending at `end`."""
        row, middle = self._by_number[donor], self.cut(donor, at)
        return self._with(
            row._replace(high=middle, children=(*row.children, number)),
            PartitionRow(number, "active", middle, row.high, (donor,), gates={donor: end}),
        )

    def without(self, partition: int) -> PartitionTree:
        """The tree when a split partition is empty and its folder gone; its row stays."""
        row = self._by_number[partition]
        assert row.state == "inactive", f"partition {partition} is {row.state}"
        return self._with(row._replace(state="removed"))

    def widest(self, less: Iterable[int] = ()) -> int:
        """The active partition with the widest range, the lowest of equals, without those of `less`."""
        taken = set(less)
        choice = [self._by_number[number] for number in self.active if number not in taken]
        if not choice:
            raise InvalidOption(
                "every partition is being split at this moment", hint="add partitions when that is done"
            )
        return max(choice, key=lambda row: (row.width, -row.low)).partition

    def _with(self, *changed: PartitionRow) -> PartitionTree:
        return PartitionTree({**self._by_number, **{row.partition: row for row in changed}}.values())


#: One key, or one bound producer's group, with this share of what is written would be alone in a child.
_ALONE_PERCENT = 90


def split_point(hashes: Sequence[int], row: PartitionRow) -> int | None:
    """The hash at which about half of what was written goes to each side; None when that is not possible.

    Without any hash, where messages go in turn, it is the middle. None: nearly all of it has one hash, and a
    split would help nobody.
    """
    counted = Counter(hashed for hashed in hashes if row.low <= hashed < row.high)
    if not counted:
        return row.low + row.width // 2 if row.width > 1 else None
    total = counted.total()
    if max(counted.values()) * 100 >= total * _ALONE_PERCENT:
        return None
    below, best, cut = 0, total, None
    for before, hashed in pairwise(sorted(counted)):
        below += counted[before]
        if abs(2 * below - total) < best:
            best, cut = abs(2 * below - total), hashed
    return cut


def with_children(rows: Sequence[PartitionRow]) -> list[PartitionRow]:
    """Rows, each with those that name it as a parent."""
    children: dict[int, list[int]] = {}
    for row in sorted(rows, key=lambda row: row.partition):
        for parent in row.parents:
            children.setdefault(parent, []).append(row.partition)
    return [row._replace(children=tuple(children.get(row.partition, ()))) for row in rows]


def _even_lows(count: int) -> list[int]:
    """Where each of `count` equal ranges begins."""
    return [-(-number * HASHES // count) for number in range(count)]


def _require_tiles(active: Sequence[PartitionRow]) -> None:
    """Raise unless ranges cover all hashes, each once."""
    reached = 0
    for row in active:
        if row.low != reached or row.high <= row.low:
            raise DataError(
                f"the ranges of the partitions do not meet at hash {min(row.low, reached)}",
                hint="penstock repair takes them from the topic's folder",
            )
        reached = row.high
    if reached != HASHES:
        raise DataError(
            f"no partition owns the hashes from {reached} on",
            hint="penstock repair takes them from the topic's folder",
        )
