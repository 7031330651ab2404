"""Bodies of an embedded stream by their names: stored where others find them, and opened by any name.

A body that its publisher gives a name lies in the stream's place for bodies, exactly under that name, if the
stream has such a place; else in the log, with its name among its headers. A body without a name is called
after its message: `orders_16`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import BinaryIO, Protocol

from penstock.errors import BodyMissing, InvalidOption
from penstock.log.log import Log
from penstock.payloads.store import BodyStore
from penstock.streams.engine import Publication, StreamMessage
from penstock.streams.message_rows import rows_of
from penstock.streams.subjects import EVERYTHING, SubjectQuery, own_sequence
from penstock.topic.open_topic import OpenTopic

#: So many messages are looked at together for a name.
_AT_ONCE = 1000


class _Messages(Protocol):
    """What is asked of the engine."""

    open_topic: OpenTopic

    def messages(self, asked: SubjectQuery, start: int, limit: int) -> list[StreamMessage]: ...


class NamedBodies:
    """The bodies of one stream, by name."""

    def __init__(self, engine: _Messages, elsewhere: BodyStore | None) -> None:
        self._engine = engine
        #: Where bodies lie that have names.
        self._elsewhere = elsewhere

    def placed(self, message: Publication) -> Publication:
        """A message that is ready to be published: the body that it names was stored under that name."""
        if self._elsewhere is None or message.object_name is None or message.data is None:
            return message
        data, kind = message.data, (message.headers or {}).get("content-type")
        try:
            body = data.encode() if isinstance(data, str) else data
            self._elsewhere.put(message.object_name, body, content_type=kind)
        except (OSError, UnicodeEncodeError) as error:
            raise InvalidOption(f"the body cannot be read: {error}") from error
        return message._replace(data=None)

    def open(self, name: str) -> BinaryIO:
        """The body of that name; `BodyMissing` when there is none."""
        if self._elsewhere is not None:
            with suppress(BodyMissing):
                return self._elsewhere.open(name)
        sequence = own_sequence(name) or self._sequence_of(name)
        found = [] if sequence is None else self._engine.messages(EVERYTHING, sequence, 1)
        if not found or found[0].object_name != name:
            raise BodyMissing(name, f"stream {self._engine.open_topic.name!r}")
        return found[0].open()

    def _sequence_of(self, name: str) -> int | None:
        """The newest message whose body has that name and lies in the log."""
        log: Log = self._engine.open_topic.log(0)
        bounds = log.bounds()
        for stop in range(bounds.end, bounds.start, -_AT_ONCE):
            rows = rows_of(log.keys.facts(range(max(bounds.start, stop - _AT_ONCE), stop)))
            for row in reversed(rows):
                if row[2] == name:
                    return row[0]
        return None
