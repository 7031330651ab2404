"""A disk that forgets: what a folder may look like after a crash, from a record of file calls.

A `Disk` is fed the calls of a run one by one (`apply`) and can at any moment be asked for an image:

    as_killed     every call so far took effect: the process died, the machine did not
    as_lost       the power went: what was synced is there, of the rest any part

What `as_lost` assumes, on purpose, is no more than POSIX promises:

    data        each 512-byte sector of a file holds any version it had since the last sync of that file
    length      any length the file had since then; behind written bytes lie zeros
    entries     each creation, rename or removal in a folder since the last `sync_dir` of that folder
                happened or did not, whatever happened to its neighbours
    failed sync the kernel may have dropped the pages: a later sync does not bring them back

Calls come from our own seam (tests/crash/tracing.py), where `state.db` is not traced call by call: it is a
list of commits; those not followed by a FULL one may be missing at the end. Or they are the system calls of
a process (tests/crash/system_calls.py), SQLite's among them, and `state.db` is a file like any other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.kit.logs import DURABLE_AT, RECORD_BYTES

SECTOR = 512
ROOT = 0
#: The database's place in an image, relative to the store.
DATABASE = "state.db"

#: What a crash leaves: path → bytes, None for a folder.
Image = dict[str, bytes | None]
#: (what, …): see `Disk.apply`.
Call = tuple[Any, ...]


@dataclass
class _File:
    now: bytearray = field(default_factory=bytearray)
    #: Sectors as they are on the disk for sure; those behind its end are zeros.
    durable: bytearray = field(default_factory=bytearray)
    durable_length: int = 0
    #: Versions since: any of them may be what the disk has.
    versions: dict[int, list[bytes]] = field(default_factory=dict)
    lengths: list[int] = field(default_factory=list)
    #: Sectors whose sync failed: only writing them again makes them durable.
    dropped: set[int] = field(default_factory=set)
    length_dropped: bool = False

    @classmethod
    def holding(cls, data: bytes) -> _File:
        """A file all of which is durable."""
        return cls(bytearray(data), bytearray(data), len(data))

    def write(self, at: int, data: bytes) -> None:
        end = at + len(data)
        if end > len(self.now):
            self.now.extend(bytes(end - len(self.now)))
            self._resized()
        self.now[at:end] = data
        self._touched(at, end)

    def truncate(self, length: int) -> None:
        before = len(self.now)
        if length < before:
            del self.now[length:]
            self._touched(length, before)
        else:
            self.now.extend(bytes(length - before))
        if length != before:
            self._resized()

    def sync(self) -> None:
        for sector in list(self.versions):
            if sector not in self.dropped:
                _put_sector(self.durable, sector, self._sector(sector))
                del self.versions[sector]
        if not self.length_dropped:
            self.durable_length = len(self.now)
            self.lengths.clear()

    def fail_sync(self) -> None:
        self.dropped.update(self.versions)
        self.length_dropped = bool(self.lengths)

    def as_lost(self, chance: random.Random) -> bytes:
        length = chance.choice([self.durable_length, *self.lengths, len(self.now)])
        data = self.durable.copy()
        # Most of a file lies still: only what was written since the last sync is left to chance.
        for sector, versions in self.versions.items():
            durable = bytes(self.durable[sector * SECTOR : (sector + 1) * SECTOR])
            _put_sector(data, sector, chance.choice([durable, *versions]))
        return bytes(data[:length]).ljust(length, b"\0")

    def _touched(self, begin: int, end: int) -> None:
        for sector in range(begin // SECTOR, -(-end // SECTOR)):
            self.dropped.discard(sector)
            self.versions.setdefault(sector, []).append(self._sector(sector))

    def _resized(self) -> None:
        self.length_dropped = False
        self.lengths.append(len(self.now))

    def _sector(self, sector: int) -> bytes:
        return bytes(self.now[sector * SECTOR : (sector + 1) * SECTOR])


def _put_sector(data: bytearray, sector: int, content: bytes) -> None:
    """Replace a sector; behind what it holds lie zeros."""
    begin = sector * SECTOR
    if begin > len(data):
        data.extend(bytes(begin - len(data)))
    data[begin : begin + SECTOR] = content.ljust(SECTOR, b"\0")


@dataclass
class _Folder:
    now: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)
    #: Not synced yet: name → what is there afterwards, or None. A rename is one change of two names.
    changes: list[dict[str, int | None]] = field(default_factory=list)

    def put(self, **change: int | None) -> None:
        self.changes.append(change)
        _put(self.now, change)

    def sync(self) -> None:
        self.durable = dict(self.now)
        self.changes.clear()

    def as_lost(self, chance: random.Random) -> dict[str, int]:
        entries = dict(self.durable)
        for change in self.changes:
            if chance.random() < 0.5:
                _put(entries, change)
        return entries


def _put(entries: dict[str, int], change: dict[str, int | None]) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class Disk:
    """The state of a folder while calls are applied to it, and what a crash would leave of it."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._folders: dict[int, _Folder] = {ROOT: _Folder()}
        #: Commits of state.db since the last FULL one, that one first.
        self._commits: list[bytes | None] = [None]
        #: A sync failed, and whoever asked for it has not marked D yet.
        self.failure_is_secret = False

    def apply(self, call: Call) -> None:
        match call:
            case ("make_folder", folder, name, node):
                self._folders[node] = _Folder()
                self._folders[folder].put(**{name: node})
            case ("create", folder, name, node):
                self._files[node] = _File()
                self._folders[folder].put(**{name: node})
            case ("rename", folder, name, new_name, node):
                self._folders[folder].put(**{name: None, new_name: node})
            case ("remove", folder, name):
                self._folders[folder].put(**{name: None})
            case ("write", node, at, data):
                self._files[node].write(at, data)
                if at == DURABLE_AT and len(data) == RECORD_BYTES:
                    self.failure_is_secret = False
            case ("truncate", node, length):
                self._files[node].truncate(length)
            case ("allocate", node, length):
                self._files[node].truncate(max(length, len(self._files[node].now)))
            case ("sync", node):
                self._files[node].sync()
            case ("sync_failed", node):
                self._files[node].fail_sync()
                self.failure_is_secret = True
            case ("sync_folder", node):
                self._folders[node].sync()
            case ("commit", full, snapshot):
                self._commits = [snapshot] if full else [*self._commits, snapshot]
            case ("mark", *_):
                pass
            case _:
                raise AssertionError(f"a call nobody knows: {call[0]}")

    @classmethod
    def holding(cls, image: Image) -> Disk:
        """A disk on which all of the image is durable."""
        disk = cls()
        nodes: dict[str, int] = {"": ROOT}
        for node, (path, data) in enumerate(image.items(), ROOT + 1):
            above, _, name = path.rpartition("/")
            if name == DATABASE:
                disk.apply(("commit", True, data))
                continue
            nodes[path] = node
            disk.apply(("make_folder" if data is None else "create", nodes[above], name, node))
            if data is not None:
                disk._files[node] = _File.holding(data)
        for node in disk._folders:
            disk.apply(("sync_folder", node))
        return disk

    def nodes(self) -> dict[str, int]:
        """The numbers of all files and folders that are there now, by path."""
        found: dict[str, int] = {}

        def walk(node: int, path: str) -> None:
            for name, child in self._folders[node].now.items():
                found[path + name] = child
                if child in self._folders:
                    walk(child, f"{path}{name}/")

        walk(ROOT, "")
        return found

    def as_killed(self) -> Image:
        """The folder as the next process finds it."""
        image: Image = {}
        entries = {node: folder.now for node, folder in self._folders.items()}
        self._walk(ROOT, "", image, entries, lambda node: bytes(self._files[node].now))
        self._add_database(image, self._commits[-1])
        return image

    def as_lost(self, chance: random.Random) -> Image:
        """The folder as the next boot finds it."""
        image: Image = {}
        entries = {node: folder.as_lost(chance) for node, folder in self._folders.items()}
        self._walk(ROOT, "", image, entries, lambda node: self._files[node].as_lost(chance))
        self._add_database(image, chance.choice(self._commits))
        return image

    def _walk(
        self,
        node: int,
        path: str,
        image: Image,
        entries: dict[int, dict[str, int]],
        content: Callable[[int], bytes],
    ) -> None:
        for name, child in sorted(entries[node].items()):
            below = f"{path}/{name}" if path else name
            if child in self._folders:
                image[below] = None
                self._walk(child, below, image, entries, content)
            else:
                image[below] = content(child)

    @staticmethod
    def _add_database(image: Image, snapshot: bytes | None) -> None:
        """The database lies beside `state.lock`, in the store's folder, and is gone with it."""
        for path in [path for path, data in image.items() if data is None and "/" not in path]:
            if snapshot is not None:
                image[f"{path}/{DATABASE}"] = snapshot
