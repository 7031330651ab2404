"""A go-diskq folder as it lies on the disk: its partitions, segments, settings, owner and groups.

    owner                         while a producer has it: the 16 bytes of its UUID
    settings.json                 what the last producer was opened with
    parts/000000/<20 digits>.*    segments, named by their first offset; the last one is active
    groups/<name>/000000          8 bytes: the last offset that a group has read; empty: none yet

Looking changes nothing, and reads no message.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from penstock.errors import ConflictError, DataError, InvalidOption
from penstock.exchange.diskq_format import (
    DATA,
    INDEX,
    INDEX_ENTRY_BYTES,
    MARK_BYTES,
    TIME_INDEX,
    parse_mark,
    partition_name,
    segment_name,
)

OWNER, SETTINGS, PARTS, GROUPS = "owner", "settings.json", "parts", "groups"
#: What go-diskq takes where its settings say nothing.
PARTITIONS_DEFAULT, SEGMENT_BYTES_DEFAULT = 3, 32 * 1024 * 1024
_OFFSET_MAX = 2**62
_PARTITION = re.compile(r"\d{6,9}")
_SEGMENT = re.compile(r"(\d{20})(\.data|\.index|\.timeindex)")

#: The last offset read by partition; None where a group has a file, and has read nothing.
Marks = Mapping[int, int | None]


class DiskqSegment(NamedTuple):
    """One segment: its files without their endings, and how much its index names."""

    path: str
    partition: int
    base: int
    #: Messages with a whole index entry.
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    active: bool


@dataclass
class DiskqFolder:
    """What a look at a folder found."""

    path: str
    #: The settings as they are written; None when there are none.
    settings_text: str | None
    settings: dict[str, Any]
    #: The UUID of a producer that has it open, or had when it died.
    owner: str | None
    #: Segments by partition, in order of their offsets; one at least.
    partitions: list[list[DiskqSegment]]
    groups: dict[str, Marks] = field(default_factory=dict)
    #: What is not as it should be, and does no harm.
    notes: list[str] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """How many messages the indexes name."""
        return sum(segment.count for segments in self.partitions for segment in segments)


def look(path: str) -> DiskqFolder:
    """Look at a folder; raises `InvalidOption` when it is none, `DataError` when a part is missing."""
    parts = os.path.join(path, PARTS)
    if not os.path.isdir(parts):
        raise InvalidOption(
            f"{path} is not a diskq folder: it has no folder {PARTS!r}",
            hint="give the folder that the producer was opened with",
        )
    text = _settings_text(path)
    settings = _settings(path, text)
    notes: list[str] = []
    found = DiskqFolder(path, text, settings, _owner(path), [], notes=notes)
    found.partitions = [_segments(parts, number) for number in range(_count(parts, settings, notes))]
    found.groups = _groups(path, notes)
    return found


def refuse_owned(folder: DiskqFolder) -> None:
    """Raise `ConflictError` when a producer has the folder, or died and left its mark."""
    if folder.owner is not None:
        raise ConflictError(
            f"{folder.path} has an owner: producer {folder.owner} is writing to it, or died",
            hint="close that producer; if it is dead for certain, say so: owned_ok=True, --owned-ok",
        )


def _owner(path: str) -> str | None:
    try:
        with open(os.path.join(path, OWNER), "rb") as file:
            held = file.read(64)
    except FileNotFoundError:
        return None
    return held.hex() if len(held) == 16 else held.decode(errors="replace").strip() or "without a name"


def _settings_text(path: str) -> str | None:
    try:
        with open(os.path.join(path, SETTINGS), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise DataError(f"{os.path.join(path, SETTINGS)} is not text: {error}") from error


def _settings(path: str, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    where = os.path.join(path, SETTINGS)
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {error}", hint="mend it, or remove it") from error
    numbers = ("partition_count", "segment_size_bytes")
    if not isinstance(settings, dict) or not all(type(settings.get(name, 0)) is int for name in numbers):
        raise DataError(f"{where} does not hold go-diskq's settings", hint="mend it, or remove it")
    return settings


def _count(parts: str, settings: dict[str, Any], notes: list[str]) -> int:
    """How many partitions there are; raises when one of them is missing."""
    names = sorted(os.listdir(parts))
    there = {int(name) for name in names if _PARTITION.fullmatch(name)}
    strange = [name for name in names if not _PARTITION.fullmatch(name)]
    if strange:
        raise DataError(f"{parts} holds what is no partition: {', '.join(strange[:5])}", hint="move it away")
    wanted = settings.get("partition_count") or (0 if there else PARTITIONS_DEFAULT)
    count = max([wanted, *(number + 1 for number in there)])
    for number in range(count):
        if number not in there:
            why = (
                f"settings.json names {wanted}" if number < wanted else f"there are others up to {count - 1}"
            )
            raise DataError(
                f"partition {partition_name(number)} is missing in {parts}: {why}",
                hint="bring it back; an empty partition has one segment of three empty files",
            )
    if wanted and count > wanted:
        notes.append(f"partitions from {wanted} on are left from a time with more: they are read too")
    return count


def _segments(parts: str, number: int) -> list[DiskqSegment]:
    folder = os.path.join(parts, partition_name(number))
    kinds: dict[int, set[str]] = {}
    for name in sorted(os.listdir(folder)):
        found = _SEGMENT.fullmatch(name)
        if found is None or int(found[1]) > _OFFSET_MAX:
            raise DataError(f"{os.path.join(folder, name)} is no file of a segment", hint="move it away")
        kinds.setdefault(int(found[1]), set()).add(found[2])
    if not kinds:
        raise DataError(f"{folder} is empty", hint="an empty partition has one segment of three empty files")
    bases = sorted(kinds)
    segments = []
    for base in bases:
        path = os.path.join(folder, segment_name(base))
        for kind in (DATA, INDEX, TIME_INDEX):
            if kind not in kinds[base]:
                raise DataError(f"{path}{kind} is missing", hint="bring it back, or move its segment away")
        count = os.stat(path + INDEX).st_size // INDEX_ENTRY_BYTES
        segments.append(DiskqSegment(path, number, base, count, active=base == bases[-1]))
    for before, after in pairwise(segments):
        if before.base + before.count > after.base:
            raise DataError(
                f"{before.path}{INDEX} names offsets up to {before.base + before.count - 1}, "
                f"and the next segment begins at {after.base}",
                hint="the two overlap: look which of them is right",
            )
    return segments


def _groups(path: str, notes: list[str]) -> dict[str, Marks]:
    top = os.path.join(path, GROUPS)
    found: dict[str, Marks] = {}
    for group in sorted(os.listdir(top)) if os.path.isdir(top) else ():
        folder = os.path.join(top, group)
        if os.path.isdir(folder):
            found[group] = _marks(folder, notes)
    return found


def _marks(folder: str, notes: list[str]) -> Marks:
    marks: dict[int, int | None] = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not _PARTITION.fullmatch(name):
            notes.append(f"{path} is no mark of a group, and was left out")
            continue
        with open(path, "rb") as file:
            data = file.read(MARK_BYTES)
        if 0 < len(data) < MARK_BYTES:
            notes.append(f"{path} is torn ({len(data)} of {MARK_BYTES} bytes): as if nothing were marked")
        marks[int(name)] = parse_mark(data) if len(data) == MARK_BYTES else None
    return marks
