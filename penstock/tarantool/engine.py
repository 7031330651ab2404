"""A stream in Tarantool: messages and positions there, bodies in a place for bodies.

The body is stored first, then its message in one call that gives it its sequence. Deleting goes the other
way: messages first, noted until their bodies are gone too, so that a crash in between leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import io
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any, BinaryIO

from penstock.clock import NANOSECONDS, Clock
from penstock.errors import BodyMissing, DataError, InvalidOption, PenstockError, Unavailable
from penstock.payloads.store import BodyStore
from penstock.streams.engine import (
    Data,
    Deleted,
    Publication,
    Row,
    StreamMessage,
    StreamWatch,
    SubjectFacts,
    Ttl,
)
from penstock.streams.subjects import EVERYTHING, SubjectQuery, own_sequence
from penstock.streams.ttl import lives
from penstock.tarantool.connection import Link
from penstock.wake import LOOK_AGAIN_S

#: The digest of a body travels with its message, among its headers; those who read a stream do not see it.
DIGEST_HEADER = "penstock-sha256"


class TarantoolBodies:
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
        """Open a body to be read; one that is read to its end is checked against what was stored."""
        body = self.store.open(object_name)
        return body if digest is None else io.BufferedReader(_Checked(body, object_name, digest))

    def delete(self, names: list[str]) -> None:
        """Remove bodies; messages that had none are skipped."""
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


#: One call waits so long; then the next one does.
_WAIT_S = 10.0


class NewsWatcher:
    """Somebody waits, and is rung."""

    pause_s = LOOK_AGAIN_S


class NewsWatch:
    """Rings all waiting threads when a message was published, by any process."""

    def __init__(self, link: Link, function: str) -> None:
        self._link = link
        self._function = function
        self._rings: list[Callable[[], None]] = []
        self._mutex = threading.Lock()
        self._round = 0

    @contextmanager
    def watching(self, ring: Callable[[], None]) -> Iterator[StreamWatch]:
        """Have `ring` called soon after something was published."""
        with self._mutex:
            self._rings.append(ring)
            if len(self._rings) == 1:
                self._round += 1
                self._link.start(self._listen(self._round))
        try:
            yield NewsWatcher()
        finally:
            with self._mutex:
                self._rings.remove(ring)

    def _ring(self) -> None:
        with self._mutex:
            rings = list(self._rings)
        for ring in rings:
            ring()

    async def _listen(self, round: int) -> None:
        """Listen until nobody waits any more, or a later thread listens."""
        seen = -1
        while self._rings and self._round == round:
            try:
                found = await self._link.called(self._function, max(seen, 0), _WAIT_S, waits_s=_WAIT_S)
            except PenstockError:
                await asyncio.sleep(LOOK_AGAIN_S)  # those who wait look for themselves, and are told
                continue
            if found > seen:
                seen = found
                self._ring()


#: So many are asked for or deleted by one call: more would keep others waiting.
_AT_ONCE = 1000


class TarantoolEngine:
    """One stream; made by `Tarantool.open`. Any number of threads may use it."""

    def __init__(
        self, link: Link, prefix: str, name: str, bodies: TarantoolBodies, clock: Clock | None = None
    ) -> None:
        self._link = link
        self._own = f"{prefix}penstock."
        self._name = name
        self._bodies = bodies
        self._clock = clock
        self._news = NewsWatch(link, f"{self._own}wait")

    @property
    def name(self) -> str:
        """The stream's name."""
        return self._name

    def publish(self, message: Publication) -> int:
        """Store the body, then the message; its sequence, once Tarantool's WAL has it."""
        name, headers = self._bodies.put(message.data, message.object_name, message.headers)
        try:
            return int(self._write("publish", message.subject, name, headers, self._seconds()))
        except Unavailable:
            raise  # it may have been stored, and then needs its body
        except PenstockError:
            if message.object_name is None:
                self._bodies.delete([name])
            raise

    def publish_many(self, messages: Sequence[Publication]) -> list[int | PenstockError]:
        """Publish several, each on its own: its sequence, or why it was not stored."""
        results: list[int | PenstockError | None] = [None] * len(messages)
        items = []
        for place, message in enumerate(messages):
            try:
                name, headers = self._bodies.put(message.data, message.object_name, message.headers)
                items.append((place, [message.subject, name, headers]))
            except PenstockError as error:
                results[place] = error
        for first in range(0, len(items), _AT_ONCE):
            part = items[first : first + _AT_ONCE]
            for (place, _), result in zip(part, self._published([item for _, item in part]), strict=True):
                results[place] = result
        return [result for result in results if result is not None]

    def get(self, sequence: int) -> Row | None:
        """The message of that sequence; None when there is none, any more or yet."""
        found = self._read("get", sequence)
        return None if found is None else _row(found)

    def rows(self, asked: SubjectQuery, start: int, limit: int) -> list[Row]:
        """Messages of the subjects asked for, from `start` on, ascending, at most `limit`."""
        return [_row(found) for found in self._found(asked, start, limit)]

    def messages(self, asked: SubjectQuery, start: int, limit: int) -> list[StreamMessage]:
        """Return messages with their bodies, which are loaded when they are looked at."""
        return [self._message(found) for found in self._found(asked, start, limit)]

    def open_object(self, name: str) -> BinaryIO:
        """The body of that name, given or of our own making; `BodyMissing` when there is none."""
        try:
            return self._bodies.open(name, None)
        except BodyMissing:
            sequence = own_sequence(name)
            if sequence is None or (row := self.get(sequence)) is None or row[2] != name:
                raise
            return io.BytesIO()  # only a message without a body is called so

    def latest(self, asked: SubjectQuery) -> int:
        """The newest sequence that is there of the subjects asked for; 0 when there is none."""
        return int(self._read("latest", *asked))

    def last(self) -> int:
        """The last sequence ever given, also when its message is gone; 0 before the first."""
        return int(self._read("last"))

    def count(self, asked: SubjectQuery, after: int = 0) -> int:
        """How many messages there are of the subjects asked for with a sequence over `after`; exact."""
        return int(self._read("count", *asked, after))

    def subjects(self, asked: SubjectQuery) -> list[SubjectFacts]:
        """The subjects asked for that have messages, by name."""
        return [SubjectFacts(*found) for found in self._read("subjects", *asked)]

    def position(self, durable: str, subject: str) -> int:
        """The last sequence that a durable consumer has read; 0 when it never said."""
        return int(self._read("position", durable, subject))

    def set_position(self, durable: str, subject: str, sequence: int) -> None:
        """Put a durable consumer anywhere."""
        self._read("move", durable, subject, sequence)

    def advance(self, durable: str, subject: str, sequence: int) -> bool:
        """Put a durable consumer forward, in one step; False when it stands there or further already."""
        return bool(self._write("advance", durable, subject, sequence))

    def positions(self, subject: str | None = None) -> list[tuple[str, str, int]]:
        """(durable, subject, last sequence) of one subject's consumers or of all, by subject and name."""
        if subject is not None:
            found = self._read("consumers_of", subject)
        else:
            found = part = self._read("consumers", None, _AT_ONCE)
            while len(part) == _AT_ONCE:
                part = self._read("consumers", part[-1][:2], _AT_ONCE)
                found = [*found, *part]
        return sorted(((each[0], each[1], each[2]) for each in found), key=lambda each: (each[1], each[0]))

    def forget(self, durable: str, subject: str | None = None) -> int:
        """Drop a durable consumer's position, or all it has; how many there were."""
        return int(self._write("drop_consumer", durable, subject))

    def delete(self, age_s: float) -> list[Deleted]:
        """Delete messages that are as old as that or older, and their bodies; which, ascending."""
        return self._expire([(EVERYTHING, age_s)])

    def sweep(self) -> list[Deleted]:
        """Delete what the TTL says, and say which."""
        return self._expire(lives(self.ttl()))

    def ttl(self) -> Ttl:
        """How long messages live."""
        found = self._read("setting", "ttl")
        return Ttl() if found is None else Ttl(**found)

    def set_ttl(self, ttl: Ttl) -> None:
        """Change it, for all who have the stream open."""
        self._read("set", "ttl", {**ttl._asdict(), "channels": dict(ttl.channels)})

    def watching(self, ring: Callable[[], None]) -> AbstractContextManager[StreamWatch]:
        """Have `ring` called, from any thread, soon after something was published, and at the close."""
        return self._news.watching(ring)

    def help(self) -> None:
        """Do nothing: a dead process leaves nothing to finish here."""

    # Calls. Those that may be made twice are, when the connection broke.

    def _read(self, function: str, *arguments: Any) -> Any:
        return self._link.call(self._own + function, *arguments)

    def _write(self, function: str, *arguments: Any) -> Any:
        return self._link.call(self._own + function, *arguments, again=False)

    def _found(self, asked: SubjectQuery, start: int, limit: int) -> list[Any]:
        """Rows as they come; a large answer is asked for in parts."""
        found = part = self._read("rows", *asked, start, min(limit, _AT_ONCE))
        while len(part) == _AT_ONCE and len(found) < limit:
            part = self._read("rows", *asked, part[-1][0] + 1, min(limit - len(found), _AT_ONCE))
            found = [*found, *part]
        return list(found)

    def _published(self, items: list[Any]) -> Sequence[int | PenstockError]:
        """Publish all of them or none."""
        try:
            return list(self._write("publish_many", items, self._seconds()))
        except PenstockError as error:
            return [error] * len(items)

    def _message(self, found: Any) -> StreamMessage:
        digest = found[1].get(DIGEST_HEADER)
        body = partial(self._bodies.open, found[2], digest) if found[2] else b""
        sequence, headers, object_name, subject, create_at = _row(found)
        return StreamMessage(subject, sequence, headers, object_name, create_at * NANOSECONDS, body)

    def _expire(self, chosen: list[tuple[SubjectQuery, float]]) -> list[Deleted]:
        """Batch by batch; what an earlier one that died left behind goes first."""
        self._remove_bodies()
        deleted: list[Deleted] = []
        wanted = [[*asked, life_s] for asked, life_s in chosen]
        while part := self._write("expire", wanted, _AT_ONCE, self._seconds()):
            deleted += [_deleted(*each) for each in part]
            self._remove_bodies()
        return sorted(deleted, key=lambda each: each["sequence"])

    def _remove_bodies(self) -> None:
        """Bodies of messages that were deleted; forgotten only when they are gone."""
        while part := self._read("leftovers", _AT_ONCE):
            self._bodies.delete([each[2] for each in part])
            self._read("forget", [each[0] for each in part])

    def _seconds(self) -> int | None:
        """The time, where a clock was given; else Tarantool's own counts."""
        return None if self._clock is None else self._clock.now_ns() // NANOSECONDS


def _row(found: Any) -> Row:
    sequence, headers, object_name, subject, create_at = found
    headers.pop(DIGEST_HEADER, None)
    return (sequence, headers, object_name or _no_body(subject, sequence), subject, create_at)


def _deleted(sequence: int, subject: str, object_name: str) -> Deleted:
    name = object_name or _no_body(subject, sequence)
    return Deleted(sequence=sequence, subject=subject, object_name=name)


def _no_body(subject: str, sequence: int) -> str:
    """What the body of a message is called that has none; the same name as in an embedded stream."""
    return f"{subject}_{sequence}"
