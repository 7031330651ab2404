"""The functions of MiniToolStream under their own names, with their own parameters and results (S000-16…23).

They differ from the original where that lost or miscounted messages (W000-1…7); docs/streams.md says where.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from penstock.errors import InvalidOption, WrongType
from penstock.streams.engine import Deleted, Publication, Row, StreamEngine, SubjectFacts
from penstock.streams.subjects import (
    EVERYTHING,
    asked,
    asked_sequence,
    checked_durable,
    checked_limit,
    checked_object_name,
    checked_pattern,
    checked_sequence,
    checked_stream_headers,
    checked_subject,
)

#: Longer than anyone keeps anything; what is more is a mistake.
_TTL_MAX_S = 1e10


class Decoded(TypedDict):
    """A message by the names of its fields."""

    sequence: int
    headers: dict[str, str]
    object_name: str
    subject: str
    create_at: int


class NewMessages(TypedDict):
    """Whether there is something new for a durable consumer."""

    has_new: bool
    latest_sequence: int
    consumer_position: int
    new_count: int


class MiniToolStream:
    """The part of a stream that speaks as MiniToolStream does."""

    def __init__(self, engine: StreamEngine) -> None:
        self.engine = engine

    # Messages.

    def publish_message(
        self, subject: str, object_name: str, headers: Mapping[str, str] | None = None
    ) -> int:
        """Publish a message whose body lies elsewhere under `object_name`; its sequence, 1 for the first.

        Have the body stored before: a reader of the message may ask for it.
        """
        return self.engine.publish(
            Publication(
                checked_subject(subject),
                None,
                checked_stream_headers(headers),
                checked_object_name(object_name),
            )
        )

    def get_message_by_sequence(self, sequence: int) -> Row | None:
        """`(sequence, headers, object_name, subject, create_at)`; None when it is not there."""
        return self.engine.get(asked_sequence("sequence", sequence))

    def get_message_by_sequence_decoded(self, sequence: int) -> Decoded | None:
        """The message of that sequence by the names of its fields; None when it is not there."""
        row = self.get_message_by_sequence(sequence)
        return None if row is None else Decoded(**dict(zip(Decoded.__annotations__, row, strict=True)))  # type: ignore[typeddict-item]

    def get_messages_by_subject(self, subject: str, start_sequence: int, limit: int) -> list[Row]:
        """Messages of a subject, or of a pattern ("images.*"), from `start_sequence` on, at most `limit`.

        They ascend; 0 is the beginning as 1 is.
        """
        wanted, start = asked(subject), asked_sequence("start_sequence", start_sequence)
        return self.engine.rows(wanted, start or 1, limit) if checked_limit(limit, 0) else []

    def get_all_messages(self, start_sequence: int, limit: int) -> list[Row]:
        """Messages of all subjects from `start_sequence` on, in the order of the global sequence."""
        return self.get_messages_by_subject("*", start_sequence, limit)

    def get_latest_sequence_for_subject(self, subject: str) -> int:
        """The newest sequence of a subject, or of a pattern; 0 when it has no messages."""
        return self.engine.latest(asked(subject))

    def get_latest_sequence(self) -> int:
        """The last sequence that was given to any message, also when all are gone; 0 before the first."""
        return self.engine.last()

    def get_message_count(self) -> int:
        """How many messages there are."""
        return self.engine.count(EVERYTHING)

    def get_subject_message_count(self, subject: str) -> int:
        """How many messages a subject, or a pattern, has."""
        return self.engine.count(asked(subject))

    def get_subjects(self, pattern: str = "*") -> list[SubjectFacts]:
        """Subjects that have messages, by name: how many, the first and the latest sequence."""
        return self.engine.subjects(asked(pattern))

    # Consumers.

    def update_consumer_position(self, durable_name: str, subject: str, last_sequence: int) -> bool:
        """Say that a durable consumer has read up to `last_sequence`; anywhere, also back (`ack` does not).

        0 puts it before the first message. Returns True.
        """
        checked_sequence("last_sequence", last_sequence, 0)
        self.engine.set_position(checked_durable(durable_name), checked_pattern(subject), last_sequence)
        return True

    def get_consumer_position(self, durable_name: str, subject: str) -> int:
        """The last sequence that a durable consumer has read of a subject; 0 when it never said."""
        return self.engine.position(checked_durable(durable_name), checked_pattern(subject))

    def get_consumers_by_subject(self, subject: str) -> list[tuple[str, str, int]]:
        """`(durable_name, subject, last_sequence)` of all who read a subject, by name."""
        return self.engine.positions(checked_pattern(subject))

    def get_consumers(self) -> list[tuple[str, str, int]]:
        """`(durable_name, subject, last_sequence)` of all consumers, by subject and name."""
        return self.engine.positions()

    def get_consumer_count(self) -> int:
        """How many positions are kept: one for each durable consumer and subject."""
        return len(self.engine.positions())

    def forget_consumer(self, durable_name: str, subject: str | None = None) -> int:
        """Drop a durable consumer's position in a subject, or in all; how many there were."""
        if subject is not None:
            checked_pattern(subject)
        return self.engine.forget(checked_durable(durable_name), subject)

    def get_new_messages_count(
        self, subject: str, durable_name: str | None = None, since: int | None = None
    ) -> int:
        """How many messages lie behind a durable consumer's position, or behind the sequence `since`; exact.

        Without either: how many there are.
        """
        if durable_name is not None and since is not None:
            raise InvalidOption("durable_name and since both say what is new", hint="give one of them")
        after = 0 if since is None else asked_sequence("since", since)
        if durable_name is not None:
            after = self.get_consumer_position(durable_name, subject)
        return self.engine.count(asked(subject), after)

    def check_new_messages(self, subject: str, durable_name: str) -> NewMessages:
        """Whether there is something new for a durable consumer, and how much."""
        position = self.get_consumer_position(durable_name, subject)
        count = self.engine.count(asked(subject), position)
        return NewMessages(
            has_new=count > 0,
            latest_sequence=self.engine.latest(asked(subject)),
            consumer_position=position,
            new_count=count,
        )

    # Deleting.

    def delete_old_messages(self, ttl_seconds: float) -> tuple[int, list[Deleted]]:
        """Delete all messages that are `ttl_seconds` old or older: how many, and which, for their bodies.

        0 deletes everything there is. Sequences go on where they were. Calling it again deletes nothing more.
        """
        if not isinstance(ttl_seconds, (int, float)) or isinstance(ttl_seconds, bool):
            raise WrongType(f"ttl_seconds is a number, not {type(ttl_seconds).__name__}")
        if not 0 <= ttl_seconds <= _TTL_MAX_S:
            raise InvalidOption(f"ttl_seconds={ttl_seconds} must be between 0 and 300 years")
        deleted = self.engine.delete(float(ttl_seconds))
        return len(deleted), deleted
