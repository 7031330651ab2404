"""Where backups lie: a folder, or a prefix of an S3 bucket; files by name, each written once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from penstock.files import Files
from penstock.options import split_s3
from penstock.parse import MIB
from penstock.payloads.s3 import S3Bodies

_AT_ONCE_BYTES = 4 * MIB


class BackupTarget(Protocol):
    """Files by name, with `/` between folders. A file that was put is never put again."""

    def names(self) -> list[str]:
        """All files that are there."""

    def put(self, name: str, source: str, length: int | None = None, *, lasting: bool = False) -> None:
        """Store a file, or its first bytes; a source that is `lasting` never changes, and may be shared."""

    def put_bytes(self, name: str, data: bytes) -> None:
        """Store a small file; it is there whole or not at all."""

    def read(self, name: str) -> bytes:
        """Return a small file."""

    def get(self, name: str, to: str) -> None:
        """Bring a file back, as a new file."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove files."""


class FolderTarget:
    """A folder. What never changes is hard-linked where the file system allows it."""

    def __init__(self, root: str, files: Files) -> None:
        self._root = os.path.abspath(root)
        self._files = files

    def names(self) -> list[str]:
        """Return the names of all files that are there."""
        return [
            os.path.relpath(os.path.join(folder, name), self._root)
            for folder, _, names in os.walk(self._root)
            for name in names
        ]

    def put(self, name: str, source: str, length: int | None = None, *, lasting: bool = False) -> None:
        """Copy a file, or its first bytes, into the folder; link it if it never changes."""
        path = self._path(name)
        if not (lasting and length is None and _linked(source, path)):
            _copy(source, path, length)
        self._files.sync_dir(os.path.dirname(path))

    def put_bytes(self, name: str, data: bytes) -> None:
        """Store a small file; it is there whole or not at all."""
        path = self._path(name)
        with open(path + ".tmp", "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".tmp", path)
        self._files.sync_dir(os.path.dirname(path))

    def read(self, name: str) -> bytes:
        """Return the content of a small file."""
        return Path(self._root, name).read_bytes()

    def get(self, name: str, to: str) -> None:
        """Copy a file out of the folder, as a new file."""
        os.makedirs(os.path.dirname(to), exist_ok=True)
        _copy(os.path.join(self._root, name), to, None)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files."""
        for name in names:
            os.unlink(os.path.join(self._root, name))

    def _path(self, name: str) -> str:
        path = os.path.join(self._root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path


class BucketTarget:
    """A prefix of an S3 bucket; credentials come from the environment."""

    def __init__(self, address: str) -> None:
        self._objects = S3Bodies(*split_s3(address))

    def names(self) -> list[str]:
        """Return the names of all files that are there."""
        return [found.name for found in self._objects.list()]

    def put(self, name: str, source: str, length: int | None = None, *, lasting: bool = False) -> None:
        """Store a file, or its first bytes, as an object."""
        if length is None:
            self._objects.put(name, Path(source))
        else:
            with open(source, "rb") as file:
                self._objects.put(name, file.read(length))

    def put_bytes(self, name: str, data: bytes) -> None:
        """Store a small file; it is there whole or not at all."""
        self._objects.put(name, data)

    def read(self, name: str) -> bytes:
        """Return the content of a small file."""
        return self._objects.get(name)

    def get(self, name: str, to: str) -> None:
        """Load an object into a new file."""
        os.makedirs(os.path.dirname(to), exist_ok=True)
        with self._objects.open(name) as body, open(to, "wb") as file:
            shutil.copyfileobj(body, file, _AT_ONCE_BYTES)
            file.flush()
            os.fsync(file.fileno())

    def delete(self, names: Iterable[str]) -> None:
        """Delete files."""
        self._objects.delete(names)


def backup_target(address: str | os.PathLike[str], files: Files) -> BackupTarget:
    """The place of backups, by its address."""
    text = os.fspath(address)
    return BucketTarget(text) if text.startswith("s3://") else FolderTarget(text, files)


def _linked(source: str, to: str) -> bool:
    try:
        os.link(source, to)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without links
        return False
    return True


def _copy(source: str, to: str, length: int | None) -> None:
    with open(source, "rb") as original, open(to, "wb") as copy:
        if length is None:
            shutil.copyfileobj(original, copy, _AT_ONCE_BYTES)
        else:
            copy.write(original.read(length))
        copy.flush()
        os.fsync(copy.fileno())
