"""A file, or the files of a folder, followed as they grow: each line becomes a message, exactly once.

Every file that is found gets a producer of its own, which is kept in the topic's folder before its first line
is stored; the byte at which a line begins is its seqno (S001-47). After a restart the log knows how far each
file was stored. A file is known by its inode and its first bytes, not by its name: one that was rotated away
is read to its end under its new name, before the file that took its place; one that was cut, or replaced, is
a new file with a new producer. A line that is no record ends it, or is named and left out.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from hashlib import blake2b
from typing import Any, BinaryIO

from penstock.errors import ConflictError, DataError, InvalidOption, UsageError
from penstock.exchange.file_import import FileImported, Progress, RecordReader, RecordSink
from penstock.exchange.origin import replace_file
from penstock.exchange.records import Refuse, refuse_all
from penstock.exchange.text_lines import Lines
from penstock.locks import Claimed, claim
from penstock.store.topic import Topic

#: How often files are looked at.
POLL_S = 0.25
#: A rotated file that did not change for so long is done; its last line may have no end.
_QUIET_S = 5.0
_HEAD_BYTES = 1024
ReaderMaker = Callable[[str], RecordReader]


@dataclass
class FollowedFile:
    """A file that is, or was, followed."""

    device: int
    inode: int
    #: A hash of the first `head_bytes` bytes: an inode may be given to another file.
    head: str
    head_bytes: int
    producer: str


@dataclass
class _Position:
    """How far a file was stored."""

    #: Where the next line begins that is to be sent.
    at: int
    #: Where the last line begins that is stored, in any partition; -1 for none.
    last: int


class Follower:
    """Follows a path into a topic. Use it with `with`: one process at a time follows a path."""

    def __init__(
        self, topic: Topic[Any], path: str, reader_of: ReaderMaker, *, pattern: str = "*",
        progress: Progress = lambda done: None, on_bad: Refuse = refuse_all,
    ) -> None:  # fmt: skip
        #: Called for each line that cannot be stored, with what is wrong; unless it raises, that is left out.
        self._on_bad = on_bad
        #: Which files of a folder are followed.
        self._pattern = pattern
        self._topic, self._reader_of, self._progress = topic, reader_of, progress
        self._path = os.path.abspath(path)
        self._is_folder = os.path.isdir(path)
        self._parent = self._path if self._is_folder else os.path.dirname(self._path)
        if not os.path.isdir(self._parent):
            raise InvalidOption(f"{path} cannot be followed: there is no folder {self._parent}")
        name = blake2b(os.fsencode(self._path), digest_size=8).hexdigest()
        self._state = os.path.join(topic.open_topic.folder, f"follow-{name}.json")
        self._known = _load(self._state)
        self._positions: dict[str, _Position] = {}
        #: Inodes of all files that there are.
        self._present: set[tuple[int, int]] = set()
        #: What was stored so far.
        self.done = FileImported()
        try:
            self._lock = claim(f"{self._state}.lock")
        except Claimed as error:
            raise ConflictError(f"{path} is being followed by another process{error}") from None

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def run(self, is_over: Callable[[], bool] = lambda: False) -> FileImported:
        """Follow until `is_over`."""
        while not is_over():
            if not self.look():
                time.sleep(POLL_S)
        return self.done

    def look(self) -> int:
        """Store what is new in all files, and return how many messages that was."""
        before = self.done.messages
        for path, is_wanted in self._files():
            with _reading(path) as file:
                known = None if file is None else self._identified(file, is_wanted)
                if file is not None and known is not None:
                    self._store_new(known, file, path, is_done=not is_wanted and _is_quiet(file))
        self._progress(self.done.messages)
        return self.done.messages - before

    def _files(self) -> list[tuple[str, bool]]:
        """Files to look at, oldest first, and whether it is their name that is followed."""
        inodes = {(each.device, each.inode) for each in self._known}
        self._present.clear()
        found = []
        for entry in os.scandir(self._parent):
            if entry.name.startswith(".") or not entry.is_file():
                continue
            is_wanted = fnmatch(entry.name, self._pattern) if self._is_folder else entry.path == self._path
            stat = entry.stat()
            self._present.add((stat.st_dev, stat.st_ino))
            if is_wanted or (stat.st_dev, stat.st_ino) in inodes:
                found.append((stat.st_mtime_ns, entry.path, is_wanted))
        return [
            (path, is_wanted) for _, path, is_wanted in sorted(found, key=lambda each: (each[0], each[1]))
        ]

    def _identified(self, file: BinaryIO, is_wanted: bool) -> FollowedFile | None:
        """The file as it is known; a new one is made known, durably, before anything of it is stored."""
        stat, head = os.fstat(file.fileno()), file.read(_HEAD_BYTES)
        file.seek(0)
        known = self._find(stat, head)
        if known is not None and stat.st_size > self._position(known).last:
            self._lengthen(known, head)
            return known
        if not head or (known is None and not is_wanted):
            return None
        known = FollowedFile(
            stat.st_dev, stat.st_ino, _hash(head), len(head), f"follow:{secrets.token_hex(16)}"
        )
        place = stat.st_dev, stat.st_ino
        others = [(each.device, each.inode) for each in self._known]
        self._known = [
            each for each, other in zip(self._known, others, strict=True)
            if other != place and other in self._present
        ]  # fmt: skip
        self._known.append(known)
        self._save()
        return known

    def _find(self, stat: os.stat_result, head: bytes) -> FollowedFile | None:
        for each in self._known:
            if (each.device, each.inode) == (stat.st_dev, stat.st_ino):
                is_same = len(head) >= each.head_bytes and _hash(head[: each.head_bytes]) == each.head
                return each if is_same else None
        return None

    def _position(self, known: FollowedFile) -> _Position:
        position = self._positions.get(known.producer)
        if position is None:
            with RecordSink(self._topic, known.producer) as sink:
                position = _Position(sink.first_to_send(), sink.last_stored())
            self._positions[known.producer] = position
        return position

    def _lengthen(self, known: FollowedFile, head: bytes) -> None:
        """Remember more of a file's first bytes: they tell it better from others."""
        if len(head) > known.head_bytes:
            known.head, known.head_bytes = _hash(head), len(head)
            self._save()

    def _store_new(self, known: FollowedFile, file: BinaryIO, path: str, *, is_done: bool) -> None:
        position, before = self._position(known), self.done.messages
        if os.fstat(file.fileno()).st_size <= position.at:
            return
        lines = Lines(file, path, whole_only=not is_done)
        reader = self._reader_of(path)
        if not reader.begin(lines):
            return
        lines.skip_to(position.at)
        sink = RecordSink(
            self._topic, known.producer, lambda done: self._progress(before + done), self._leave_out
        )
        with sink:
            try:
                sink.store(reader.records(lines, self._leave_out))
            finally:
                self.done.messages += sink.done.messages
                self.done.skipped += sink.done.skipped
        position.at = lines.at
        position.last = max(position.last, lines.at - 1)

    def _leave_out(self, error: UsageError) -> None:
        self._on_bad(error)
        self.done.bad += 1

    def _save(self) -> None:
        record = {"version": 1, "path": self._path, "files": [asdict(each) for each in self._known]}
        replace_file(self._topic.open_topic.files, self._state, json.dumps(record, indent=1).encode())


def _load(path: str) -> list[FollowedFile]:
    try:
        with open(path, "rb") as file:
            return [FollowedFile(**each) for each in json.loads(file.read())["files"]]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{path} is damaged: {error}", hint="without it files are stored again from their beginning"
        ) from error


@contextmanager
def _reading(path: str) -> Iterator[BinaryIO | None]:
    """A file opened for reading; None when it is gone."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        yield None
        return
    with file:
        yield file


def _is_quiet(file: BinaryIO) -> bool:
    return time.time() - os.fstat(file.fileno()).st_mtime > _QUIET_S


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
