"""Bodies of messages whose metadata is in Tarantool: how they are named, and how they are read."""

from __future__ import annotations

import io
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import BinaryIO

from penstock.errors import DataError, InvalidOption
from penstock.faces.engine import Data
from penstock.payloads.stores import BodyStore

#: The digest of a body travels with its message, among its headers; those who read a stream do not see it.
DIGEST_HEADER = "penstock-sha256"


class Bodies:
    """The bodies of one stream, in a place of its own."""

    def __init__(self, store: BodyStore) -> None:
        self.store = store

    def put(
        self, data: Data, object_name: str | None, headers: Mapping[str, str] | None
    ) -> tuple[str, dict[str, str]]:
        """Store a body; the name it got, and the headers its message has in Tarantool."""
        headers = dict(headers or {})
        if data is None:
            return object_name or "", headers
        name = object_name or _new_name()
        body = data.encode() if isinstance(data, str) else data
        try:
            stored = self.store.put(name, body, content_type=headers.get("content-type"))
        except OSError as error:
            raise InvalidOption(f"the body cannot be stored: {error}") from error
        return name, {**headers, DIGEST_HEADER: stored.sha256.hex()}

    def open(self, object_name: str, digest: str | None) -> BinaryIO:
        """A body to be read; whoever reads it to its end knows that it is the one that was stored."""
        body = self.store.open(object_name)
        return body if digest is None else io.BufferedReader(_Checked(body, object_name, digest))

    def delete(self, names: list[str]) -> None:
        """Remove bodies; those of messages that had none are passed over."""
        self.store.delete([name for name in names if name])


class _Checked(io.RawIOBase):
    """A body that compares its digest when it ends."""

    def __init__(self, body: BinaryIO, name: str, digest: str) -> None:
        self._body = body
        self._name = name
        self._wanted = digest
        self._found = sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        piece = self._body.read(len(buffer))
        if not piece and self._found.hexdigest() != self._wanted:
            raise DataError(
                f"body {self._name!r} is not the one that was stored: its digest differs",
                hint="it was changed or damaged; the messages around it can be read",
            )
        self._found.update(piece)
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self._body.close()
        super().close()


def _new_name() -> str:
    """A name nobody has had, by day, so that a place can be looked through day by day."""
    return f"{datetime.now(UTC):%Y/%m/%d}/{uuid.uuid4().hex}"
