"""Which partition a message goes to: an explicit one, its group's, by its key, its producer's, or in turn.

`range` divides the hashes into contiguous ranges, so that a partition can later be split in two
without touching the others. `diskq` and `kafka` choose as those systems do, for data that is shared
with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from zlib import crc32

from penstock.errors import InvalidOption, WrongType

#: From a key and the number of partitions to one of them; the same answer whenever it is asked.
Partitioner = Callable[[bytes, int], int]


class Route(NamedTuple):
    """Messages of one batch that go to one partition: their group ("" is none) and places in the batch."""

    partition: int
    group: str
    places: Sequence[int]
    #: Keys have chosen the partition of some of them.
    keyed: bool = False


MIX = 0x9E3779B1  # spreads neighbouring sums over the whole range
_U32 = 0xFFFFFFFF


def by_range(key: bytes, partitions: int) -> int:
    """CRC-32 of the key, mixed, over equal contiguous ranges."""
    return (crc32(key) * MIX & _U32) * partitions >> 32


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


PARTITIONERS: dict[str, Partitioner] = {"range": by_range, "diskq": by_diskq, "kafka": by_kafka}
