"""A partition's folder: names, locks and records, with no policy in it."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from penstock.clock import Clock
from penstock.files import Files
from penstock.locks import APPEND_RANK, TAIL_RANK, FileLock
from penstock.log import records
from penstock.log.records import AppendRecord, DurableRecord, ShownRecord

DATA = ".data"
INDEX = ".index"
TIME_INDEX = ".timeindex"
#: Of topics with index="key".
KEY_INDEX = ".keyindex"
DELETED = ".deleted"
#: Checkpoints of what is known of producers: at a segment's beginning, and where partitions were added.
PRODUCERS = ".producers"
GATE_PRODUCERS = ".gate.producers"
#: What belongs to a segment besides its data, all of it rebuilt when missing.
COMPANIONS = (INDEX, TIME_INDEX)


R = TypeVar("R", AppendRecord, ShownRecord, DurableRecord)
#: How often a record is read again before it counts as damaged.
_READ_AGAIN = 100


class _Seen(Generic[R]):
    """A record as it was last read or written, as bytes and parsed: mostly it has not changed since."""

    def __init__(self) -> None:
        self.last: tuple[bytes, R | None] = (b"", None)  # one assignment: threads see both or neither


class Folder:
    """Where one partition lies, opened for writing (with locks) or for reading only."""

    def __init__(
        self, path: str, *, topic_id: int, partition: int, files: Files, clock: Clock, read_only: bool = False
    ) -> None:
        self.path = path
        self.topic_id = topic_id
        self.partition = partition
        self.files = files
        self.clock = clock
        self.boot = files.boot()
        self.read_only = read_only
        self._housekeeping = threading.Lock()
        self.append_fd = -1
        self.tail_fd = -1
        self._append: _Seen[AppendRecord] = _Seen()
        self._shown: _Seen[ShownRecord] = _Seen()
        self._durable: _Seen[DurableRecord] = _Seen()
        if read_only:
            self.append_fd = self._open_if_there("append")
            self.tail_fd = self._open_if_there("tail")
            return
        self.append = FileLock(
            files, self.name("append"), order=(APPEND_RANK, topic_id, partition), holder=self._holder
        )
        self.tail = FileLock(
            files, self.name("tail"), order=(TAIL_RANK, topic_id, partition), holder=lambda: None
        )
        self.append_fd, self.tail_fd = self.append.fd, self.tail.fd

    def name(self, name: str) -> str:
        return os.path.join(self.path, name)

    def segment_path(self, base: int, kind: str = DATA) -> str:
        return os.path.join(self.path, f"{base:020d}{kind}")

    def segments(self) -> list[int]:
        """First offsets of all segments, ascending; none where nobody has made the folder yet."""
        try:
            names = self.files.listdir(self.path)
        except FileNotFoundError:
            return []
        return sorted(
            int(name[:20])
            for name in names
            if name.endswith(DATA) and len(name) == 25 and name[:20].isdecimal()
        )

    def read_append(self) -> AppendRecord | None:
        """A, or None when there is no sound one."""
        return self._read(self.append_fd, records.APPEND_AT, self._append, records.parse_append)

    def read_shown(self) -> ShownRecord | None:
        return self._read(self.tail_fd, records.SHOWN_AT, self._shown, records.parse_shown)

    def read_durable(self) -> DurableRecord | None:
        return self._read(self.tail_fd, records.DURABLE_AT, self._durable, records.parse_durable)

    def read_tail(self) -> tuple[ShownRecord, DurableRecord] | None:
        """S and D, or None when one of them is not sound."""
        shown, durable = self.read_shown(), self.read_durable()
        return None if shown is None or durable is None else (shown, durable)

    def publish_append(self, record: AppendRecord) -> None:
        self._publish(self.append_fd, records.APPEND_AT, self._append, record)

    def publish_shown(self, record: ShownRecord) -> None:
        self._publish(self.tail_fd, records.SHOWN_AT, self._shown, record)

    def publish_durable(self, record: DurableRecord) -> None:
        self._publish(self.tail_fd, records.DURABLE_AT, self._durable, record)

    def _read(self, fd: int, at: int, seen: _Seen[R], parse: Callable[[bytes], R | None]) -> R | None:
        """A record; whoever meets a half-written one reads again."""
        if fd < 0:
            return None
        for _ in range(_READ_AGAIN):
            raw = self.files.pread(fd, records.RECORD_BYTES, at)
            was, record = seen.last
            if raw == was:
                return record
            record = parse(raw)
            if record is not None:
                seen.last = raw, record
                return record
            if len(raw) < records.RECORD_BYTES or not any(raw):
                return None
        return None

    def _publish(self, fd: int, at: int, seen: _Seen[R], record: R) -> None:
        raw = record.pack()
        self.files.pwrite(fd, raw, at)
        seen.last = raw, record

    @contextmanager
    def housekeeping(self) -> Iterator[bool]:
        """Be the only one that tidies and trims this partition; False when another process is at it.

        Another thread is waited for: a vacuum asked for must not find nothing done and nothing to do.
        """
        with self._housekeeping:
            fd = self.files.open(self.name("vacuum"), create=True)
            try:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield False
                else:
                    yield True
            finally:
                self.files.close(fd)  # and the lock with it

    def close(self) -> None:
        open_fds = self.append_fd, self.tail_fd
        self.append_fd = self.tail_fd = -1  # first: the numbers may soon be those of other files
        if not self.read_only:
            self.append.close()
            self.tail.close()
        else:
            for fd in open_fds:
                if fd >= 0:
                    self.files.close(fd)

    def _open_if_there(self, name: str) -> int:
        try:
            return self.files.open(self.name(name), write=False)
        except FileNotFoundError:
            return -1

    def _holder(self) -> int | None:
        record = self.read_append()
        return record.pid if record is not None else None


def file_bytes(folder: Folder, base: int) -> int:
    """How large a segment's data file is; 0 when it is gone."""
    try:
        fd = folder.files.open(folder.segment_path(base, DATA), write=False)
    except FileNotFoundError:
        return 0
    try:
        return folder.files.size(fd)
    finally:
        folder.files.close(fd)
