"""A partition's folder: names, locks and records, with no policy in it."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from penstock.clock import Clock
from penstock.errors import TopicReplaced
from penstock.files import Files, OpenFile, inode, moved
from penstock.locks import APPEND_RANK, TAIL_RANK, FileLock
from penstock.log import records
from penstock.log.records import (
    APPEND_AT,
    DURABLE_AT,
    RECORD_BYTES,
    SHOWN_AT,
    TAIL_BYTES,
    AppendRecord,
    DurableRecord,
    Ends,
    ShownRecord,
    make_ends,
)

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
#: All that proves that there was a segment, or the end of one.
_WITNESSES = (INDEX, TIME_INDEX, KEY_INDEX, PRODUCERS, GATE_PRODUCERS)


R = TypeVar("R")
Tail = tuple[ShownRecord, DurableRecord]
#: How often a record is read again before it counts as damaged.
_READ_AGAIN = 100


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
        #: This process; a forked child opens its own.
        self.pid = os.getpid()
        self.read_only = read_only
        self._housekeeping = threading.Lock()
        self._waking = threading.RLock()  # a signal handler may come in and need them too
        self._is_closed = False
        #: The files of A and of S and D, while they are open.
        self._pair: tuple[OpenFile, OpenFile] | None = None
        #: Called when they were opened again.
        self.on_wake: Callable[[], None] = _nothing
        # Records as they were last read or written, as bytes and parsed: mostly they have not changed since.
        # Each is one assignment: threads see both halves or neither.
        self._append: tuple[bytes, AppendRecord | None] = b"", None
        self._tail: tuple[bytes, Tail | None] = b"", None
        if not read_only:
            self.append = FileLock(
                files, self.name("append"), order=(APPEND_RANK, topic_id, partition), holder=self._holder,
                wake=self.wake,
            )  # fmt: skip
            self.tail = FileLock(
                files, self.name("tail"), order=(TAIL_RANK, topic_id, partition), holder=lambda: None,
                wake=self.wake,
            )  # fmt: skip
        self._open()

    # Descriptors.

    @property
    def append_fd(self) -> int:
        """The descriptor of A's file, for those who have the append lock; -1 when it is closed."""
        pair = self._pair or self.wake()
        return -1 if pair is None else pair[0].fd

    @property
    def tail_fd(self) -> int:
        """The descriptor of the file of S and D, for those who have a lock; -1 when it is closed."""
        pair = self._pair or self.wake()
        return -1 if pair is None else pair[1].fd

    def wake(self) -> tuple[OpenFile, OpenFile] | None:
        """Open the files unless they are open; None when the folder is closed."""
        pair = self._pair
        if pair is None and not self._is_closed:
            try:
                with self._waking:
                    pair = self._open()
            except FileNotFoundError:
                raise TopicReplaced("the topic was dropped", hint="open it anew by its name") from None
            self.on_wake()
        return pair

    def sync_tail(self) -> None:
        """Make S and D survive a power cut. Needs no lock."""
        pair = self._pair or self.wake()
        if pair is not None:
            self.files.sync(pair[1].fd)

    def rest(self) -> None:
        """Give the descriptors back until they are needed again. Both locks are paused."""
        with self._waking:
            self._pair = None
            if not self.read_only:
                self.append.rest()
                self.tail.rest()

    def _open(self) -> tuple[OpenFile, OpenFile] | None:
        if self.read_only:
            self._pair = self._open_if_there("append"), self._open_if_there("tail")
        else:
            tail = self.tail.open()  # first: whoever has the append lock finds both open
            append = self.append.open()
            self._pair = (append, tail) if append is not None and tail is not None else None
        return self._pair

    # Names.

    def name(self, name: str) -> str:
        """Return the path of a file in the folder."""
        return os.path.join(self.path, name)

    def segment_path(self, base: int, kind: str = DATA) -> str:
        """Return the path of a segment's file: its data, or another kind by its suffix."""
        return os.path.join(self.path, f"{base:020d}{kind}")

    def beside(self, partition: int, base: int, kind: str) -> str:
        """Return the path of a file of another partition of the topic."""
        return os.path.join(os.path.dirname(self.path), f"{partition:06d}", f"{base:020d}{kind}")

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

    def witnessed(self) -> list[int]:
        """Offsets up to which there were messages, as the names of indexes and checkpoints prove."""
        return [
            int(name[:20])
            for name in self.files.listdir(self.path)
            if name[:20].isdecimal() and name[20:] in _WITNESSES
        ]

    def is_unused(self) -> bool:
        """Whether nobody has written here yet: no record, no segment, and nothing that proves one."""
        if self.read_tail_bytes():
            return False
        try:
            names = self.files.listdir(self.path)
        except FileNotFoundError:
            return True
        return not any(name[:20].isdecimal() for name in names)

    def read_ends(self) -> Ends | None:
        """A, S and D in two calls, parsed only where they changed; None when one of them is not sound."""
        pair = self._pair or self.wake()
        if pair is None:
            return None
        pread = self.files.pread
        raw = pread(pair[0].fd, RECORD_BYTES, APPEND_AT)
        was, append = self._append
        if raw != was or append is None:
            append = self.read_append()
        raw = pread(pair[1].fd, TAIL_BYTES, SHOWN_AT)
        was, tail = self._tail
        if raw != was or tail is None:
            tail = self.read_tail()
        return None if append is None or tail is None else make_ends((append, tail[0], tail[1]))

    def read_append(self) -> AppendRecord | None:
        """A, or None when there is no sound one."""
        return self._read(0, APPEND_AT, self._parsed_append)

    def read_tail(self) -> Tail | None:
        """S and D, or None when one of them is not sound."""
        raw = self.read_tail_bytes()
        was, tail = self._tail
        if raw == was and tail is not None:
            return tail
        tail = records.parse_tail(raw)
        if tail is not None:
            self._tail = raw, tail
            return tail
        shown, durable = self.read_shown(), self.read_durable()
        return None if shown is None or durable is None else (shown, durable)

    def read_tail_bytes(self) -> bytes:
        """S and D as they lie in their file; b"" when there is none."""
        pair = self._pair or self.wake()
        if pair is None or pair[1].fd < 0:
            return b""
        return self.files.pread(pair[1].fd, TAIL_BYTES, SHOWN_AT)

    def read_shown(self) -> ShownRecord | None:
        """S, or None when it is not sound, whatever became of D."""
        return self._read(1, SHOWN_AT, records.parse_shown)

    def read_durable(self) -> DurableRecord | None:
        """D, or None when it is not sound, whatever became of S."""
        return self._read(1, DURABLE_AT, self._parsed_durable)

    def publish_append(self, record: AppendRecord) -> None:
        """Write A. The append lock is held."""
        raw = record.pack()
        self.files.pwrite(self.append.fd, raw, APPEND_AT)
        self._append = raw, record

    def publish_shown(self, record: ShownRecord) -> None:
        """Write S. The append lock is held."""
        raw = record.pack()
        self.files.pwrite(self.tail.fd, raw, SHOWN_AT)
        was, tail = self._tail
        if tail is not None:
            self._tail = raw + was[DURABLE_AT:], (record, tail[1])

    def publish_durable(self, record: DurableRecord) -> None:
        """Write D. The tail lock is held."""
        raw = record.pack()
        self.files.pwrite(self.tail.fd, raw, DURABLE_AT)
        was, tail = self._tail
        if tail is not None:
            self._tail = was[:DURABLE_AT] + raw, (tail[0], record)

    def _read(self, which: int, at: int, parse: Callable[[bytes], R | None]) -> R | None:
        """A record of one of the two files; one that is half written is read again."""
        pair = self._pair or self.wake()
        if pair is None or pair[which].fd < 0:
            return None
        for _ in range(_READ_AGAIN):
            raw = self.files.pread(pair[which].fd, RECORD_BYTES, at)
            record = parse(raw)
            if record is not None:
                return record
            if len(raw) < RECORD_BYTES or not any(raw):
                return None
        return None

    def _parsed_append(self, raw: bytes) -> AppendRecord | None:
        was, record = self._append
        if raw != was:
            record = records.parse_append(raw)
            self._append = raw, record
        return record

    def _parsed_durable(self, raw: bytes) -> DurableRecord | None:
        was, tail = self._tail
        if tail is not None and raw == was[DURABLE_AT:]:
            return tail[1]
        return records.parse_durable(raw)

    @contextmanager
    def housekeeping(self) -> Iterator[bool]:
        """Be the only one that tidies and trims this partition; False when another process is at it.

        Another thread is waited for: a vacuum asked for must not find nothing done and nothing to do.
        """
        with self._housekeeping:
            self.require_place()
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

    def require_place(self) -> None:
        """Raise `StoreMoved` unless the folder's name still stands for the files that are open here."""
        lock = self.append
        if lock.fd >= 0 and inode(lock.fd) != inode(lock.path):
            raise moved(self.path)

    def close(self) -> None:
        """Close the files of the records and locks."""
        self._is_closed = True  # first: nobody opens them again
        with self._waking:
            self._pair = None
        if not self.read_only:
            self.append.close()
            self.tail.close()

    def _open_if_there(self, name: str) -> OpenFile:
        try:
            return OpenFile(self.files, self.files.open(self.name(name), write=False))
        except FileNotFoundError:
            return OpenFile(self.files, -1)

    def _holder(self) -> int | None:
        record = self.read_append()
        return record.pid if record is not None else None


def _nothing() -> None:
    """Do nothing: nobody wants to know."""


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
