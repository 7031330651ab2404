"""Bodies where a MiniToolStream's publishers put them: objects of a bucket or files, by plain names."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.errors import BodyMissing, InvalidOption
from penstock.options import MIB
from penstock.payload_options import split_s3
from penstock.payloads.opening import open_bodies
from penstock.payloads.s3 import S3Bodies
from penstock.tarantool.oldrows import OldMessage

#: Bodies that are fetched at the same time.
_AT_ONCE = 16
#: Larger ones pass through a file, so that memory does not grow with them.
IN_MEMORY_BYTES = MIB

#: A body, or the file it lies in.
Body = bytes | Path
Fetch = Callable[[str], Body]


class OldBodies:
    """Where the bodies are: `s3://bucket/prefix`, or a folder. Names are used as they are."""

    def __init__(self, place: str) -> None:
        self._plain = self._bucket(place) if place.startswith("s3://") else _folder(place)
        # Penstock's own are stored under names that are safe everywhere.
        self._own = open_bodies(place)
        self._passing = tempfile.TemporaryDirectory(prefix="penstock-migration-")

    def fetch(self, messages: Iterable[OldMessage]) -> list[Body | None]:
        """The bodies of messages, in their order; None for one that is missing."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="penstock-bodies") as threads:
            return list(threads.map(self._body, messages))

    def done(self, body: Body) -> None:
        """A body was stored: it need not be kept on its way any more."""
        if isinstance(body, Path) and body.parent == Path(self._passing.name):
            body.unlink()

    def close(self) -> None:
        self._passing.cleanup()

    def _body(self, message: OldMessage) -> Body | None:
        if message.body is not None:
            return message.body
        if not message.object_name:
            return b""
        try:
            if message.digest is None:
                return self._plain(message.object_name)
            with self._own.open(message.object_name) as opened:
                return self._passed(iter(lambda: opened.read(IN_MEMORY_BYTES), b""))
        except BodyMissing:
            return None

    def _bucket(self, place: str) -> Fetch:
        bodies = S3Bodies(*split_s3(place))

        def fetch(name: str) -> Body:
            with bodies._telling(name):
                return self._passed(map(bytes, bodies._store.get(name).stream(IN_MEMORY_BYTES)))

        return fetch

    def _passed(self, pieces: Iterator[bytes]) -> Body:
        """A small body as it is, a large one as a file."""
        first, second = next(pieces, b""), next(pieces, b"")
        if not second:
            return first
        file, path = tempfile.mkstemp(dir=self._passing.name)
        with open(file, "wb") as opened:
            opened.writelines((first, second))
            opened.writelines(pieces)
        return Path(path)


def _folder(place: str) -> Fetch:
    root = Path(place).resolve()
    if not root.is_dir():
        raise InvalidOption(f"{place} is not a folder", hint="name the folder that holds the bodies")

    def fetch(name: str) -> Body:
        path = Path(os.path.normpath(root / name.lstrip("/")))
        if not path.is_relative_to(root) or not path.is_file():
            raise BodyMissing(name, str(root))
        return path if path.stat().st_size > IN_MEMORY_BYTES else path.read_bytes()

    return fetch
