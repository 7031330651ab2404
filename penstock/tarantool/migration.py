"""Move a MiniToolStream out of its Tarantool, into a stream of a store.

A message keeps its sequence: it is written at the offset that belongs to it, and numbers that nobody has any
more are filled with messages without a key, which are not of the stream. So the end of the topic says how far
a migration has come, and one that was killed at any moment goes on there: nothing twice, nothing lost. Times
are kept too, by a clock that goes as the messages did. Where each subject counted for itself, messages are
numbered anew in the order of their times.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from penstock.clock import NANOSECONDS, Clock
from penstock.errors import ConflictError
from penstock.store import Store, Topic, open_store
from penstock.streams.engine import Publication
from penstock.streams.message_rows import stored_headers
from penstock.streams.stream import Stream
from penstock.streams.subjects import EVERYTHING
from penstock.tarantool.old_stream import Body, OldBodies, OldMessage, OldStream
from penstock.topic.retention import trim_to


class SequencePlan:
    """Which message gets which sequence, where they keep theirs."""

    def __init__(self, source: OldStream) -> None:
        self._source = source
        self.positions = source.positions()
        self.last = source.last_sequence(self.positions)

    def parts(self, end: int, at_once: int = 1) -> Iterator[list[OldMessage]]:
        """Messages behind the sequence `end`, some at a time, by sequence."""
        messages = self._source.messages(end)
        while part := list(islice(messages, at_once)):
            yield part

    def get(self, sequence: int) -> OldMessage | None:
        """Return the old message of that sequence, or None."""
        return self._source.get(sequence)


class _RenumberedPlan(SequencePlan):
    """Messages whose subjects each counted for themselves, numbered anew in the order of their times."""

    def __init__(self, source: OldStream) -> None:
        found = sorted(source.messages(), key=lambda each: (each.subject, each.sequence))
        ordered: list[tuple[int, OldMessage]] = []
        for _, of_subject in groupby(found, key=lambda each: each.subject):
            latest = 0
            for each in of_subject:
                latest = max(latest, each.create_at)  # a subject's own order counts more than its times
                ordered.append((latest, each))
        ordered.sort(key=lambda each: (each[0], each[1].subject, each[1].sequence))
        self._messages = [_numbered(each, place) for place, (_, each) in enumerate(ordered, 1)]
        self.last = len(self._messages)
        self.positions = [
            (durable, subject, self._moved(subject, last, ordered))
            for durable, subject, last in source.positions()
        ]

    def parts(self, end: int, at_once: int = 1) -> Iterator[list[OldMessage]]:
        for first in range(end, len(self._messages), at_once):
            yield self._messages[first : first + at_once]

    def get(self, sequence: int) -> OldMessage | None:
        return self._messages[sequence - 1] if sequence <= len(self._messages) else None

    def _moved(self, subject: str, last: int, ordered: Sequence[tuple[int, OldMessage]]) -> int:
        """The new sequence of the last message that was read."""
        read = (
            place
            for place, (_, each) in enumerate(ordered, 1)
            if each.subject == subject and each.sequence <= last
        )
        return max(read, default=0)


def planned(source: OldStream) -> SequencePlan:
    """The plan for a source."""
    return SequencePlan(source) if source.is_global else _RenumberedPlan(source)


def _numbered(message: OldMessage, sequence: int) -> OldMessage:
    return OldMessage(
        sequence, message.subject, message.object_name, message.create_at, message.headers, message.body,
        message.digest,
    )  # fmt: skip


#: Messages that are read at a time, with and without bodies, and numbers that are filled at a time.
_AT_ONCE, _BODIES_AT_ONCE, _FILLED_AT_ONCE = 500, 64, 10_000

Progress = Callable[[int, int], None]


@dataclass
class Migrated:
    """What a migration did, or, for a dry run, would do."""

    stream: str
    layout: str
    #: In the source, and of those the ones that an earlier run had brought over.
    messages: int
    already: int = 0
    #: Written by this run.
    written: int = 0
    consumers: int = 0
    #: Numbers below the last sequence that no message has: filled, so that the others keep theirs.
    numbers_filled: int = 0
    last_sequence: int = 0
    #: Each subject counted for itself: messages have new sequences, and positions were moved along.
    renumbered: bool = False
    bodies_copied: int = 0
    #: Names of bodies that were not there; their messages were brought over without.
    bodies_missing: list[str] = field(default_factory=list)
    is_dry_run: bool = False


def survey(source: OldStream, name: str) -> Migrated:
    """What there is to migrate; nothing is written."""
    positions = source.positions()
    last = source.last_sequence(positions) if source.is_global else source.count
    return Migrated(
        stream=name, layout=source.layout, messages=source.count, consumers=len(positions),
        last_sequence=last, numbers_filled=last - source.count, renumbered=not source.is_global,
        is_dry_run=True,
    )  # fmt: skip


def migrate(
    source: OldStream, path: str | os.PathLike[str], name: str, *, bodies: str | None = None,
    on_progress: Progress | None = None, **options: Any,
) -> Migrated:  # fmt: skip
    """Bring everything into the stream `name` of the store at `path`.

    Run it again to go on where it was killed, or for what is new. The store is had exclusively meanwhile.
    `bodies` is where bodies are (`s3://bucket/prefix`, or a folder), to be copied into the stream; without it
    messages only name them. `options` are those of the topic; a new one keeps messages for ever unless they
    say otherwise.
    """
    plan, clock = planned(source), _SourceClock()
    copied = OldBodies(bodies) if bodies is not None else None
    try:
        with open_store(path, exclusive=True, clock=clock) as store:
            stream = _stream(store, name, options, clock, plan, copied)
            target = _Target(stream, store.topic(name), clock, plan, copied)
            done = target.begin(survey(source, name))
            for part in plan.parts(target.end, _AT_ONCE if copied is None else _BODIES_AT_ONCE):
                target.write(part)
                if on_progress is not None:
                    on_progress(done.already + done.written, done.messages)
            target.finish()
    finally:
        if copied is not None:
            copied.close()
    return done


class _SourceClock(Clock):
    """Goes as the messages did: it shows the time of the one that is being written."""

    def __init__(self) -> None:
        self.seconds = 0

    def now_ns(self) -> int:
        return self.seconds * NANOSECONDS if self.seconds else Clock.now_ns()


def _stream(
    store: Store,
    name: str,
    options: dict[str, Any],
    clock: _SourceClock,
    plan: SequencePlan,
    bodies: OldBodies | None,
) -> Stream:
    """The stream that is written to; a new one begins when its first message did."""
    first = next(plan.parts(0), None)
    clock.seconds = first[0].create_at if first else 0
    if name not in [topic.name for topic in store.topics()]:
        options = {"retention": None, "payloads": None if bodies is None else "files", **options}
    return store.stream(name, **options)


class _Target:
    """The stream that is written to."""

    def __init__(
        self, stream: Stream, topic: Topic, clock: _SourceClock, plan: SequencePlan, bodies: OldBodies | None
    ) -> None:
        self._engine = stream.engine
        self._topic = topic
        self._clock = clock
        self._plan = plan
        self._bodies = bodies

    @property
    def end(self) -> int:
        """The last sequence that is taken, by a message or by nobody."""
        return self._engine.last()

    def begin(self, found: Migrated) -> Migrated:
        """Make sure that what is there came from the same source, and say how much it is."""
        latest = self._engine.latest(EVERYTHING)
        row = self._engine.get(latest) if latest else None
        if row is not None:
            self._clock.seconds = max(self._clock.seconds, row[4])
            before = self._plan.get(latest)
            if self.end < self._plan.last and (
                before is None or (before.subject, _name(before)) != (row[3], row[2])
            ):
                raise ConflictError(
                    f"stream {found.stream!r} holds messages that are not of this source, such as {latest}",
                    hint="migrate into a new stream",
                )
        found.already = self._engine.count(EVERYTHING)
        found.is_dry_run = False
        found.numbers_filled = 0
        self._done = found
        return found

    def write(self, messages: Sequence[OldMessage]) -> None:
        """Write messages, each at the place of its sequence; small ones of one second together."""
        items = zip(messages, self._values(messages), strict=True)
        for (created, is_file), run in groupby(
            items, key=lambda each: (each[0].create_at, _is_file(each[1]))
        ):
            self._clock.seconds = max(self._clock.seconds, created)
            for together in [[item] for item in run] if is_file else [list(run)]:
                self._fill_far(together[0][0].sequence - 1)
                self._write_together(together)
                self._done.written += len(together)

    def _write_together(self, items: Sequence[tuple[OldMessage, Body | None]]) -> None:
        """Write messages in one call, with fillers that are no messages where sequences are missing."""
        message, value = items[0]
        if isinstance(value, Path):
            self._fill(message.sequence - 1)
            self._topic.write(value, key=message.subject, headers=_headers(message, value))
            if self._bodies is not None:
                self._bodies.done(value)
            return
        values: list[Any] = []
        keys: list[Any] = []
        headers: list[Any] = []
        end = self.end
        for message, value in items:
            missing = message.sequence - 1 - end - len(values)
            self._done.numbers_filled += missing
            values += [*[None] * missing, value or b""]
            keys += [*[None] * missing, message.subject]
            headers += [*[None] * missing, _headers(message, value)]
        self._topic.write_many(values, keys=keys, headers=headers)

    def finish(self) -> None:
        """Let no number be given again that the source gave, and bring consumers to where they were."""
        self._fill(self._plan.last)
        self._trim()
        for durable, subject, last in self._plan.positions:
            self._engine.advance(durable, subject, last)

    def _fill_far(self, sequence: int) -> None:
        """Fill the gap, unless it is so small that it can be written along with the messages."""
        if sequence - self.end > _AT_ONCE:
            self._fill(sequence)

    def _fill(self, sequence: int) -> None:
        """Use up sequences, so that the one behind `sequence` is given next."""
        missing = sequence - self.end
        self._done.numbers_filled += missing
        while missing:
            count = min(missing, _FILLED_AT_ONCE)
            self._topic.write_many([None] * count)
            missing -= count

    def _trim(self) -> None:
        """Remove the fillers that lie before the first message."""
        firsts = [each.first_sequence for each in self._engine.subjects(EVERYTHING)]
        topic = self._topic.open_topic
        log = topic.log(0)
        with log.folder.housekeeping() as alone:
            if alone and firsts:
                trim_to(topic, log, min(firsts) - 1, topic.clock.now_ns())

    def _values(self, messages: Sequence[OldMessage]) -> list[Body | None]:
        """The bodies of messages; None where the message only names it."""
        if self._bodies is None:  # no file among them
            return [
                message.body if message.body is not None or message.object_name else b""
                for message in messages
            ]
        found = self._bodies.fetch(messages)
        for message, body in zip(messages, found, strict=True):
            if body is None:
                self._done.bodies_missing.append(message.object_name)
            elif message.object_name:
                self._done.bodies_copied += 1
        return found


def _is_file(body: Body | None) -> bool:
    return isinstance(body, Path)


def _headers(message: OldMessage, body: Body | None) -> Any:
    name = message.object_name or None
    return stored_headers(Publication(message.subject, body, message.headers, name))


def _name(message: OldMessage) -> str:
    return message.object_name or f"{message.subject}_{message.sequence}"
