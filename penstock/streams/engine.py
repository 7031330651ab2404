"""What keeps a stream: the least that an engine does, from which `Stream` builds everything else.

The embedded engine keeps messages in a topic of the store, the Tarantool engine in a Tarantool instance.
Arguments were checked by `Stream`; an engine raises only for what it alone can know.

Sequences begin with 1, grow, are given at the commit, and never again: not after everything expired, not
after a restart. A reader that sees a sequence sees all smaller ones that will ever be there.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, TypedDict

import msgspec

from penstock.errors import PenstockError
from penstock.parse import utc
from penstock.streams.subjects import SubjectQuery

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
        """The body as an open file, to be closed by the caller; memory does not grow with its size."""
        return io.BytesIO(self._body) if isinstance(self._body, bytes) else self._body()

    def __repr__(self) -> str:
        return f"<StreamMessage {self.sequence} of {self.subject!r}: {self.object_name!r}>"


#: What a message may carry: bytes, text as its UTF-8, a file by its path, something open, or nothing.
Data = bytes | bytearray | memoryview | str | Path | BinaryIO | None
#: The types of `Data`, for `isinstance`; what is open has `read`.
DATA_TYPES = (bytes, bytearray, memoryview, str, Path, type(None))

#: A message as the eight functions give it: sequence, headers, object_name, subject, create_at.
Row = tuple[int, dict[str, str], str, str, int]


class Publication(NamedTuple):
    """A message that is to be published."""

    subject: str
    #: The body. None with an `object_name` says that the body lies elsewhere under that name.
    data: Data = None
    headers: Mapping[str, str] | None = None
    object_name: str | None = None


class Deleted(TypedDict):
    """A message that was deleted: what one needs to delete its body."""

    sequence: int
    subject: str
    object_name: str


class SubjectFacts(NamedTuple):
    """A subject in numbers."""

    subject: str
    messages: int
    first_sequence: int
    latest_sequence: int


class Ttl(NamedTuple):
    """How long messages live, as it is kept with the stream."""

    enabled: bool = False
    default_s: float = 86400.0
    check_interval_s: float = 3600.0
    #: By subject or pattern ("images.*"); the longest one that takes a subject counts.
    channels: Mapping[str, float] = {}


class StreamWatch(Protocol):
    """A context in which a caller is rung when there may be something new."""

    @property
    def pause_s(self) -> float:
        """How long one may wait for a ring before looking again."""


class StreamEngine(Protocol):
    """A stream's messages and positions; used by many threads at once."""

    @property
    def name(self) -> str:
        """The stream's name."""

    def publish(self, message: Publication) -> int:
        """Store the body, then the message; its sequence, once it would survive what the stream promises."""

    def publish_many(self, messages: Sequence[Publication]) -> list[int | PenstockError]:
        """Store several messages, each on its own: its sequence, or why it was not stored."""

    def get(self, sequence: int) -> Row | None:
        """The message of that sequence; None when there is none, any more or yet."""

    def rows(self, asked: SubjectQuery, start: int, limit: int) -> list[Row]:
        """Messages of the subjects asked for, from `start` on, ascending, at most `limit`."""

    def messages(self, asked: SubjectQuery, start: int, limit: int) -> list[StreamMessage]:
        """Messages as `rows` finds them, with their bodies, which are loaded when they are looked at."""

    def open_object(self, name: str) -> BinaryIO:
        """The body of that name, given or of our own making; `BodyMissing` when there is none."""

    def latest(self, asked: SubjectQuery) -> int:
        """The newest sequence that is there of the subjects asked for; 0 when there is none."""

    def last(self) -> int:
        """The last sequence ever given, also when its message is gone; 0 before the first."""

    def count(self, asked: SubjectQuery, after: int = 0) -> int:
        """How many messages there are of the subjects asked for with a sequence over `after`; exact."""

    def subjects(self, asked: SubjectQuery) -> list[SubjectFacts]:
        """The subjects asked for that have messages, by name."""

    def position(self, durable: str, subject: str) -> int:
        """The last sequence that a durable consumer has read; 0 when it never said."""

    def set_position(self, durable: str, subject: str, sequence: int) -> None:
        """Put a durable consumer anywhere."""

    def advance(self, durable: str, subject: str, sequence: int) -> bool:
        """Put a durable consumer forward, in one step; False when it stands there or further already."""

    def positions(self, subject: str | None = None) -> list[tuple[str, str, int]]:
        """(durable, subject, last sequence) of one subject's consumers or of all, by subject and name."""

    def forget(self, durable: str, subject: str | None = None) -> int:
        """Drop a durable consumer's position, or all it has; how many there were."""

    def delete(self, age_s: float) -> list[Deleted]:
        """Delete messages that are as old as that or older, and say which, ascending; bodies come after."""

    def sweep(self) -> list[Deleted]:
        """Delete what the TTL says, and say which."""

    def ttl(self) -> Ttl:
        """How long messages live."""

    def set_ttl(self, ttl: Ttl) -> None:
        """Change how long messages live, for all who have the stream open."""

    def watching(self, ring: Callable[[], None]) -> AbstractContextManager[StreamWatch]:
        """Have `ring` called, from any thread, soon after something was published, and at the close."""

    def help(self) -> None:
        """Finish what a dead process left; callers that wait call this about once a second."""
