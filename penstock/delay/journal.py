"""Sessions that are open and must survive their process: a journal for each process and topic.

    u32 length | u32 crc32 of the rest | 16-byte id | a session as msgpack, or nothing: it ended

The process holds a lock on its journal, which the kernel frees when it dies; the process that gets the lock
then stores what was open, and removes the file. The last entry of a session holds; a torn one at the end
was never acknowledged.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import struct
import threading
from collections.abc import Iterator
from types import TracebackType

import msgspec

from penstock.checksum import crc32
from penstock.files import Files
from penstock.locks import forget_in_child

logger = logging.getLogger("penstock.sessions")

_HEAD = struct.Struct("<II")
_ID_BYTES = 16
_SUFFIX = ".open"


class SessionData(msgspec.Struct, frozen=True, array_like=True):
    """What a session is made of (docs/FORMAT.md); fields are only ever added."""

    chunks: list[bytes]
    first_error: str = ""
    last_error: str = ""

    def failed(self, error: str) -> SessionData:
        if not error:
            return self
        return msgspec.structs.replace(self, first_error=self.first_error or error, last_error=error)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SessionData)


class Journal:
    """One journal, locked: this process's own, or that of one which died."""

    def __init__(self, folder: str, files: Files, name: str | None = None) -> None:
        self._files = files
        self._folder = os.path.join(folder, "open")
        if name is None:
            files.make_dirs(self._folder)
            files.sync_dir(folder)
        self._path = os.path.join(self._folder, name or f"{os.getpid()}-{secrets.token_hex(8)}{_SUFFIX}")
        draft = self._path if name is not None else self._path.removesuffix(_SUFFIX) + ".new"
        self._fd = files.open(draft, create=name is None)
        self.is_ours = self._lock()
        self._end = 0
        self._open: set[bytes] = set()
        self._is_damaged = False
        self._mutex = threading.Lock()
        if name is None:  # locked before others can see it, or they would take it for an abandoned one
            files.rename(draft, self._path)
            files.sync_dir(self._folder)
        forget_in_child(self)

    def put(self, identity: bytes, data: SessionData) -> None:
        """Store an open session as it is now; it is on disk when this returns."""
        with self._mutex:
            self._add(identity, _encoder.encode(data))
            self._open.add(identity)

    def remove(self, identity: bytes) -> None:
        """Note that a session is not open any more."""
        with self._mutex:
            self._open.discard(identity)
            if self._open:
                self._add(identity, b"")
            else:  # nothing is left to be remembered
                self._files.truncate(self._fd, 0)
                self._files.sync(self._fd)
                self._end = 0

    def sessions(self) -> dict[bytes, SessionData]:
        """Return the sessions that are open."""
        data = self._files.pread(self._fd, self._files.size(self._fd), 0)
        found: dict[bytes, SessionData] = {}
        for at, body in _entries(data):
            if body is None:
                self._is_damaged = True
                where = {"path": self._path, "byte": at}
                logger.error("%s is damaged at byte %d", self._path, at, extra=where)
                continue
            identity, rest = body[:_ID_BYTES], body[_ID_BYTES:]
            if rest:
                found[identity] = _decoder.decode(rest)
            else:
                found.pop(identity, None)
        return found

    def forget(self) -> None:
        """Remove the journal: all of it is stored elsewhere. What could not be read is kept aside."""
        if self._is_damaged:
            self._files.rename(self._path, f"{self._path}.damaged")
        else:
            self._files.unlink(self._path)
        self._files.sync_dir(self._folder)

    def close(self) -> None:
        """Release the journal; what is open is for the next process."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        if not self._open and self.is_ours and self._files.size(fd) == 0:
            self._files.unlink(self._path)
        self._files.close(fd)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fd, self._fd = self._fd, -1
        self._files.close(fd)

    def after_fork_in_child(self) -> None:
        """Close the parent's file: a child opens its own."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._files.close(fd)

    def _add(self, identity: bytes, rest: bytes) -> None:
        body = identity + rest
        entry = _HEAD.pack(len(body), crc32(body)) + body
        self._files.pwrite(self._fd, entry, self._end)
        self._files.sync(self._fd)
        self._end += len(entry)

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def damaged_entries(folder: str, files: Files) -> Iterator[tuple[str, int]]:
    """(file, byte) of what cannot be read in the journals of a topic, also in those put aside before."""
    place = os.path.join(folder, "open")
    for name in sorted(files.listdir(place)) if files.exists(place) else ():
        path = os.path.join(place, name)
        try:
            fd = files.open(path, write=False)
        except FileNotFoundError:
            continue  # its process ended meanwhile
        try:
            data = files.pread(fd, files.size(fd), 0)
        finally:
            files.close(fd)
        yield from ((path, at) for at, body in _entries(data) if body is None)


def _entries(data: bytes) -> Iterator[tuple[int, bytes | None]]:
    """(byte, entry); None for a damaged one, behind which sound ones lie. A torn end is left out."""
    at = 0
    while at < len(data):
        body = _entry(data, at)
        if body is not None:
            yield at, body
            at += _HEAD.size + len(body)
            continue
        sound = next((later for later in range(at + 1, len(data)) if _entry(data, later) is not None), None)
        if sound is None:
            return
        yield at, None
        at = sound


def _entry(data: bytes, at: int) -> bytes | None:
    if at + _HEAD.size > len(data):
        return None
    length, crc = _HEAD.unpack_from(data, at)
    if not _ID_BYTES <= length <= len(data) - at - _HEAD.size:
        return None
    body = data[at + _HEAD.size : at + _HEAD.size + length]
    return body if crc32(body) == crc else None


def abandoned(folder: str, files: Files) -> Iterator[Journal]:
    """Journals of processes that died, each locked for us."""
    place = os.path.join(folder, "open")
    if not files.exists(place):
        return
    for name in files.listdir(place):
        if not name.endswith(_SUFFIX):
            continue
        try:
            journal = Journal(folder, files, name)
        except FileNotFoundError:
            continue  # another process was quicker
        if journal.is_ours and files.exists(os.path.join(place, name)):
            yield journal
        else:
            with journal:
                pass
