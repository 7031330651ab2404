"""Vacuum: remove what retention no longer keeps; list what expired for programs that clean up after it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.errors import Corrupt, OffsetTrimmed, PenstockError, Unavailable
from penstock.log.age_retention import held_back
from penstock.log.cursor import Cursor
from penstock.log.folder import file_bytes
from penstock.log.key_retention import KeyFloors
from penstock.log.log import Log
from penstock.log.rows import MessageRows
from penstock.log.trim import Trimmed
from penstock.message import Message, Rows
from penstock.parse import MIB
from penstock.place import Place
from penstock.topic.body_trim import BodyTrim, gone_with
from penstock.topic.left_messages import LeftMessages
from penstock.topic.open_topic import OpenTopic
from penstock.topic.staging import remove_abandoned

logger = logging.getLogger("penstock.retention")

_LOOK_MESSAGES = 4096


class Vacuumed(NamedTuple):
    """What a vacuum did to one partition."""

    partition: int
    #: First readable offset before and after.
    start_before: int
    start: int
    messages: int
    segments: int
    bytes: int
    #: Consumers that kept something from going.
    held_by: tuple[str, ...]
    #: Bodies outside the log that went with their messages (a pack is one), and those that go later.
    bodies: int = 0
    bodies_left: int = 0


class VacuumReport(NamedTuple):
    """What a vacuum removed, partition by partition."""

    topic: str
    partitions: tuple[Vacuumed, ...]
    #: Partitions that were split, and are gone now: their messages had expired.
    removed: tuple[int, ...] = ()

    @property
    def messages(self) -> int:
        """How many messages were removed."""
        return sum(each.messages for each in self.partitions)

    @property
    def bytes(self) -> int:
        """How many bytes were freed."""
        return sum(each.bytes for each in self.partitions)

    @property
    def segments(self) -> int:
        """How many segments were removed."""
        return sum(each.segments for each in self.partitions)

    @property
    def bodies(self) -> int:
        """How many bodies outside the log were removed."""
        return sum(each.bodies for each in self.partitions)

    @property
    def bodies_left(self) -> int:
        """Bodies whose place did not answer: the next vacuum tries again."""
        return sum(each.bodies_left for each in self.partitions)


def vacuum(topic: OpenTopic) -> VacuumReport:
    """Tidy up and remove what retention lets go; a partition that another process is at is left to it."""
    done = [_vacuum_if_there(topic, number) for number in topic.numbers()]
    return VacuumReport(topic.name, tuple(each for each in done if each is not None))


def _vacuum_if_there(topic: OpenTopic, number: int) -> Vacuumed | None:
    try:
        return vacuum_partition(topic, number)
    except (PenstockError, FileNotFoundError):
        topic.refresh()
        if number in topic.numbers():
            raise
        return None  # it was split, and another process has removed it at this moment


def vacuum_partition(topic: OpenTopic, number: int) -> Vacuumed | None:
    """Tidy one partition: index and repack what is sealed, then trim; None when someone else is at it."""
    log = topic.log(number)
    with log.folder.housekeeping() as alone:
        if not alone:
            return None
        log.tidy()
        remove_abandoned(topic, log)
        if number == 0 and topic.bodies.is_used:
            topic.bodies.remove_leftovers()
        return _vacuum(topic, log)


def _vacuum(topic: OpenTopic, log: Log) -> Vacuumed:
    now = topic.clock.now_ns()
    return trim_to(topic, log, _wanted(topic, log, now), now)


def trim_to(topic: OpenTopic, log: Log, wanted: int, now: int) -> Vacuumed:
    """Remove what lies before an offset, as far as consumers allow; called by the housekeeper."""
    bounds = log.stored()
    wanted = max(bounds.start, wanted)
    start, held_by = held_back(wanted, log.holds(), log.offset_at, now)
    start = max(start, bounds.start)
    if start > bounds.start:
        # The positions that let it go must be as durable as the new start, or a consumer falls behind it.
        topic.topics.make_durable()
    trimmed, bodies = _trim(topic, log, start)
    return Vacuumed(
        log.partition, bounds.start, trimmed.start, trimmed.messages, trimmed.segments, trimmed.bytes,
        held_by, *bodies,
    )  # fmt: skip


def _trim(topic: OpenTopic, log: Log, start: int) -> tuple[Trimmed, tuple[int, int]]:
    """Remove messages, then their bodies: how many went, and how many go later."""
    present, left = log.stored().start, LeftMessages(log)
    if start > present and left.is_kept:
        left.add(present, start)
    if not topic.bodies.is_used:
        return log.trim(start), (0, 0)
    going = BodyTrim(log.folder, topic.bodies)
    if start > present:
        going.add(start, gone_with(log, present, start), present)
    trimmed = log.trim(start)
    return trimmed, going.delete(trimmed.start)


def held(topic: OpenTopic, number: int) -> tuple[int, tuple[str, ...]]:
    """How many messages retention would remove now if consumers did not keep them, and which do."""
    log, now = topic.log(number), topic.clock.now_ns()
    first = log.stored().start
    wanted = max(first, _wanted(topic, log, now))
    start, held_by = held_back(wanted, log.holds(), log.offset_at, now)
    return wanted - max(start, first), held_by


def _wanted(topic: OpenTopic, log: Log, now: int) -> int:
    """Where the partition would begin by age, by size, and by key retention."""
    options = topic.options
    start = max(_start_by_age(log, options.retention_ns, now), _start_by_bytes(log, options.max_bytes))
    return _first_alive(log, start) if options.key_retention else start


def _first_alive(log: Log, start: int) -> int:
    """The first message from `start` on that has not expired; the first damage, if that comes before it."""
    cursor = log.cursor(max(start, log.bounds().start))
    try:
        rows = cursor.read(_LOOK_MESSAGES, MIB)
    except (Corrupt, OffsetTrimmed):
        return cursor.offset
    return rows[0].first if rows else max(cursor.offset, start)


def _start_by_age(log: Log, retention_ns: int | None, now: int) -> int:
    """The first message that is young enough."""
    return 0 if retention_ns is None else log.offset_at(now - retention_ns)


def _start_by_bytes(log: Log, max_bytes: int | None) -> int:
    if max_bytes is None:
        return 0
    bounds = log.stored()
    sizes = [
        (base, bounds.byte if base == bounds.segment else file_bytes(log.folder, base))
        for base in log.segments.bases()
        if base <= bounds.segment
    ]
    return first_within(sizes, max_bytes)


def first_within(sizes: Sequence[tuple[int, int]], max_bytes: int) -> int:
    """The first segment to keep so that the rest fits; the newest always stays."""
    total = sum(size for _, size in sizes)
    for base, size in sizes[:-1]:
        if total <= max_bytes:
            return base
        total -= size
    return sizes[-1][0] if sizes else 0


_AT_ONCE_MESSAGES, _AT_ONCE_BYTES = 16_384, 4 * MIB


def expired(topic: OpenTopic, since_ns: int | None) -> list[Rows]:
    """Yield messages that have expired, after a moment if one is given, as far as they still lie there."""
    found: list[Rows] = []
    for log in topic.logs():
        now = log.key_retention.floors()
        before = None if since_ns is None else log.key_retention.floors(since_ns)
        for rows in _everything(log, log.stored().start, now.highest):
            over = [each for each in rows.messages() if _ended(each, now, before)]
            if over:
                found.append(MessageRows(over))
    return found


def _ended(message: Message, now: KeyFloors, before: KeyFloors | None) -> bool:
    return now.has_expired(message) and (before is None or not before.has_expired(message))


def delete_before(topic: OpenTopic, place: Place) -> list[Rows]:
    """Remove everything before a place, whatever retention says; return it, also what had expired.

    Raises `Unavailable` when another process is tidying a partition: those before it are done.
    """
    now = topic.clock.now_ns()
    deleted: list[Rows] = []
    for number, start in topic.begin_all(place, now).items():
        log = topic.log(number)
        with log.folder.housekeeping() as alone:
            if not alone:
                raise Unavailable(
                    f"another process is tidying partition {number} of {topic.name!r}",
                    hint="try again in a moment",
                )
            first = log.stored().start
            rows = list(_everything(log, first, start))
            done = trim_to(topic, log, max(first, start), now)
            deleted += [each for each in rows if each.stop <= done.start]
            deleted += [_up_to(each, done.start) for each in rows if each.first < done.start < each.stop]
    return deleted


def _up_to(rows: Rows, stop: int) -> Rows:
    return MessageRows(rows.messages()[: stop - rows.first])


def _everything(log: Log, first: int, stop: int) -> Iterator[Rows]:
    """Read all messages between two offsets, also those that have expired."""
    cursor = Cursor(log.segments, first, far=True)
    while cursor.offset < stop:
        try:
            rows = cursor.read(_AT_ONCE_MESSAGES, _AT_ONCE_BYTES, stop)
        except OffsetTrimmed as trimmed:  # retention was quicker
            cursor.offset = trimmed.first
            continue
        except Corrupt as damage:
            if damage.stop is None:
                return
            cursor.offset = damage.stop
            continue
        if not rows:
            return
        yield from rows
