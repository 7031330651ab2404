"""The way of a stream's messages into its topic: one at a time, or side by side in frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.errors import InvalidOption, PenstockError
from penstock.headers import checked_headers
from penstock.keys import checked_key
from penstock.log.frame_encode import FRAME_BYTES, MessageColumns
from penstock.message import Headers, Receipt
from penstock.streams.engine import Publication
from penstock.streams.message_rows import body_of, read_body, stored_headers
from penstock.topic.open_topic import OpenTopic
from penstock.topic.value_codec import checked_value
from penstock.topic.write_batch import WriteBatch

#: `publish_many` stores so many messages, or bytes, as one frame, which is there or not.
_TOGETHER_MESSAGES, _TOGETHER_BYTES = 1000, FRAME_BYTES // 4


class Writes(Protocol):
    """What is asked of the topic."""

    @property
    def open_topic(self) -> OpenTopic:
        """The topic's engine."""

    def write(self, value: Any, *, key: Any = None, headers: Any = None) -> Receipt:
        """Write one message."""


class _Ready(NamedTuple):
    """A message as it is stored; `place` says which of the call it is."""

    place: int
    value: bytes
    key: bytes
    headers: Headers | None

    @property
    def size(self) -> int:
        return len(self.value) + len(self.key) + sum(len(n) + len(v) for n, v in (self.headers or {}).items())


class Publisher:
    """The way into one stream's topic."""

    def __init__(self, topic: Writes) -> None:
        self._topic = topic
        self.open_topic = topic.open_topic

    def publish(self, message: Publication) -> int:
        """Store a message; its sequence."""
        if not self._is_plain(message):
            return self._written(message)
        value, key, headers = self._checked(message)
        columns = MessageColumns((value,), (key,), None if headers is None else (headers,))
        return self.open_topic.write(WriteBatch(columns))[0].first + 1

    def publish_many(self, messages: Sequence[Publication]) -> list[int | PenstockError]:
        """Store messages side by side, each on its own: its sequence, or why it was not stored."""
        results: dict[int, int | PenstockError] = {}
        ready: list[_Ready] = []
        for place, message in enumerate(messages):
            try:
                if self._is_plain(message):
                    ready.append(_Ready(place, *self._checked(message)))
                    continue
                # Those before it are stored before it: sequences have the order of the call.
                results.update(self._stored(ready))
                ready = []
                results[place] = self._written(message)
            except PenstockError as error:
                results[place] = error
        results.update(self._stored(ready))
        return [results[place] for place in range(len(messages))]

    def _is_plain(self, message: Publication) -> bool:
        """Whether it lies in the log itself, and nothing is to be chosen or refused."""
        topic, data = self.open_topic, message.data
        options = topic.record.options
        if options.codecs or topic.read_only:
            return False
        if data is None:
            return True
        if isinstance(data, (bytes, bytearray, memoryview, str)):
            return len(data) * (4 if isinstance(data, str) else 1) <= options.inline_bytes
        return False

    def _checked(self, message: Publication) -> tuple[bytes, bytes, Headers | None]:
        """Value, key and headers of a plain message, as they are stored."""
        data = message.data
        value = b"" if data is None else checked_value(body_of(data), self.open_topic.options.inline_bytes)
        return value or b"", checked_key(message.subject) or b"", checked_headers(stored_headers(message))

    def _stored(self, ready: Sequence[_Ready]) -> Iterator[tuple[int, int | PenstockError]]:
        """What became of each of them."""
        for together in _frames(ready):
            headers = [each.headers for each in together]
            columns = MessageColumns(
                [each.value for each in together], [each.key for each in together],
                headers if any(headers) else None,
            )  # fmt: skip
            try:
                first = self.open_topic.write(WriteBatch(columns))[0].first + 1
            except PenstockError as error:
                yield from ((each.place, error) for each in together)
            else:
                yield from ((each.place, first + number) for number, each in enumerate(together))

    def _written(self, message: Publication) -> int:
        value = body_of(message.data)
        if isinstance(value, Path) and not value.is_file():
            raise InvalidOption(f"there is no file {value}")
        if not isinstance(value, (bytes, str)) and not self.open_topic.bodies.takes_bodies:
            value = read_body(value, self.open_topic.options.max_message_bytes)
        return self._topic.write(value, key=message.subject, headers=stored_headers(message)).offset + 1


def _frames(ready: Sequence[_Ready]) -> Iterator[list[_Ready]]:
    """Neighbours that are stored as one frame."""
    together: list[_Ready] = []
    size = 0
    for each in ready:
        if together and (len(together) == _TOGETHER_MESSAGES or size + each.size > _TOGETHER_BYTES):
            yield together
            together, size = [], 0
        together.append(each)
        size += each.size
    if together:
        yield together
