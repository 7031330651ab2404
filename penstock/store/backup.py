"""Back up a store while it is being written, and restore it.

A backup is a list of files (`snapshots/<moment>.json`) and the files themselves (`files/…`), each written
once. The list comes last, so a backup that was interrupted is none, and those before it are as they were. A
sealed segment never changes: it is stored once for all backups in a place, in a folder as a hard link.

What a list names is a store as it was at one moment, by the order in which it is copied:

    1  `state.db`, by SQLite's own backup
    2  each partition up to what was durable when its turn came: every position that 1 holds lies below
    3  bodies, waiting messages, checkpoints of pipelines

The records A, S and D are of no boot, so that the first process to open a restored store recovers it.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from typing import NamedTuple

import msgspec

from penstock.checksum import checked_line, with_checksum
from penstock.clock import Clock
from penstock.errors import AlreadyExists, Corrupt, InvalidOption, NotAStore, Unavailable
from penstock.files import Files
from penstock.log.folder import DATA, Folder
from penstock.log.records import AppendRecord, DurableRecord, ShownRecord
from penstock.parse import utc, whole
from penstock.state.database import Database
from penstock.store.backup_target import BackupTarget, backup_target
from penstock.topic.identity import IDENTITY

_STATE = "state.db"
_SNAPSHOTS, _FILES, _LIST = "snapshots", "files", ".json"
#: Files of one process, of one boot, or made again by those who need them.
_LEFT_OUT = ("append", "tail", "vacuum", "lock", "states.lock", "wake", "owner", "state.lock")
_LEFT_OUT_ENDINGS = (".tmp", ".deleted", "-wal", "-shm")
#: A partition whose files change while they are copied is begun again so often.
_AGAIN = 100


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """One file of a backup: its name in the store, its size and time there, and where it lies."""

    name: str
    size: int
    modified: int
    stored: str
    #: Its bytes never change under this name, size and time.
    lasting: bool


class _Snapshot(msgspec.Struct, frozen=True):
    """The list of one backup."""

    store: str
    created: int
    files: list[_Entry]


class BackupReport(NamedTuple):
    """What a backup stored: files and bytes that were new, and files that earlier backups have stored."""

    name: str
    copied: int
    bytes: int
    kept: int
    #: Backups that went because of `keep`.
    removed: int


class RestoreReport(NamedTuple):
    """What a restore brought back, and of which moment it is."""

    name: str
    created: datetime
    files: int
    bytes: int


def backup(
    store: str | os.PathLike[str], to: str | os.PathLike[str], *, keep: int | None = None,
    files: Files | None = None, clock: Clock | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> BackupReport:  # fmt: skip
    """Copy a store to a folder or an s3:// prefix, also while others write to it.

    Each call adds a backup of that moment; with `keep` only so many of the newest stay.
    """
    root, files = os.path.abspath(store), files or Files()
    if keep is not None:
        whole("keep", keep, 1, 2**31)
    if not files.exists(os.path.join(root, _STATE)):
        raise NotAStore(f"there is no store in {root}")
    if _is_within(root, to):
        raise InvalidOption(f"a backup of {root} cannot lie inside it", hint="choose another folder")
    target = backup_target(to, files)
    names = _refuse_stranger(target, to)
    made = _Backup(root, target, files, progress, _newest(target, names))
    name = made.run((clock or Clock()).now_ns())
    removed = 0 if keep is None else _prune(target, keep)
    return BackupReport(name, made.copied, made.bytes, made.kept, removed)


def restore(
    source: str | os.PathLike[str], to: str | os.PathLike[str], *, name: str | None = None,
    files: Files | None = None, progress: Callable[[str], None] = lambda name: None,
) -> RestoreReport:  # fmt: skip
    """Bring a backup back as a store in a new folder: the newest one, or that of a name."""
    files, root = files or Files(), os.path.abspath(to)
    target = backup_target(source, files)
    there = _snapshots(target.names())
    if not there:
        raise NotAStore(f"there is no backup in {os.fspath(source)}")
    chosen = there[-1] if name is None else name
    if chosen not in there:
        raise InvalidOption(
            f"there is no backup {chosen!r}", hint=f"those there are: {', '.join(there[-10:])}"
        )
    if os.path.exists(root) and os.listdir(root):
        raise AlreadyExists(f"{root} is not empty", hint="restore into a new folder")
    snapshot = _load(target, chosen)
    # The database last: without it nobody takes the folder for a store.
    for entry in sorted(snapshot.files, key=lambda each: (each.name == _STATE, each.name)):
        path = os.path.join(root, entry.name)
        target.get(entry.stored, path)
        if os.path.getsize(path) != entry.size:
            raise Corrupt(entry.stored, os.path.getsize(path), f"it should be {entry.size} bytes")
        progress(entry.name)
    for folder, _, _ in os.walk(root):
        files.sync_dir(folder)
    return RestoreReport(
        chosen, utc(snapshot.created), len(snapshot.files), sum(each.size for each in snapshot.files)
    )


def backups(place: str | os.PathLike[str], *, files: Files | None = None) -> list[str]:
    """Names of the backups in a place, oldest first."""
    return _snapshots(backup_target(place, files or Files()).names())


class _Backup:
    """One run of a backup."""

    def __init__(
        self, root: str, target: BackupTarget, files: Files, progress: Callable[[str], None],
        before: _Snapshot | None,
    ) -> None:  # fmt: skip
        self._root = root
        self._target = target
        self._files = files
        self._progress = progress
        self._before = {entry.name: entry for entry in before.files if entry.lasting} if before else {}
        self._entries: dict[str, _Entry] = {}
        self.copied = self.bytes = self.kept = 0

    def run(self, now: int) -> str:
        """Copy everything, then write the list; returns its name."""
        store_id = self._state()
        for topic in self._folders("topics"):
            self._topic(os.path.join("topics", topic))
        for part in ("payloads", "delay", "pipelines"):
            self._tree(part)
        snapshot = _Snapshot(store_id, now, list(self._entries.values()))
        name = f"{utc(now):%Y%m%dT%H%M%S.%fZ}"
        line = msgspec.json.encode(snapshot)
        self._target.put_bytes(f"{_SNAPSHOTS}/{name}{_LIST}", with_checksum(line))
        return name

    def _state(self) -> str:
        path = os.path.join(self._root, _STATE)
        with tempfile.TemporaryDirectory() as aside:
            copy = os.path.join(aside, _STATE)
            with closing(Database(path, self._files, create=False, read_only=True)) as database:
                database.copy_to(copy)
                store_id = database.store_id
            self._store(_STATE, copy, os.path.getsize(copy), None, lasting=False)
        return store_id

    # Topics.

    def _topic(self, topic: str) -> None:
        identity = os.path.join(topic, IDENTITY)
        if self._files.exists(os.path.join(self._root, identity)):
            self._put(identity, lasting=False)
        for part in self._folders(os.path.join(topic, "parts")):
            self._partition(os.path.join(topic, "parts", part))

    def _partition(self, part: str) -> None:
        """Copy one partition; begun again when files go or are replaced meanwhile."""
        for _ in range(_AGAIN):
            before = dict(self._entries)
            try:
                self._copy_partition(part)
            except FileNotFoundError:
                self._entries = before
                continue
            return
        raise Unavailable(f"{part} changes faster than it can be copied", hint="try again")

    def _copy_partition(self, part: str) -> None:
        path = os.path.join(self._root, part)
        with closing(
            Folder(path, topic_id=0, partition=0, files=self._files, clock=Clock(), read_only=True)
        ) as folder:
            a, tail = folder.read_append(), folder.read_tail()
        end = None if a is None or tail is None else _end(*tail)
        for name in sorted(self._files.listdir(path)):
            if _is_left_out(name) or (end is not None and _is_behind(name, end)):
                continue
            is_last = end is not None and name == f"{end.segment:020d}{DATA}"
            self._put(
                os.path.join(part, name), length=end.byte if is_last and end is not None else None,
                lasting=end is not None and not is_last and name[:20].isdecimal(),
            )  # fmt: skip
        if a is not None and tail is not None and end is not None:
            for name, data in _records(a, *tail, end):
                self._small(os.path.join(part, name), data)

    # Everything else.

    def _tree(self, part: str) -> None:
        """Copy a folder with all below it; a file that goes meanwhile was finished with."""
        for folder, _, names in os.walk(os.path.join(self._root, part)):
            inside = os.path.relpath(folder, self._root)
            for name in names:
                if not _is_left_out(name):
                    try:
                        self._put(os.path.join(inside, name), lasting=part == "payloads")
                    except FileNotFoundError:
                        continue

    def _put(self, name: str, *, length: int | None = None, lasting: bool) -> None:
        source = os.path.join(self._root, name)
        facts = os.stat(source)
        known = self._before.get(name)
        if (
            lasting
            and known is not None
            and (known.size, known.modified) == (facts.st_size, facts.st_mtime_ns)
        ):
            self._entries[name] = known
            self.kept += 1
        else:
            self._store(name, source, facts.st_mtime_ns, length, lasting=lasting)

    def _store(self, name: str, source: str, modified: int, length: int | None, *, lasting: bool) -> None:
        stored = _new_name()
        size = os.path.getsize(source) if length is None else length
        self._target.put(stored, source, size if not lasting else None, lasting=lasting)
        self._note(name, size, modified, stored, lasting=lasting)

    def _small(self, name: str, data: bytes) -> None:
        stored = _new_name()
        self._target.put_bytes(stored, data)
        self._note(name, len(data), 0, stored, lasting=False)

    def _note(self, name: str, size: int, modified: int, stored: str, *, lasting: bool) -> None:
        self._entries[name] = _Entry(name, size, modified, stored, lasting)
        self.copied += 1
        self.bytes += size
        self._progress(name)

    def _folders(self, part: str) -> list[str]:
        path = os.path.join(self._root, part)
        names = self._files.listdir(path) if self._files.exists(path) else []
        return sorted(name for name in names if not name.startswith("."))


class _End(NamedTuple):
    """The end up to which a partition is copied."""

    offset: int
    segment: int
    byte: int


def _end(shown: ShownRecord, durable: DurableRecord) -> _End:
    """What is durable; on sync="os" topics what readers see, which may be more."""
    if shown.end > durable.end:
        return _End(shown.end, shown.segment, shown.byte)
    return _End(durable.end, durable.segment, durable.byte)


def _records(
    a: AppendRecord, shown: ShownRecord, durable: DurableRecord, end: _End
) -> Iterator[tuple[str, bytes]]:
    """A, S and D as they would be if nothing had been written since, of no boot."""
    append = a._replace(
        flags=0, boot=0, pid=0, byte=end.byte, next=end.offset, segment=end.segment, pending=0,
        reserved=min(a.reserved, end.offset),
    )  # fmt: skip
    there = shown._replace(boot=0, end=end.offset, segment=end.segment, byte=end.byte)
    safe = durable._replace(flags=0, boot=0, end=end.offset, segment=end.segment, byte=end.byte)
    yield "append", append.pack()
    yield "tail", there.pack() + safe.pack()


def _is_behind(name: str, end: _End) -> bool:
    """Whether a file of a partition belongs to a segment behind the end."""
    return name[:20].isdecimal() and int(name[:20]) > end.segment


def _is_left_out(name: str) -> bool:
    return name in _LEFT_OUT or name.endswith(_LEFT_OUT_ENDINGS)


def _is_within(root: str, to: str | os.PathLike[str]) -> bool:
    text = os.fspath(to)
    return not text.startswith("s3://") and os.path.commonpath([root, os.path.abspath(text)]) == root


def _new_name() -> str:
    name = secrets.token_hex(16)
    return f"{_FILES}/{name[:2]}/{name}"


def _snapshots(names: list[str]) -> list[str]:
    prefix = _SNAPSHOTS + "/"
    return sorted(
        name.removeprefix(prefix).removesuffix(_LIST)
        for name in names
        if name.startswith(prefix) and name.endswith(_LIST)
    )


def _load(target: BackupTarget, name: str) -> _Snapshot:
    path = f"{_SNAPSHOTS}/{name}{_LIST}"
    line = checked_line(target.read(path))
    if line is None:
        raise Corrupt(path, 0, "the checksum of this backup's list is wrong")
    return msgspec.json.decode(line, type=_Snapshot)


def _newest(target: BackupTarget, names: list[str]) -> _Snapshot | None:
    there = _snapshots(names)
    return _load(target, there[-1]) if there else None


def _prune(target: BackupTarget, keep: int) -> int:
    """Remove all backups but the newest, and files that none of those names."""
    names = target.names()
    there = _snapshots(names)
    gone, left = there[:-keep], there[-keep:]
    if not gone:
        return 0
    wanted = {entry.stored for name in left for entry in _load(target, name).files}
    target.delete(f"{_SNAPSHOTS}/{name}{_LIST}" for name in gone)
    target.delete(name for name in names if name.startswith(_FILES + "/") and name not in wanted)
    return len(gone)


def _refuse_stranger(target: BackupTarget, to: str | os.PathLike[str]) -> list[str]:
    names = target.names()
    if any(not name.startswith((_SNAPSHOTS + "/", _FILES + "/")) for name in names):
        raise InvalidOption(
            f"{os.fspath(to)} holds something that is not a backup", hint="choose an empty place"
        )
    return names
