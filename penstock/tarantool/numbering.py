"""Which message of a MiniToolStream gets which sequence, and where that leaves its consumers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice

from penstock.tarantool.oldrows import OldMessage, OldStream


class Plan:
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
        return self._source.get(sequence)


class _RenumberedPlan(Plan):
    """The same where each subject counted for itself: by time, and within a subject by its own numbers."""

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


def planned(source: OldStream) -> Plan:
    """The plan for a source."""
    return Plan(source) if source.is_global else _RenumberedPlan(source)


def _numbered(message: OldMessage, sequence: int) -> OldMessage:
    return OldMessage(
        sequence, message.subject, message.object_name, message.create_at, message.headers, message.body,
        message.digest,
    )  # fmt: skip
