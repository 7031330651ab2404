"""A message of a stream, with its body."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime
from typing import BinaryIO

import msgspec

from penstock.options import utc

#: Opens a body that does not lie in the message.
OpenBody = Callable[[], BinaryIO]


class StreamMessage(msgspec.Struct, frozen=True):
    """One message of a stream. Its body is `data`, or read piece by piece from `open()`."""

    subject: str
    sequence: int
    headers: dict[str, str]
    object_name: str
    #: When it was published, in nanoseconds since 1970.
    created_ns: int
    _body: bytes | OpenBody

    @property
    def created_at(self) -> datetime:
        """When it was published (UTC, to the microsecond)."""
        return utc(self.created_ns)

    @property
    def data(self) -> bytes:
        """The whole body; empty when there is none. Raises `DataError` when it cannot be loaded."""
        if isinstance(self._body, bytes):
            return self._body
        with self._body() as body:
            return body.read()

    @property
    def text(self) -> str:
        """The body as UTF-8 text."""
        return self.data.decode()

    def open(self) -> BinaryIO:
        """The body as an open file, to be closed by whoever asked; memory does not grow with its size."""
        return io.BytesIO(self._body) if isinstance(self._body, bytes) else self._body()

    def __repr__(self) -> str:
        return f"<StreamMessage {self.sequence} of {self.subject!r}: {self.object_name!r}>"
