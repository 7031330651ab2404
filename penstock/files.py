"""The file calls Penstock needs, as one object, so that tests can put a hostile disk in its place.

Everything above reads and writes through a `Files`; nothing calls `os` for data directly.
A descriptor is a plain int. Paths are `str`. Errors are `OSError`, as the system gives them.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

from penstock.errors import (
    DiskFull,
    InvalidOption,
    NotDurable,
    PenstockError,
    ReadOnly,
    StoreMoved,
    Unavailable,
)

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

#: File systems whose locks or mappings do not keep our promises between processes.
_REFUSED_FILE_SYSTEMS = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "ceph",
    "glusterfs",
    "lustre",
    "beegfs",
    "gpfs",
    "afs",
    "virtiofs",
    "fuse",
)
#: FUSE drivers known to be local disks.
_LOCAL_FUSE = ("fuse.ext4", "fuseblk")

#: Below this share of free disk writes are refused; below the other one they are logged as a warning.
DISK_REFUSE, DISK_WARN = 0.02, 0.10

#: How many parts one call takes (IOV_MAX).
_PARTS_MOST = 1024
#: To copy so few bytes costs less than a call with parts.
_COPIED_MOST = 4096


class Files:
    """The operating system's files."""

    pread = staticmethod(os.pread)
    close = staticmethod(os.close)
    truncate = staticmethod(os.ftruncate)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)
    remove_dir = staticmethod(os.rmdir)
    listdir = staticmethod(os.listdir)

    def open(self, path: str, *, create: bool = False, write: bool = True, exclusive: bool = False) -> int:
        """Open a file and return its descriptor."""
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        return os.open(path, flags, 0o644)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, at: int) -> int:
        """Write all of `data`, or raise; the count is returned for symmetry with `os.pwrite`."""
        written = os.pwrite(fd, data, at)
        size = len(data)
        if written != size:
            view = memoryview(data)
            while written < size:
                written += os.pwrite(fd, view[written:], at + written)
        return written

    def pwritev(self, fd: int, parts: list[bytes | bytearray | memoryview], at: int) -> int:
        """Write the parts back to back in one call, or raise."""
        if len(parts) > _PARTS_MOST:
            return self.pwrite(fd, b"".join(parts), at)
        size = sum(map(len, parts))
        if size <= _COPIED_MOST:
            written = os.pwrite(fd, b"".join(parts), at)
        else:
            written = os.pwritev(fd, parts, at)
        if written != size:
            rest = b"".join(parts)[written:]
            written += self.pwrite(fd, rest, at + written)
        return written

    def size(self, fd: int) -> int:
        """Return how many bytes a file has."""
        return os.fstat(fd).st_size

    def sync(self, fd: int) -> None:
        """Make the file's bytes and length survive a power cut."""
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(fd)

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in the folder survive a power cut."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def allocate(self, fd: int, at: int, length: int) -> None:
        """Reserve zeros at the end of the file, so that syncing an append changes no metadata.

        Only a help: a file system that cannot do it is left alone.
        """
        try:
            os.posix_fallocate(fd, at, length)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
        except AttributeError:
            pass  # macOS has no posix_fallocate

    def start_writeback(self, fd: int, at: int, length: int) -> None:
        """Have the system begin to write these bytes to the disk, without waiting; only a help."""
        _sync_file_range()(fd, at, length, _SYNC_FILE_RANGE_WRITE)

    def map(self, fd: int, length: int, *, write: bool = False) -> mmap.mmap:
        """Map the first `length` bytes for reading, or for writing too."""
        return mmap.mmap(fd, length, access=mmap.ACCESS_WRITE if write else mmap.ACCESS_READ)

    def make_dirs(self, path: str) -> None:
        """Make a folder and those above it that are missing."""
        os.makedirs(path, exist_ok=True)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder at `path`."""
        return os.path.exists(path)

    def modified_ns(self, path: str) -> int:
        """When the file was last written; 0 when it is gone."""
        try:
            return os.stat(path).st_mtime_ns
        except FileNotFoundError:
            return 0

    def boot(self) -> int:
        """A number that changes with each start of the machine."""
        return _boot()

    def free_share(self, path: str) -> float:
        """How much of the disk is free for us, from 0 to 1."""
        room = os.statvfs(path)
        return room.f_bavail / room.f_blocks if room.f_blocks else 1.0


class OpenFile:
    """A descriptor that is closed when nobody has it any more; whoever has it keeps it open."""

    __slots__ = ("_files", "fd")

    def __init__(self, files: Files, fd: int) -> None:
        self._files = files
        self.fd = fd

    def close(self) -> None:
        """Close it now, whoever has it."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self._files.close(fd)

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()


_SYNC_FILE_RANGE_WRITE = 2


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int]:
    """Linux's call of that name; elsewhere one that does nothing."""
    import ctypes

    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is None:
        return lambda fd, at, length, flags: 0
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call  # type: ignore[no-any-return]


@cache
def _boot() -> int:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return int(file.read().strip().replace("-", "")[:16], 16) or 1
    except OSError:
        return _boot_from_sysctl()


def _boot_from_sysctl() -> int:
    """macOS: the time the kernel was started."""
    import ctypes.util

    libc = ctypes.CDLL(ctypes.util.find_library("c"))
    value = (ctypes.c_int64 * 2)()
    size = ctypes.c_size_t(ctypes.sizeof(value))
    libc.sysctlbyname(b"kern.boottime", value, ctypes.byref(size), None, 0)
    return (value[0] * 1_000_000 + value[1]) or 1


