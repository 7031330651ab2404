"""Keep partitions shut to a reader until it, or its consumer, is done with their parents."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from penstock.consume.partition import HeldPartition, Key
from penstock.consume.readable import Readable, is_open, readable
from penstock.consume.waiting_view import anything_waits
from penstock.errors import Corrupt, OffsetTrimmed
from penstock.log.log import Log
from penstock.topic.open_topic import OpenTopic

#: For how long a message that was seen in the log is taken to be there still: retention may take it.
_SEEN_S = 1.0


class Gates:
    """Opens partitions to the reader that holds them, and shuts them when it or its consumer is moved back.

    `held` is what the reader holds, as it changes. Where partitions were `named`, only those that the reader
    has itself keep others shut.
    """

    def __init__(self, held: Mapping[Key, HeldPartition], consumer: str | None, *, named: bool) -> None:
        self._held = held
        self._consumer = consumer
        self._named = named
        #: Whether what comes before must be committed, not only delivered: handlers may still have it.
        self.by_commits = False
        #: Whether nothing of what comes before may wait for another attempt.
        self.by_retries = False
        #: Stored positions by topic and partition, as of the last look.
        self._stored: dict[str, dict[int, int]] = {}
        #: Of partitions that keep others shut: the offset of a message that is there, and when it was seen.
        self._seen: dict[Key, tuple[int, float]] = {}

    def is_open(self, source: HeldPartition) -> bool:
        """Whether a partition may be read; once it may, until `shut`."""
        if not source.is_open:
            topic = source.topic
            source.is_open = is_open(topic.tree, source.partition, partial(self._has_passed, topic))
        return source.is_open

    def shut(self) -> None:
        """Have every partition ask again: the reader was moved."""
        for source in self._held.values():
            source.is_open = False

    def learn(self, topic: OpenTopic, positions: Mapping[int, int]) -> bool:
        """Note where the consumer stands; whether someone moved it back, so that partitions are shut."""
        before, self._stored[topic.name] = self._stored.get(topic.name, {}), dict(positions)
        went_back = any(positions.get(number, 0) < at for number, at in before.items())
        if went_back:
            self.shut()
        return went_back

    def readable(self, topic: OpenTopic) -> Readable:
        """The partitions that members of the consumer share now; each member finds the same."""
        assert self._consumer is not None
        return readable(
            topic.tree,
            partial(self._is_committed, topic),
            partial(anything_waits, topic, self._consumer),
        )

    def _has_passed(self, topic: OpenTopic, number: int, gate: int) -> bool:
        """Whether a partition was read up to a gate, here or by another member."""
        if topic.tree.row(number).state == "removed":
            return True  # what was not read of it is told as a gap
        parent = self._held.get((topic.name, number))
        if parent is not None:
            passed = self._was_read(parent, gate)
        elif self._consumer is None or self._named:
            return True  # it is not read here at all
        else:
            passed = self._is_committed(topic, number, gate)
        if not passed or not self.by_retries or self._consumer is None:
            return passed
        return not anything_waits(topic, self._consumer, number)

    def _was_read(self, parent: HeldPartition, gate: int) -> bool:
        """Whether everything before `gate` was delivered here; and committed, where it has to be."""
        if parent.commits.position >= gate:
            return True
        if self.by_commits and not parent.commits.is_idle:
            return False
        return self._is_behind_all(parent.topic, parent.partition, parent.cursor.offset, gate)

    def _is_committed(self, topic: OpenTopic, number: int, gate: int) -> bool:
        position = self._stored.get(topic.name, {}).get(number, 0)
        if position >= gate or topic.tree.row(number).state == "removed":
            return True
        return self._is_behind_all(topic, number, position, gate)

    def _is_behind_all(self, topic: OpenTopic, number: int, offset: int, gate: int) -> bool:
        """Whether no message can come from an offset up to a gate: there is none, or it was skipped.

        It is asked for every partition that is shut, again and again: one message that is there answers it
        without a look into the log, until the reader has come so far.
        """
        key, now = (topic.name, number), time.monotonic()
        seen, at = self._seen.get(key, (-1, 0.0))
        if offset <= seen < gate and now < at + _SEEN_S:
            return False
        log = topic.log(number)
        start, end = log.bounds()[:2]
        if not topic.tree.is_active(number):
            gate = min(gate, end)  # what a damaged log has lost is waited for by nobody
        if end < gate:
            return False
        found = _message_between(log, max(offset, start), gate)
        if found is not None:
            self._seen[key] = found, now
        return found is None


def _message_between(log: Log, offset: int, stop: int) -> int | None:
    """The offset of a message between two: the one just before `stop`, if there is one; else the first."""
    if offset >= stop:
        return None
    try:
        for begin in (stop - 1, offset):
            if rows := log.cursor(begin).read(1, 1, stop):
                return rows[0].first
    except (OffsetTrimmed, Corrupt):
        return offset  # the next read of that partition meets it
    return None
