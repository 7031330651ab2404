"""Open a store: check its folder, make it if need be, and say what is wrong with it."""

from __future__ import annotations

import errno
import os
import tempfile

from penstock.clock import Clock
from penstock.errors import InvalidOption, NotAStore, ReadOnly, WrongType
from penstock.files import Files, refuse_network_file_system, speak
from penstock.locks import no_fork
from penstock.state.database import refuse_stranger
from penstock.store.store import Store

#: What a folder may hold in which a store was begun.
_OWN_NAMES = {"state.lock", "state.db-wal", "state.db-shm", "owner"}


def open_store(
    path: str | os.PathLike[str], *, create: bool = True, read_only: bool = False, exclusive: bool = False,
    files: Files | None = None, clock: Clock | None = None,
) -> Store:  # fmt: skip
    """Open the store in a folder, making it if need be.

    Any number of processes may have it open and write to it; `exclusive=True` makes this one the only
    one that may. `read_only=True` changes nothing in the folder. ":memory:" is a store of your own that
    is gone when it is closed. `files` and `clock` are for tests.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise WrongType(f"a store's path is a str or a Path, not {type(path).__name__}")
    folder = os.fspath(path)
    if not isinstance(folder, str) or not folder or "\0" in folder:
        raise InvalidOption(f"{folder!r} is not a path for a store")
    temporary = folder == ":memory:"
    if temporary:
        room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        folder = tempfile.mkdtemp(prefix="penstock-", dir=room)
    files = files or Files()
    if not read_only:
        refuse_network_file_system(folder)
    try:
        with no_fork():
            _prepare(folder, files, create=create and not read_only)
            return Store(
                os.path.abspath(folder),
                files,
                clock or Clock(),
                read_only=read_only,
                exclusive=exclusive,
                temporary=temporary,
            )
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            speak(error)
        raise ReadOnly(
            f"{folder} cannot be written: {error.strerror}", hint="read_only=True may do"
        ) from error


def _prepare(folder: str, files: Files, *, create: bool) -> None:
    """See that the folder is a store, or may become one."""
    database = os.path.join(folder, "state.db")
    if files.exists(database):
        refuse_stranger(database)
        return
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise NotAStore(f"{folder} is a file, not a folder")
    if not create:
        raise NotAStore(f"there is no store in {folder}", hint="create=True makes one")
    strangers = (
        [name for name in files.listdir(folder) if name not in _OWN_NAMES] if files.exists(folder) else []
    )
    if strangers:
        raise NotAStore(
            f"{folder} is not a store: it holds {strangers[0]!r} and no state.db",
            hint="choose an empty folder",
        )
    try:
        files.make_dirs(folder)
        files.sync_dir(os.path.dirname(os.path.abspath(folder)))
    except OSError as error:
        raise ReadOnly(f"{folder} cannot be made: {error.strerror}") from error
