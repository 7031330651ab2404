"""How fast a consumer may read a topic: all its readers together, in any number of processes.

A file for each consumer that has a `read_speed`, `quotas/<consumer>` in the topic's folder, holds one number:
the theoretical arrival time, as for writes (`log/rate_policy.py`).

    0 u32 CRC-32 of what follows · 4 u32 version (1) · 8 u64 boot · 16 u64 arrival, monotonic nanoseconds

Engines never wait. A reader asks whether it may read, reads no more than a burst, and adds what it has read;
one that finds the file locked asks again in a moment, and adds with the next call.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct

from penstock.checksum import crc32
from penstock.clock import NANOSECONDS
from penstock.errors import UnknownConsumer
from penstock.files import OpenFile
from penstock.log.rate_policy import reserved
from penstock.log.rows import FrameRows
from penstock.message import Rows
from penstock.topic.open_topic import OpenTopic

FOLDER = "quotas"
_VERSION = 1
_FIELDS = Struct("<IQQ")
_BYTES = 4 + _FIELDS.size
#: Options are looked up again after so long, and a file that was locked after so long.
_LOOK_AGAIN_NS, _LOCKED_NS = NANOSECONDS, NANOSECONDS // 100
#: About what a message takes in the log besides its key and value.
_BESIDES_BYTES = 48


class ReadQuota:
    """The quota of one consumer of one topic, as one reader obeys it."""

    def __init__(self, topic: OpenTopic, consumer: str) -> None:
        self._topic = topic
        self._consumer = consumer
        self._file: OpenFile | None = None
        self._limit: tuple[int, int] | None = None
        self._look_at = 0
        self._owed = 0
        #: When it may read again, by what is known here.
        self._held_until = 0
        #: Whether the last to ask was refused: there may be more to read, also if it may read again by now.
        self.is_held = False

    def may_read(self) -> bool:
        """Whether there is something left of the quota now."""
        now = self._now()
        limit = self._known_limit(now)
        if limit is not None and now >= self._held_until:
            self._held_until = now + self._settle(now, limit)
        self.is_held = limit is not None and now < self._held_until
        return not self.is_held

    def most(self, max_bytes: int) -> int:
        """How many of `max_bytes` may be read in one call."""
        return max_bytes if self._limit is None else min(max_bytes, self._limit[1])

    def add(self, rows: Sequence[Rows]) -> None:
        """Take what was read out of the quota."""
        if self._limit is not None:
            self._owed += sum(map(_size, rows))
            now = self._now()
            self._held_until = now + self._settle(now, self._limit)

    def pause_s(self) -> float:
        """In how many seconds it may read again; 0 when it may now."""
        return max(0, self._held_until - self._now()) / NANOSECONDS

    def close(self) -> None:
        """Close the file."""
        self._file = None  # which closes it, unless a thread is at it

    # Inside.

    def _now(self) -> int:
        return round(self._topic.clock.monotonic() * NANOSECONDS)

    def _known_limit(self, now: int) -> tuple[int, int] | None:
        if now >= self._look_at:
            self._look_at = now + _LOOK_AGAIN_NS
            limit = None
            with suppress(UnknownConsumer):  # it is made with its first reader
                limit = self._topic.consumers.options(self._consumer, self._topic.record.id).read_limit
            if limit != self._limit:
                self._limit, self._held_until = limit, 0
        return self._limit

    def _settle(self, now: int, limit: tuple[int, int]) -> int:
        """Add what is owed; for how long nothing may be read."""
        file = self._file or self._open()
        try:
            fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _LOCKED_NS
        try:
            arrival, _ = reserved(self._arrival(file), now, self._owed, *limit)
            if self._owed:
                self._store(file, arrival)
                self._owed = 0
        finally:
            fcntl.flock(file.fd, fcntl.LOCK_UN)
        speed, burst = limit
        return max(0, arrival - burst * NANOSECONDS // speed - now)

    def _open(self) -> OpenFile:
        files, path = self._topic.files, quota_path(self._topic, self._consumer)
        files.make_dirs(os.path.dirname(path))
        self._file = file = OpenFile(files, files.open(path, create=True))
        return file

    def _arrival(self, file: OpenFile) -> int:
        files = self._topic.files
        raw = files.pread(file.fd, _BYTES, 0)
        if len(raw) != _BYTES or crc32(raw[4:]) != int.from_bytes(raw[:4], "little"):
            return 0
        version, boot, arrival = _FIELDS.unpack_from(raw, 4)
        found: int = arrival if version == _VERSION and boot == files.boot() else 0
        return found

    def _store(self, file: OpenFile, arrival: int) -> None:
        fields = _FIELDS.pack(_VERSION, self._topic.files.boot(), arrival)
        self._topic.files.pwrite(file.fd, crc32(fields).to_bytes(4, "little") + fields, 0)


class ReadQuotas:
    """The quotas of a reader, one for each topic; a reader without a consumer has none."""

    def __init__(self, topics: Sequence[OpenTopic], consumer: str | None) -> None:
        named = [] if consumer is None else [(topic.record.id, topic) for topic in topics]
        self._quotas = {number: ReadQuota(topic, consumer or "") for number, topic in named}

    def read(self, topic: OpenTopic, max_bytes: int, read: Callable[[int], list[Rows]]) -> list[Rows]:
        """Call `read` with the bytes that the quota allows; return nothing while it allows none."""
        quota = self._quotas.get(topic.record.id)
        if quota is None:
            return read(max_bytes)
        if not quota.may_read():
            return []
        rows = read(quota.most(max_bytes))
        if rows:
            quota.add(rows)
        return rows

    def pause_s(self) -> float | None:
        """In how many seconds a topic that was held back may be read again; None when none was."""
        return min((each.pause_s() for each in self._quotas.values() if each.is_held), default=None)

    def close(self) -> None:
        """Close all files."""
        for each in self._quotas.values():
            each.close()


def quota_path(topic: OpenTopic, consumer: str) -> str:
    """Where a consumer's quota of a topic is kept."""
    return os.path.join(topic.folder, FOLDER, consumer)


def forget_quota(topic: OpenTopic, consumer: str) -> None:
    """Remove the quota file of a consumer that was dropped."""
    with suppress(FileNotFoundError):
        topic.files.unlink(quota_path(topic, consumer))


def _size(rows: Rows) -> int:
    """About how many bytes a run of messages has in the log."""
    if isinstance(rows, FrameRows):
        head = rows.frame.head
        return head.size * len(rows) // max(head.count, 1)
    return sum(_BESIDES_BYTES + len(each.key or b"") + len(each.stored or b"") for each in rows.messages())
