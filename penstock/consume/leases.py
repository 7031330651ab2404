"""The file by which the members of a consumer share its partitions: `consumers/<name>` in the topic's folder.

Who holds what is said by byte locks, which the kernel frees when their holder dies (OFD locks: one
owner per open file, so two readers of one process are two members). The bytes in the file only tell
people, and members that were kicked, who is who:

    lock on byte p + 2^24 · round      partition p is held            (docs/FORMAT.md has the byte table)
    lock on byte 2^40 + k              member k is there
    record k                           its pid, when it came, whether it was kicked, when it wanted more
    entry p                            who took partition p last and has not signed off, and the round

A round is what makes kicking possible: the lock of a stopped process cannot be broken, so `kick` counts
the partition's round up, and the lock that matters is another byte from then on. A member that takes a
partition which nobody holds and nobody signed off knows that its last holder died.
"""

from __future__ import annotations

import atexit
import os
import socket
import struct
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from penstock.byte_lock import ByteLock
from penstock.errors import Closed, Unavailable
from penstock.files import Files
from penstock.locks import FORKED, forget_in_child, process

#: Most members a consumer may have.
MEMBERS_MOST = 1024
_RECORD = struct.Struct("<IIqQQ32s")
_ENTRY = struct.Struct("<II")
_FLAGS_AT = 4
_WANTED_AT = 24
_HOST_BYTES = 32
_ENTRIES_AT = MEMBERS_MOST * _RECORD.size
#: A topic's partitions have numbers below this, in all its life: folders are named with six digits.
NUMBERS_MAX = 10**6
#: Most of it is never written, and takes no room.
_FILE_BYTES = _ENTRIES_AT + NUMBERS_MAX * _ENTRY.size
_MEMBER_BYTE = 2**40
_ROUND_STEP = 2**24
_ROUNDS = 2**16

_KICKED, _FIXED = 1, 2


class MemberRecord(NamedTuple):
    """A member as its record tells; that it is there is told by its lock."""

    number: int
    pid: int
    kicked: bool
    #: It chose its partitions and takes no part in the sharing.
    fixed: bool
    #: When it joined, in nanoseconds.
    joined: int
    #: When its process started, in the kernel's ticks: tells it from a later one with the same pid.
    started: int
    #: When it last looked and had less than its share, in nanoseconds of the machine's monotonic clock.
    wanted: int
    host: str


class LeaseTable(NamedTuple):
    """What the file said at one moment."""

    #: All members that are there, by number.
    members: dict[int, MemberRecord]
    #: For each partition that someone else holds, the number of who took it last.
    held: dict[int, int]

    def sharing(self) -> list[int]:
        """The numbers of the members that share partitions, in order, which is their rank."""
        return sorted(n for n, member in self.members.items() if not member.kicked and not member.fixed)


