"""Bodies as files of a folder."""

from __future__ import annotations

import errno
import io
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, cast

from penstock.errors import BodyMissing
from penstock.files import Files, refusal
from penstock.payloads.chunks import Pieces, Ranged
from penstock.payloads.names import (
    LONG,
    TEMPORARY,
    EscapedNames,
    NameScheme,
    checked_name,
    is_body,
    note_of,
)
from penstock.payloads.store import Body, FoundBody, StoredBody

#: Read at once, where a body is read piece by piece.
_BUFFER_BYTES = 256 * 1024


class FileBodies:
    """A folder of bodies. Each is written beside its place, synced, and put there by a rename."""

    def __init__(self, folder: str, files: Files | None = None, names: NameScheme | None = None) -> None:
        self.folder = folder
        self._files = files or Files()
        self._names = names or EscapedNames()

    def put(
        self, name: str, body: Body, *, content_type: str | None = None, most: int | None = None
    ) -> StoredBody:
        """Store a body as a file, whole and synced when this returns."""
        pieces = Pieces(body, most)
        try:
            self._write(name, pieces)
        except OSError as error:
            if pieces.error is not None:
                raise
            raise refusal(self.folder, error) from error
        return StoredBody(name, pieces.size, pieces.sha256)

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return a body or a part of it; raise `BodyMissing` if there is none."""
        with self.open(name, start, length) as file:
            return file.read()

    def open(self, name: str, start: int = 0, length: int | None = None) -> BinaryIO:
        """Open a body, or a part of it, to be read piece by piece."""
        raw = self._opened(name)
        size = os.fstat(raw.fileno()).st_size
        rest = max(0, size - start)
        part = _Part(raw, start, rest if length is None else min(length, rest))
        return cast(BinaryIO, io.BufferedReader(part, _BUFFER_BYTES))

    def delete(self, names: Iterable[str]) -> int:
        """Delete bodies; return how many were there."""
        count = 0
        folders = set()
        for name in names:
            for path in self._names.paths(name):
                if self._delete(path):
                    count += 1
                    folders.add(os.path.dirname(path))
                    break
        for folder in folders:
            self._remove_empty(folder)
        return count

    def list(self, prefix: str = "") -> Iterator[FoundBody]:
        """Iterate over all bodies whose names begin with `prefix`, in no order."""
        for root in (self._names.folder_of(checked_name(prefix) if prefix else ""), f"{LONG}/"):
            yield from (each for each in self._found(self._walk(root)) if each.name.startswith(prefix))

    def shares(self) -> Sequence[str]:
        """Return the folders to list, so that several processes can list them together."""
        return ["", *sorted(f"{each.name}/" for each in self._top() if each.is_dir(follow_symlinks=False))]

    def list_share(self, share: str) -> Iterator[FoundBody]:
        """Iterate over the bodies of one share."""
        if share:
            return self._found(self._walk(share))
        return self._found(each.name for each in self._top() if not each.is_dir(follow_symlinks=False))

    def unfinished(self) -> Iterator[FoundBody]:
        """Iterate over files that were begun and are not in their place yet."""
        try:
            entries = list(os.scandir(self._path(TEMPORARY)))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            with suppress(FileNotFoundError):  # it is in its place by now
                stat = entry.stat(follow_symlinks=False)
                yield FoundBody(entry.name, stat.st_size, stat.st_mtime_ns)

    def forget(self, unfinished: Iterable[str]) -> int:
        """Delete what `unfinished` found; return how many were still there."""
        count = 0
        for name in unfinished:
            with suppress(FileNotFoundError):
                self._files.unlink(self._path(f"{TEMPORARY}/{os.path.basename(name)}"))
                count += 1
        return count

    def remove_leftovers(self, age_ns: int) -> int:
        """Remove what was never finished, and was last written longer ago; how many there were."""
        before_ns = time.time_ns() - age_ns  # the clock that files are stamped by, whatever the store's is
        return self.forget(each.name for each in self.unfinished() if each.modified_ns < before_ns)

    def __repr__(self) -> str:
        return f"<FileBodies {self.folder}>"

    def _found(self, paths: Iterable[str]) -> Iterator[FoundBody]:
        for path in paths:
            name = self._name(path)
            with suppress(FileNotFoundError):  # deleted meanwhile
                stat = os.stat(self._path(path))
                if name is not None:
                    yield FoundBody(name, stat.st_size, stat.st_mtime_ns)

    def _top(self) -> Sequence[os.DirEntry[str]]:
        try:
            with os.scandir(self.folder) as entries:
                return [entry for entry in entries if entry.name != TEMPORARY]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _name(self, path: str) -> str | None:
        note = note_of(path)
        if note is None:
            return self._names.name_of(path)
        try:
            with open(self._path(note), "rb") as file:
                return file.read().decode()
        except FileNotFoundError:  # deleted meanwhile
            return None

    def _walk(self, root: str) -> Iterator[str]:
        """Paths of bodies below a folder; those under their digests only when asked for."""
        try:
            entries = sorted(os.scandir(self._path(root)), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            path = f"{root}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in (LONG, TEMPORARY):
                    yield from self._walk(f"{path}/")
            elif is_body(path):
                yield path

    def _opened(self, name: str) -> io.FileIO:
        for path in self._names.paths(name):
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return open(self._path(path), "rb", buffering=0)
        raise BodyMissing(name, self.folder)

    def _delete(self, path: str) -> bool:
        note = note_of(path)
        try:
            self._files.unlink(self._path(path))
            if note is not None:
                self._files.unlink(self._path(note))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False
        except OSError as error:
            raise refusal(self.folder, error) from error
        return True

    def _write(self, name: str, pieces: Pieces) -> None:
        """Write the body beside its place, then put it at the first path that the folder can hold."""
        temporary = self._written(pieces)
        try:
            *first, last = self._names.paths(name)
            for path in first:
                try:
                    self._note(path, name)
                    return self._put_in_place(temporary, self._path(path))
                except (NotADirectoryError, IsADirectoryError, FileExistsError):
                    continue  # a body has the name of a folder, or the other way round
            self._note(last, name)
            self._put_in_place(temporary, self._path(last))
        except BaseException:
            if self._files.exists(temporary):
                self._files.unlink(temporary)
            raise

    def _note(self, path: str, name: str) -> None:
        """Note the name of a body that lies under its digest."""
        note = note_of(path)
        if note is not None:
            self._put_in_place(self._written(Pieces(name.encode())), self._path(note))

    def _written(self, pieces: Pieces) -> str:
        """A file with these bytes, on disk, which has no name yet."""
        temporary = self._path(f"{TEMPORARY}/{secrets.token_hex(16)}")
        self._make_folder(os.path.dirname(temporary))
        fd = self._files.open(temporary, create=True, exclusive=True)
        try:
            at = 0
            for piece in pieces:
                at += self._files.pwrite(fd, piece, at)
            self._files.sync(fd)
        except BaseException:
            self._files.unlink(temporary)
            raise
        finally:
            self._files.close(fd)
        return temporary

    def _put_in_place(self, temporary: str, target: str) -> None:
        """Rename, and sync the folder: it may be removed as empty by a delete at the same moment."""
        while True:
            self._make_folder(os.path.dirname(target))
            try:
                self._files.rename(temporary, target)
                self._files.sync_dir(os.path.dirname(target))
                return
            except FileNotFoundError:
                if not self._files.exists(temporary):
                    raise

    def _make_folder(self, folder: str) -> None:
        """With every folder above it durable, up to one that was there."""
        made = []
        while not self._files.exists(folder):
            made.append(folder)
            folder = os.path.dirname(folder)
        for each in reversed(made):
            try:
                self._files.make_dirs(each)
                self._files.sync_dir(os.path.dirname(each))
            except FileNotFoundError:  # removed as empty meanwhile: it is made with the next attempt
                return

    def _remove_empty(self, folder: str) -> None:
        """A folder without bodies, and those above it; one that is not empty ends it."""
        while folder:
            try:
                os.rmdir(self._path(folder))
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise
                return
            folder = os.path.dirname(folder)

    def _path(self, path: str) -> str:
        return os.path.join(self.folder, path)


class _Part(Ranged):
    """A part of a file that is closed with it."""

    def __init__(self, file: io.FileIO, start: int, length: int) -> None:
        super().__init__(lambda at, count: os.pread(file.fileno(), count, at), start, length)
        self._file = file

    def close(self) -> None:
        self._file.close()
        super().close()