def replace(files: Files, path: str, data: bytes) -> None:
    """Put a file in place by write, sync, rename: readers see the old one or the new one."""
    draft = path + ".tmp"
    fd = files.open(draft, create=True)
    try:
        files.truncate(fd, 0)
        files.pwrite(fd, data, 0)
        files.sync(fd)
    finally:
        files.close(fd)
    files.rename(draft, path)


def read_whole(files: Files, path: str) -> bytes:
    """A small file's bytes; b"" when it is not there."""
    try:
        fd = files.open(path, write=False)
    except FileNotFoundError:
        return b""
    try:
        return files.pread(fd, files.size(fd), 0)
    finally:
        files.close(fd)


def file_system(path: str, mounts: str = "/proc/self/mountinfo") -> str:
    """Return the kind of file system that `path` lies on, `""` when it cannot be found out."""
    try:
        with open(mounts) as file:
            lines = file.readlines()
    except OSError:
        return ""
    path = os.path.realpath(path)
    best, kind = "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split(" ")[0]
    return kind


def inode(path: str | int) -> tuple[int, int]:
    """What a path or a descriptor stands for, however it is named later; (0, 0) when it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def moved(path: str) -> StoreMoved:
    """The error for a folder that is not where it was opened."""
    return StoreMoved(
        f"{path} was moved or removed while the store was open",
        hint="open the store where it lies now; what was acknowledged is there",
    )


class Whereabouts:
    """A folder by its name, and what that name stood for when it was opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._inode = inode(path)

    def require(self) -> None:
        """Raise `StoreMoved` unless the name still stands for the same folder."""
        if inode(self._path) != self._inode:
            raise moved(self._path)


def refuse_network_file_system(path: str, mounts: str = "/proc/self/mountinfo") -> None:
    """Raise when locks on `path` would not hold between processes and machines."""
    kind = file_system(path, mounts)
    refused = kind in _REFUSED_FILE_SYSTEMS or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)
    if refused:
        raise InvalidOption(
            f"{path} lies on a network file system ({kind}), where file locks do not hold",
            hint="put the store on a local disk; read_only=True may read it here",
        )


C = TypeVar("C")
R = TypeVar("R")
P = ParamSpec("P")
#: What the system refuses whoever asks: nothing is wrong with the call.
_OF_THE_SYSTEM = (
    errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
)  # fmt: skip


def in_our_words(error: OSError) -> BaseException:
    """The system's error as one of ours, if it is about the disk or about limits; else as it is.

    For errors that come by where nothing is known of what was under way.
    """
    if isinstance(error, PenstockError) or error.errno not in _OF_THE_SYSTEM:
        return error
    place = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else "the store"
    if error.errno == errno.EIO:
        return Unavailable(f"{place}: {error.strerror}", hint="look at the disk (dmesg), then try again")
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(
            f"{place}: {error.strerror}", hint="free space, lower the retention and vacuum, then try again"
        )
    return refusal(place, error)


def speak(error: OSError) -> NoReturn:
    """Raise the system's error in our words; for an `except` clause."""
    said = in_our_words(error)
    if said is error:
        raise error
    raise said from error


def speaking(*names: str) -> Callable[[type[C]], type[C]]:
    """Have these methods of a class raise the system's errors in our words."""

    def spoken(kind: type[C]) -> type[C]:
        for name in names:
            setattr(kind, name, _speaking(getattr(kind, name)))
        return kind

    return spoken


def _speaking(method: Callable[P, R]) -> Callable[P, R]:
    @wraps(method)
    def called(*args: P.args, **options: P.kwargs) -> R:
        try:
            return method(*args, **options)
        except OSError as error:
            speak(error)

    return called


#: So many pairs of this process are synced at a time; further ones wait.
_SYNC_THREADS = 4
_sync_threads: ThreadPoolExecutor | None = None


def sync_both(files: Files, fd: int, other: int) -> None:
    """Return when both files are durable; OSError when one of them could not be synced.

    At the same time: the file system then makes both durable with one commit of its journal. One after the
    other they cost two, which is most of what a durable message costs.
    """
    try:
        second = _executor().submit(files.sync, other)
    except RuntimeError:  # the interpreter is ending
        files.sync(other)
        files.sync(fd)
        return
    try:
        files.sync(fd)
    finally:
        second.result()


def _executor() -> ThreadPoolExecutor:
    global _sync_threads
    if _sync_threads is None:
        from concurrent.futures import ThreadPoolExecutor  # seldom needed, and slow to load

        _sync_threads = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="penstock-sync")
    return _sync_threads


def _forget_threads() -> None:
    """Forget the threads in a forked child, which has none of them."""
    global _sync_threads
    _sync_threads = None


os.register_at_fork(after_in_child=_forget_threads)


def refusal(path: str, error: OSError) -> PenstockError:
    """Return what the system's error means for a caller that wanted to write below `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(
            f"{path}: {error.strerror or error}; nothing of this write stays",
            hint="free space, lower the retention and vacuum, then try again",
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnly(f"{path} cannot be written: {error.strerror}")
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return Unavailable(
            f"{path}: {error.strerror}; nothing is wrong with the disk",
            hint="close files, or allow more of them (ulimit -n), then try again",
        )
    return NotDurable(f"{path}: the write failed and was cut back: {error}")