class LeaseFile:
    """The open lease file of one member. Without `create` it must be there, without `write` it is read."""

    def __init__(self, path: str, files: Files, *, create: bool = True, write: bool = True) -> None:
        self.path = path
        self._files = files
        self._mutex = threading.Lock()
        self._rounds: dict[int, int] = {}
        self.number: int | None = None
        #: Partitions that were taken from members that died: they had not signed off.
        self.orphans: set[int] = set()
        if create:
            files.make_dirs(os.path.dirname(path))
        self._fd = files.open(path, create=create, write=write)
        if write and files.size(self._fd) < _FILE_BYTES:
            files.truncate(self._fd, _FILE_BYTES)
        self._closed = "the reader is closed"
        forget_in_child(self)
        _open.add(self)

    # Members.

    def join(self, now_ns: int, *, fixed: bool) -> int:
        """Become a member: the first free number."""
        with self._mutex:
            locks = ByteLock(self._open_fd())
            taken = locks.held_elsewhere(_MEMBER_BYTE, _MEMBER_BYTE + MEMBERS_MOST)
            for number in range(MEMBERS_MOST):
                byte = _MEMBER_BYTE + number
                if byte not in taken and locks.try_lock(byte):
                    self.number = number
                    self._write_record(now_ns, _FIXED if fixed else 0)
                    return number
        raise Unavailable(f"{self.path}: {MEMBERS_MOST} members are there already", hint="close some")

    def want(self, at: int) -> None:
        """Tell the others that this member is there and has less than its share."""
        with self._mutex:
            assert self.number is not None
            place = self.number * _RECORD.size + _WANTED_AT
            self._files.pwrite(self._open_fd(), struct.pack("<Q", at), place)

    def is_kicked(self) -> bool:
        """Whether someone declared this member gone."""
        with self._mutex:
            assert self.number is not None
            at = self.number * _RECORD.size + _FLAGS_AT
            return bool(self._files.pread(self._open_fd(), 1, at)[0] & _KICKED)

    def is_removed(self) -> bool:
        """Whether the file is gone: the consumer was dropped."""
        with self._mutex:
            return os.fstat(self._open_fd()).st_nlink == 0

    def kick(self, number: int, partitions: list[int]) -> None:
        """Declare a member gone, and open its partitions to others although its locks stay."""
        with self._mutex:
            fd = self._open_fd()
            at = number * _RECORD.size + _FLAGS_AT
            flags = self._files.pread(fd, 1, at)[0]
            self._files.pwrite(fd, bytes([flags | _KICKED]), at)
            for partition in partitions:
                at = _ENTRIES_AT + partition * _ENTRY.size
                _, past = _ENTRY.unpack(self._files.pread(fd, _ENTRY.size, at))
                self._files.pwrite(fd, _ENTRY.pack(0, (past + 1) % _ROUNDS), at)

    # Partitions.

    def look(self, partitions: Sequence[int]) -> LeaseTable:
        """Who is there and who holds what of these, by ascending number; one's own leases are left out."""
        with self._mutex:
            fd = self._open_fd()
            locks = ByteLock(fd)
            there = locks.held_elsewhere(_MEMBER_BYTE, _MEMBER_BYTE + MEMBERS_MOST)
            numbers = {byte - _MEMBER_BYTE for byte in there}
            if self.number is not None:
                numbers.add(self.number)
            members = {number: self._read_record(fd, number) for number in sorted(numbers)}
            held = locks.held_elsewhere(partitions[0], partitions[-1] + 1) if partitions else set()
            return LeaseTable(members, {
                partition: holder - 1
                for partition, (holder, past) in self._entries(fd, partitions)
                if (partition in held if not past else locks.is_held_elsewhere(_byte(partition, past)))
            })  # fmt: skip

    def try_take(self, partition: int) -> bool:
        """Take a lease if nobody has it."""
        with self._mutex:
            fd = self._open_fd()
            locks, at = ByteLock(fd), _ENTRIES_AT + partition * _ENTRY.size
            holder, now = _ENTRY.unpack(self._files.pread(fd, _ENTRY.size, at))
            if not locks.try_lock(_byte(partition, now)):
                return False
            if _ENTRY.unpack(self._files.pread(fd, _ENTRY.size, at))[1] != now:  # kicked at this moment
                locks.unlock(_byte(partition, now))
                return False
            assert self.number is not None
            self._files.pwrite(fd, struct.pack("<I", self.number + 1), at)
            self._rounds[partition] = now
            (self.orphans.add if holder else self.orphans.discard)(partition)
            return True

    def release(self, partition: int) -> None:
        """Release a lease; the other members hear of it with the next `announce`."""
        with self._mutex:
            self._sign_off(partition)
            past = self._rounds.pop(partition, None)
            if past is not None and self._fd >= 0:
                ByteLock(self._fd).unlock(_byte(partition, past))

    def announce(self) -> None:
        """Have the others look: they hear when someone who had the file open for writing closes it."""
        try:
            self._files.close(self._files.open(self.path))
        except FileNotFoundError:
            pass  # the consumer or the topic was dropped

    def close(self) -> None:
        """Release everything in one step; the kernel tells the others."""
        with self._mutex:
            self._sign_off(*self._rounds)
            fd, self._fd = self._fd, -1
        if fd >= 0:
            self._files.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:  # Ctrl-C came while a reader was being opened: nobody has it
            self._files.close(self._fd)

    def after_fork_in_child(self) -> None:
        """The locks are the parent's; here only the descriptor is closed, nothing unlocked."""
        self._mutex = threading.Lock()
        self._closed = FORKED
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def sign_off(self) -> None:
        """Say that what is held is given up, not left by a process that died: the program is ending."""
        with self._mutex:
            self._sign_off(*self._rounds)

    # Inside.

    def _sign_off(self, *partitions: int) -> None:
        with suppress(OSError):  # then it looks as if this process had died
            if self._fd < 0 or self.number is None:
                return
            for partition in partitions:
                at = _ENTRIES_AT + partition * _ENTRY.size
                mine = self.number + 1, self._rounds.get(partition)
                if _ENTRY.unpack(self._files.pread(self._fd, _ENTRY.size, at)) == mine:  # not after a kick
                    self._files.pwrite(self._fd, bytes(4), at)

    def _open_fd(self) -> int:
        if self._fd < 0:
            raise Closed(f"{self.path}: {self._closed}", hint="open a new one")
        return self._fd

    def _entries(self, fd: int, partitions: Sequence[int]) -> Iterator[tuple[int, tuple[int, int]]]:
        """What the file says of partitions: neighbours are read together."""
        at = 0
        while at < len(partitions):
            first, count = partitions[at], 1
            while at + count < len(partitions) and partitions[at + count] == first + count:
                count += 1
            data = self._files.pread(fd, count * _ENTRY.size, _ENTRIES_AT + first * _ENTRY.size)
            data = data.ljust(count * _ENTRY.size, b"\0")  # a file that was made smaller
            yield from zip(range(first, first + count), _ENTRY.iter_unpack(data), strict=True)
            at += count

    def _write_record(self, now_ns: int, flags: int) -> None:
        assert self.number is not None
        pid, host = os.getpid(), socket.gethostname().encode()[:_HOST_BYTES]
        record = _RECORD.pack(pid, flags, now_ns, process(pid)[1], 0, host)
        self._files.pwrite(self._fd, record, self.number * _RECORD.size)

    def _read_record(self, fd: int, number: int) -> MemberRecord:
        data = self._files.pread(fd, _RECORD.size, number * _RECORD.size)
        if len(data) < _RECORD.size:  # it has its number and not yet a record
            return MemberRecord(number, 0, False, False, 0, 0, 0, "")
        pid, flags, joined, started, wanted, host = _RECORD.unpack(data)
        name = host.rstrip(b"\0").decode(errors="replace")
        return MemberRecord(
            number, pid, bool(flags & _KICKED), bool(flags & _FIXED), joined, started, wanted, name
        )


#: Those of this process.
_open: weakref.WeakSet[LeaseFile] = weakref.WeakSet()


@atexit.register
def _sign_off_all() -> None:
    """A program that ends without closing its readers has not died of a message."""
    for file in list(_open):
        file.sign_off()


def _byte(partition: int, past: int) -> int:
    return partition + _ROUND_STEP * past
