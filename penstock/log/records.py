"""The three records by which processes agree: A in `append`, S and D in `tail`.

A record is 64 bytes with a CRC, written in place by one `pwrite`. They are caches of what the
frames say, valid for one boot of the machine. A and S are written only under the append lock,
D only under the tail lock; anyone reads them at any time, and reads again on a bad CRC.

    A   append:0    where the next frame goes
    S   tail:0      where reading starts; sealed, dropped; the end for sync="os" topics
    D   tail:64     the durable end
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import NamedTuple

from penstock.checksum import crc32

RECORD_BYTES = 64
APPEND_AT = 0
SHOWN_AT = 0
DURABLE_AT = 64
TAIL_BYTES = 128

_CRC = Struct("<I")
_APPEND = Struct("<BBHQIIQQQqQ")
_SHOWN = Struct("<BBHQQQQQ16x")
_DURABLE = Struct("<BBHQQQQ24x")
_VERSION = 1

# A.flags
ROLLING = 1
#: The roll leaves offsets out.
LEAVING_GAP = 2
#: `reserved` is not synced yet: the process that set it may have died before.
RESERVING = 4
#: The frame that A ends behind is a seal, of which S does not tell yet.
SEALING = 8
# S.flags
SEALED = 1
DROPPED = 2
# D.flags
POISONED = 1


class AppendRecord(NamedTuple):
    """A: where the next frame goes, and what its writer must finish first."""

    flags: int
    #: Changes when partitions are added: a writer with another number routes anew.
    tree: int
    boot: int
    pid: int
    #: Where the next frame begins in the segment.
    byte: int
    next: int
    #: First offset of the active segment.
    segment: int
    #: On sync="os" topics no offset below this is given twice, even after a power cut.
    reserved: int
    last_written_at: int
    #: The transaction that is being applied here, or 0.
    pending: int

    def pack(self) -> bytes:
        """Return the record as bytes, with its checksum."""
        fields = _APPEND.pack(_VERSION, *self)
        return crc32(fields).to_bytes(4, "little") + fields

    @property
    def rolling(self) -> bool:
        """Whether a roll to the next segment is under way."""
        return bool(self.flags & ROLLING)


class ShownRecord(NamedTuple):
    """S: what readers may see of the partition as a whole."""

    flags: int
    tree: int
    boot: int
    #: First offset still readable.
    start: int
    #: On sync="os" topics: where reading ends, with its segment and byte.
    end: int
    segment: int
    byte: int

    def pack(self) -> bytes:
        """Return the record as bytes, with its checksum."""
        fields = _SHOWN.pack(_VERSION, *self)
        return crc32(fields).to_bytes(4, "little") + fields

    @property
    def sealed(self) -> bool:
        """Whether the partition was split: nothing is appended any more."""
        return bool(self.flags & SEALED)

    @property
    def dropped(self) -> bool:
        """Whether the topic was deleted."""
        return bool(self.flags & DROPPED)


class DurableRecord(NamedTuple):
    """D: everything below `end` survives a power cut; it ends at `byte` of `segment`."""

    flags: int
    #: Counts cuts after a failed sync: who waits for a sync across one was not made durable.
    cuts: int
    boot: int
    end: int
    segment: int
    byte: int

    def pack(self) -> bytes:
        """Return the record as bytes, with its checksum."""
        fields = _DURABLE.pack(_VERSION, *self)
        return crc32(fields).to_bytes(4, "little") + fields

    @property
    def poisoned(self) -> bool:
        """Whether a sync failed, so that nothing after it counts as durable."""
        return bool(self.flags & POISONED)


class Ends(NamedTuple):
    """A, S and D together, as they were at one moment; each change of one makes new ones."""

    append: AppendRecord
    shown: ShownRecord
    durable: DurableRecord

    def published_for(self, boot: int) -> bool:
        """Whether all three were made since the machine was started."""
        return self.append.boot == self.shown.boot == self.durable.boot == boot


#: Makers of records from a tuple of their fields: a NamedTuple's own constructor takes three times as long.
make_append: Callable[[tuple[int, ...]], AppendRecord] = partial(tuple.__new__, AppendRecord)
make_shown: Callable[[tuple[int, ...]], ShownRecord] = partial(tuple.__new__, ShownRecord)
make_ends: Callable[[tuple[AppendRecord, ShownRecord, DurableRecord]], Ends] = partial(tuple.__new__, Ends)


def parse_append(data: bytes) -> AppendRecord | None:
    """A from its 64 bytes, or None when they are not sound."""
    return AppendRecord._make(_APPEND.unpack_from(data, 4)[1:]) if _sound(data) else None


def parse_shown(data: bytes) -> ShownRecord | None:
    """S from its 64 bytes, or None when they are not sound."""
    return ShownRecord._make(_SHOWN.unpack_from(data, 4)[1:]) if _sound(data) else None


def parse_durable(data: bytes) -> DurableRecord | None:
    """D from its 64 bytes, or None when they are not sound."""
    return DurableRecord._make(_DURABLE.unpack_from(data, 4)[1:]) if _sound(data) else None


def parse_tail(data: bytes) -> tuple[ShownRecord, DurableRecord] | None:
    """S and D from the 128 bytes of `tail`, or None when one of them is not sound."""
    shown = parse_shown(data[SHOWN_AT : SHOWN_AT + RECORD_BYTES])
    durable = parse_durable(data[DURABLE_AT:TAIL_BYTES])
    return None if shown is None or durable is None else (shown, durable)


def _sound(data: bytes) -> bool:
    return len(data) == RECORD_BYTES and data[4] == _VERSION and crc32(data[4:]) == _CRC.unpack_from(data)[0]
