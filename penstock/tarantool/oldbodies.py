"""Bodies where a MiniToolStream's publishers put them: objects of a bucket or files, by plain names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.errors import BodyMissing, InvalidOption
from penstock.payloads.opening import checked_s3, open_bodies
from penstock.payloads.s3 import S3Bodies
from penstock.tarantool.oldrows import OldMessage

#: Bodies that are fetched at the same time.
_AT_ONCE = 16

Fetch = Callable[[str], bytes]


class OldBodies:
    """Where the bodies are: `s3://bucket/prefix`, or a folder. Names are used as they are."""

    def __init__(self, place: str) -> None:
        # Penstock's own are stored under names that are safe everywhere.
        self._own = open_bodies(place)
        self._plain = _bucket(place) if place.startswith("s3://") else _folder(place)

    def fetch(self, messages: Iterable[OldMessage]) -> list[bytes | None]:
        """The bodies of messages, in their order; None for one that is missing."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="penstock-bodies") as threads:
            return list(threads.map(self._body, messages))

    def _body(self, message: OldMessage) -> bytes | None:
        if message.body is not None:
            return message.body
        if not message.object_name:
            return b""
        try:
            return (self._plain if message.digest is None else self._own.get)(message.object_name)
        except BodyMissing:
            return None


def _bucket(place: str) -> Fetch:
    bodies = S3Bodies(*checked_s3(place))

    def fetch(name: str) -> bytes:
        with bodies._telling(name):
            return bytes(bodies._store.get(name).bytes())

    return fetch


def _folder(place: str) -> Fetch:
    root = Path(place).resolve()
    if not root.is_dir():
        raise InvalidOption(f"{place} is not a folder", hint="name the folder that holds the bodies")

    def fetch(name: str) -> bytes:
        path = Path(os.path.normpath(root / name.lstrip("/")))
        if not path.is_relative_to(root) or not path.is_file():
            raise BodyMissing(name, str(root))
        return path.read_bytes()

    return fetch
