"""Bodies as objects of a bucket in S3, or of anything that speaks its protocol.

Credentials come as everywhere in the AWS world: from the environment, a profile, or the machine's role. They
are never part of an address, of options that are kept, or of what is printed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain, islice
from typing import Any, BinaryIO, TypeVar, cast

from penstock.errors import BodyMissing, InvalidOption, PenstockError, Unavailable, UsageError
from penstock.options import refuse_secrets, require_obstore
from penstock.parse import MIB, datetime_ns
from penstock.payloads.chunks import PIECE_BYTES, Pieces, Ranged
from penstock.payloads.names import LONG, EscapedNames, NameScheme, checked_name, is_body, note_of
from penstock.payloads.store import Body, FoundBody, StoredBody

T = TypeVar("T")

#: Parts of one body that are under way together.
_PARTS_AT_ONCE = 3
_READ_BYTES = 4 * MIB
#: What one request of S3 deletes, and lists.
_MANY = 1000
#: A server that is gone is noticed within seconds, so that its writer hears of it.
_RETRIES: Any = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=3)},
}


class S3Bodies:
    """A bucket, or a prefix of one. `options` are endpoint, region and the like, and hold no secret."""

    def __init__(
        self, bucket: str, prefix: str = "", options: Mapping[str, str] | None = None,
        names: NameScheme | None = None,
    ) -> None:  # fmt: skip
        self.bucket = bucket
        self._names = names or EscapedNames()
        self.prefix = prefix.strip("/")
        self._options = dict(options or {})
        refuse_secrets(self._options)

    @cached_property
    def _store(self) -> Any:
        require_obstore()
        from obstore.store import S3Store

        # Times among the options, not as client options: those would hide what the environment says.
        config: Any = {"timeout": "60s", "connect_timeout": "10s", **_lower(self._options)}
        try:
            return S3Store(self.bucket, prefix=self.prefix or None, config=config, retry_config=_RETRIES)
        except Exception as error:  # noqa: BLE001 - obstore has its own errors for options it does not know
            raise InvalidOption(
                f"the options for {self} cannot be used: {_first_line(error)}",
                hint="endpoint, region, allow_http; credentials come from the environment",
            ) from None

    def put(
        self, name: str, body: Body, *, content_type: str | None = None, most: int | None = None
    ) -> StoredBody:
        """Store a body as an object; large ones in parts."""
        path = self._names.paths(name)[0]
        pieces = Pieces(body, most)
        note = note_of(path)
        attributes = {"Content-Type": content_type} if content_type else None
        coming = iter(pieces)
        with self._telling(name, pieces):
            if note is not None:
                self._store.put(note, name.encode())
            begin = list(islice(coming, 2))
            if len(begin) < 2:
                self._store.put(
                    path, bytes(begin[0]) if begin else b"", attributes=attributes, use_multipart=False
                )
            else:
                self._store.put(
                    path, map(bytes, chain(begin, coming)), attributes=attributes,
                    chunk_size=PIECE_BYTES, max_concurrency=_PARTS_AT_ONCE,
                )  # fmt: skip
        return StoredBody(name, pieces.size, pieces.sha256)

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return a body or a part of it; raise `BodyMissing` if there is none."""
        if length == 0:
            return b""
        return self._at_any(name, lambda path: self._get(path, start, length))

    def open(self, name: str, start: int = 0, length: int | None = None) -> BinaryIO:
        """Open a body, or a part of it, to be read piece by piece."""
        path, size = self._at_any(name, lambda path: (path, self._store.head(path)["size"]))
        rest = max(0, size - start)

        def fetch(at: int, count: int) -> bytes:
            with self._telling(name):
                return self._get(path, at, count)

        part = Ranged(fetch, start, rest if length is None else min(length, rest))
        return cast(BinaryIO, io.BufferedReader(part, _READ_BYTES))

    def _at_any(self, name: str, ask: Callable[[str], T]) -> T:
        """What is found at the first path at which the body lies."""
        *first, last = self._names.paths(name)
        for path in first:
            with suppress(BodyMissing), self._telling(name):
                return ask(path)
        with self._telling(name):
            return ask(last)

    def _get(self, path: str, start: int, length: int | None) -> bytes:
        if length is not None:
            return bytes(self._store.get_range(path, start=start, length=length))
        if start:
            return bytes(self._store.get(path, options={"range": {"offset": start}}).bytes())
        return bytes(self._store.get(path).bytes())

    def delete(self, names: Iterable[str]) -> int:
        """S3 does not say which of them were there: all of them count."""
        count = 0
        waiting = iter(names)
        while batch := list(islice(waiting, _MANY)):
            paths = [path for name in batch for path in self._names.paths(name)]
            notes = [note for path in paths if (note := note_of(path)) is not None]
            with self._telling(batch[0]):
                self._store.delete(paths)
                if notes:
                    self._store.delete(notes)
            count += len(batch)
        return count

    def list(self, prefix: str = "") -> Iterator[FoundBody]:
        """Iterate over all bodies whose names begin with `prefix`, in no order."""
        for root in (self._names.folder_of(checked_name(prefix) if prefix else ""), f"{LONG}/"):
            yield from (each for each in self._found(self._walk(root)) if each.name.startswith(prefix))

    def shares(self) -> Sequence[str]:
        """Return the prefixes to list, so that several processes can list them together."""
        with self._telling(""):
            found = self._store.list_with_delimiter()
        return ["", *(f"{each.rstrip('/')}/" for each in found["common_prefixes"])]

    def list_share(self, share: str) -> Iterator[FoundBody]:
        """Iterate over the bodies of one share."""
        if share:
            return self._found(self._walk(share))
        with self._telling(""):
            top = self._store.list_with_delimiter()["objects"]
        return self._found((each["path"], each["size"], each["last_modified"]) for each in top)

    def unfinished(self) -> Iterator[FoundBody]:
        """Nothing: an upload in parts is the server's until it is whole, and a rule of the bucket ends it."""
        return iter(())

    def forget(self, unfinished: Iterable[str]) -> int:
        """Delete nothing: S3 does not list unfinished uploads here."""
        return 0

    def __repr__(self) -> str:
        return f"<S3Bodies {self}>"

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def _walk(self, root: str) -> Iterator[tuple[str, int, datetime]]:
        """Bodies below a folder; those under their digests only when asked for."""
        with self._telling(root):
            for chunk in self._store.list(root.rstrip("/") or None, chunk_size=_MANY):
                for found in chunk:
                    path = found["path"]
                    if is_body(path) and (root.startswith(LONG) or not path.startswith(f"{LONG}/")):
                        yield path, found["size"], found["last_modified"]

    def _found(self, objects: Iterable[tuple[str, int, datetime]]) -> Iterator[FoundBody]:
        for path, size, modified in objects:
            name = self._name(path)
            if name is not None:
                yield FoundBody(name, size, datetime_ns(modified))

    def _name(self, path: str) -> str | None:
        note = note_of(path)
        if note is None:
            return self._names.name_of(path)
        try:
            with self._telling(note):
                return bytes(self._store.get(note).bytes()).decode()
        except BodyMissing:  # deleted meanwhile
            return None

    @contextmanager
    def _telling(self, name: str, pieces: Pieces | None = None) -> Iterator[None]:
        """Within this, an error of obstore's is told as one of ours."""
        require_obstore()
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except PenstockError:
            raise
        except FileNotFoundError:
            if pieces is not None and pieces.error is not None:
                raise pieces.error from None
            raise BodyMissing(name, str(self)) from None
        except Exception as error:  # obstore raises its own errors, and Python's in their places
            if pieces is not None and pieces.error is not None:
                raise pieces.error from None
            if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
                raise UsageError(
                    f"{self} refuses us: {_first_line(error)}",
                    hint="check the credentials: environment, profile or the machine's role",
                ) from None
            if not isinstance(error, (BaseError, OSError)):
                raise
            raise Unavailable(
                f"{self} does not answer as it should: {_first_line(error)}",
                hint="nothing was stored half; check the server and its address, then try again",
            ) from None


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    """Options as obstore spells them; an endpoint that says http:// means it."""
    found = {name.lower().removeprefix("aws_"): value for name, value in options.items()}
    if found.get("endpoint", found.get("endpoint_url", "")).startswith("http://"):
        found.setdefault("allow_http", "true")
    return found


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
