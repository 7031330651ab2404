"""Publishing into a stream's topic: one partition, the subject as the key, the body's name as a header.

What needs none of a topic's choices goes straight into the log, in two thirds of the time; everything else
takes `Topic.write`. The sequence is given under the append lock, after all that takes time: whoever sees it
sees all smaller ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.errors import InvalidOption, PenstockError
from penstock.faces.engine import Publication
from penstock.faces.streamrows import body_of, read_body, stored_headers
from penstock.keys import checked_key
from penstock.log import lone
from penstock.log.append import Rerouted
from penstock.log.encode import Draft
from penstock.log.head import HEADERS, KEYS
from penstock.message import Headers, Receipt
from penstock.options import HEADERS_BYTES_MAX
from penstock.topic.checks import checked_headers, checked_value
from penstock.topic.framing import FRAME_BYTES, Outgoing
from penstock.topic.partitions import Partitions

#: `publish_many` stores so many messages, or bytes, as one frame, which is there or not.
_TOGETHER_MESSAGES, _TOGETHER_BYTES = 1000, FRAME_BYTES // 4


class Writes(Protocol):
    """What is asked of the topic."""

    @property
    def _partitions(self) -> Partitions: ...

    def write(self, value: Any, *, key: Any = None, headers: Any = None) -> Receipt: ...


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
        self._partitions = topic._partitions

    def publish(self, message: Publication) -> int:
        """Store a message; its sequence."""
        if not self._is_plain(message):
            return self._written(message)
        draft = self._lone_draft(message)
        if draft is None:
            _, value, key, headers = self._ready(0, message)
            batch = Outgoing((value,), (key,), None if headers is None else (headers,))
            (draft,) = self._partitions.encode(batch)
        first = self._append([draft])
        return self._written(message) if first is None else first

    def publish_many(self, messages: Sequence[Publication]) -> list[int | PenstockError]:
        """Store messages side by side, each on its own: its sequence, or why it was not stored."""
        results: dict[int, int | PenstockError] = {}
        ready: list[_Ready] = []
        for place, message in enumerate(messages):
            try:
                if self._is_plain(message):
                    ready.append(self._ready(place, message))
                    continue
                # Those before it are stored before it: sequences have the order of the call.
                results.update(self._stored(ready, messages))
                ready = []
                results[place] = self._written(message)
            except PenstockError as error:
                results[place] = error
        results.update(self._stored(ready, messages))
        return [results[place] for place in range(len(messages))]

    def _is_plain(self, message: Publication) -> bool:
        """Whether it lies in the log itself, and nothing is to be chosen or refused."""
        partitions, data = self._partitions, message.data
        options = partitions.options
        if options.codecs or partitions.read_only:
            return False
        if isinstance(data, (bytes, bytearray, memoryview, str)):
            return len(data) * (4 if isinstance(data, str) else 1) <= options.inline_bytes
        return data is None

    def _lone_draft(self, message: Publication) -> Draft | None:
        """The frame of one message with headers, without a stop between; None when it needs a closer look."""
        headers, value = stored_headers(message), body_of(message.data)
        if headers is None or not isinstance(value, bytes):
            return None
        partitions = self._partitions
        try:
            parts = lone.parts(value, message.subject.encode(), headers)
        except UnicodeEncodeError:  # said by whoever looks closer
            return None
        if parts is None or sum(map(len, parts)) - len(value) > HEADERS_BYTES_MAX:
            return None
        is_packed = partitions.options.compress is not None
        now = partitions.clock.now_ns()
        return Draft(parts, count=1, flags=KEYS | HEADERS, created=now, compress=is_packed)

    def _ready(self, place: int, message: Publication) -> _Ready:
        value = checked_value(body_of(message.data), self._partitions.options.inline_bytes) or b""
        headers = checked_headers(stored_headers(message))
        return _Ready(place, value, checked_key(message.subject) or b"", headers)

    def _stored(
        self, ready: Sequence[_Ready], messages: Sequence[Publication]
    ) -> Iterator[tuple[int, int | PenstockError]]:
        """What became of each of them."""
        for together in _frames(ready):
            headers = [each.headers for each in together]
            batch = Outgoing(
                [each.value for each in together], [each.key for each in together],
                headers if any(headers) else None,
            )  # fmt: skip
            try:
                first = self._append(self._partitions.encode(batch))
            except PenstockError as error:
                yield from ((each.place, error) for each in together)
                continue
            for number, each in enumerate(together):
                yield each.place, self._written(messages[each.place]) if first is None else first + number

    def _append(self, drafts: list[Draft]) -> int | None:
        """Store a frame; the sequence of its first message, or None when it has to go the long way."""
        partitions = self._partitions
        try:
            appended = partitions.append_drafts(0, drafts, partitions.record.tree)
        except Rerouted:
            return None
        if partitions.options.sync == "disk":
            partitions.log(0).sync(appended)
        return appended.first + 1

    def _written(self, message: Publication) -> int:
        value = body_of(message.data)
        if isinstance(value, Path) and not value.is_file():
            raise InvalidOption(f"there is no file {value}")
        if not isinstance(value, (bytes, str)) and not self._partitions.bodies.takes_bodies:
            value = read_body(value, self._partitions.options.max_message_bytes)
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
