"""Where the files of a table lie, a folder or a prefix in S3, as plain data that executors are given.

Options have the names that `deltalake` uses (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, …), in any case.
A file is written under a name that nobody else uses and counts only once a commit of the table names it;
so a crash leaves at most a file that is never read.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from penstock.errors import (
    ConflictError,
    DiskFull,
    InvalidOption,
    NotATable,
    PenstockError,
    ReadOnly,
    Unavailable,
    WrongType,
)

_S3 = ("s3://", "s3a://")

#: Option of pyarrow's S3 by what `deltalake` calls it, lower case and without `aws_`.
_S3_NAMES = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "token": "session_token",
    "region": "region",
    "default_region": "region",
    "endpoint": "endpoint_override",
    "endpoint_url": "endpoint_override",
}
_YES = ("true", "1", "yes", "on")


class Storage(NamedTuple):
    """A table's place, and what it takes to get there."""

    #: An absolute path, or `s3://bucket/prefix`; no slash at the end.
    uri: str
    options: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Storage({self.uri!r})"  # options hold secrets

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""
        return not self.uri.startswith(_S3)

    @property
    def delta_options(self) -> dict[str, str] | None:
        """The options that `deltalake` takes."""
        return dict(self.options) or None

    def open(self, path: str) -> pa.NativeFile:
        """A file of the table, to be read; raises `FileNotFoundError`."""
        system, root = _filesystem(self)
        return system.open_input_file(f"{root}/{path}")

    @contextmanager
    def create(self, path: str) -> Iterator[pa.NativeFile]:
        """A new file; on the disk when the block ends, gone when it fails."""
        system, root = _filesystem(self)
        whole = f"{root}/{path}"
        with writing_to(self):
            if self.is_local:
                os.makedirs(os.path.dirname(whole), exist_ok=True)
            stream = system.open_output_stream(whole)
        try:
            yield stream
            with writing_to(self):
                stream.close()
                self.sync(path)
        except BaseException:
            with suppress(OSError):
                stream.close()
            self.delete([path])
            raise

    def delete(self, paths: Iterable[str]) -> None:
        """Remove files; those that are not there are fine."""
        system, root = _filesystem(self)
        for path in paths:
            try:
                system.delete_file(f"{root}/{path}")
            except FileNotFoundError:
                pass

    def sync(self, path: str) -> None:
        """Make a file last a power cut, if this is a disk: itself and its name."""
        if self.is_local:
            _sync(os.path.join(self.uri, path))
            _sync(os.path.dirname(os.path.join(self.uri, path)))

    def is_empty(self) -> bool:
        """Whether nothing at all is there."""
        system, root = _filesystem(self)
        found = system.get_file_info(root)
        if found.type == fs.FileType.NotFound:
            return True
        if found.type == fs.FileType.File:
            return False
        return not system.get_file_info(fs.FileSelector(root))


def storage(table: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Storage:
    """Understand where a table lies; raises `InvalidOption` or `NotATable` where none can be."""
    if not isinstance(table, (str, os.PathLike)):
        raise WrongType(f"a table is a path or an s3:// address, not {type(table).__name__}")
    place = os.fspath(table)
    for name, value in (options or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise WrongType(f"storage_options takes text by text, not {name!r}: {type(value).__name__}")
    if place.startswith("file://"):
        place = place.removeprefix("file://")
    if place.startswith(_S3):
        kept = f"s3://{place.split('://', 1)[1].strip('/')}"
        if kept == "s3://":
            raise InvalidOption("s3:// names no bucket", hint="write it like s3://bucket/folder/table")
        return Storage(kept, tuple(sorted((options or {}).items())))
    if "://" in place:
        raise InvalidOption(f"a table cannot lie at {place!r}", hint="use a folder, or s3://bucket/table")
    if not place:
        raise InvalidOption("the table's place is empty", hint="use a folder, or s3://bucket/table")
    if options:
        raise InvalidOption("storage_options are for s3:// only", hint="a folder needs none")
    if os.path.isfile(place):
        raise NotATable(f"{place} is a file", hint="a table is a folder; one that is not there yet is made")
    return Storage(os.path.abspath(place))


@contextmanager
def writing_to(place: Storage) -> Iterator[None]:
    """Raise an error of the disk or network as one of the table."""
    try:
        yield
    except OSError as error:
        raise unwritable(place, error) from error


@contextmanager
def committing_to(place: Storage) -> Iterator[None]:
    """Raise a commit that failed as our own error: `ConflictError` when someone else was quicker."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        raise ConflictError(
            f"someone else changed {place.uri} at the same moment: {first_line(error)}",
            hint="run it again; it goes on from where the table stands",
        ) from error
    except (DeltaError, OSError) as error:
        raise unwritable(place, error) from error


def unwritable(place: Storage, error: Exception) -> PenstockError:
    """The error for a table that cannot be written to, by what its reason seems to be."""
    told = f"the table {place.uri} cannot be written to: {first_line(error)}"
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
        return DiskFull(told, hint="make room; what was archived before is safe, and it goes on from there")
    if place.is_local:
        return ReadOnly(told, hint="choose a folder that this user may write to")
    return Unavailable(told, hint="check storage_options and the server, then run it again")


def first_line(error: Exception) -> str:
    """What an error says, without the stack that some libraries add."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@lru_cache(maxsize=16)
def _filesystem(place: Storage) -> tuple[fs.FileSystem, str]:
    if place.is_local:
        return fs.LocalFileSystem(), place.uri
    return fs.S3FileSystem(**s3_arguments(dict(place.options))), place.uri.removeprefix("s3://")


def s3_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """Options as `deltalake` has them, for pyarrow's S3; those only the former knows are left out."""
    known = {name.lower().removeprefix("aws_"): value for name, value in options.items()}
    arguments: dict[str, Any] = {_S3_NAMES[name]: known[name] for name in known if name in _S3_NAMES}
    if known.get("skip_signature", "").lower() in _YES:
        arguments["anonymous"] = True
    if known.get("virtual_hosted_style_request", "").lower() in _YES:
        arguments["force_virtual_addressing"] = True
    endpoint = arguments.get("endpoint_override", "")
    if "://" in endpoint:
        arguments["scheme"], arguments["endpoint_override"] = endpoint.rstrip("/").split("://", 1)
    elif known.get("allow_http", "").lower() in _YES:
        arguments["scheme"] = "http"
    return arguments


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
