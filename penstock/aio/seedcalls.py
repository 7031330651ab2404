"""The functions of MiniToolStream, awaited, and the time that messages live."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.aio.threads import Threads
from penstock.faces import stream
from penstock.faces.engine import Deleted, Row, SubjectFacts
from penstock.faces.seedcalls import Decoded, NewMessages
from penstock.faces.ttl import TtlStatus
from penstock.options import Duration


class SeedCalls:
    """The part of a stream that speaks as MiniToolStream does."""

    def __init__(self, blocking: stream.Stream, threads: Threads) -> None:
        self._blocking = blocking
        self._threads = threads

    async def publish_message(
        self, subject: str, object_name: str, headers: Mapping[str, str] | None = None
    ) -> int:
        """Publish a message whose body lies elsewhere under `object_name`; its sequence, 1 for the first.

        Have the body stored before: whoever sees the message may ask for it.
        """
        return await self._threads.run(self._blocking.publish_message, subject, object_name, headers)

    async def get_message_by_sequence(self, sequence: int) -> Row | None:
        """`(sequence, headers, object_name, subject, create_at)`; None when it is not there."""
        return await self._threads.run(self._blocking.get_message_by_sequence, sequence)

    async def get_message_by_sequence_decoded(self, sequence: int) -> Decoded | None:
        """The same by names."""
        return await self._threads.run(self._blocking.get_message_by_sequence_decoded, sequence)

    async def get_messages_by_subject(self, subject: str, start_sequence: int, limit: int) -> list[Row]:
        """Messages of a subject, or of a pattern ("images.*"), from `start_sequence` on, in order."""
        return await self._threads.run(self._blocking.get_messages_by_subject, subject, start_sequence, limit)

    async def get_all_messages(self, start_sequence: int, limit: int) -> list[Row]:
        """Messages of all subjects from `start_sequence` on, in the order of the global sequence."""
        return await self._threads.run(self._blocking.get_all_messages, start_sequence, limit)

    async def get_latest_sequence_for_subject(self, subject: str) -> int:
        """The newest sequence of a subject, or of a pattern; 0 when it has no messages."""
        return await self._threads.run(self._blocking.get_latest_sequence_for_subject, subject)

    async def get_latest_sequence(self) -> int:
        """The last sequence that was given to any message, also when all are gone; 0 before the first."""
        return await self._threads.run(self._blocking.get_latest_sequence)

    async def get_message_count(self) -> int:
        """How many messages there are."""
        return await self._threads.run(self._blocking.get_message_count)

    async def get_subject_message_count(self, subject: str) -> int:
        """How many messages a subject, or a pattern, has."""
        return await self._threads.run(self._blocking.get_subject_message_count, subject)

    async def get_subjects(self, pattern: str = "*") -> list[SubjectFacts]:
        """Subjects that have messages, by name: how many, the first and the latest sequence."""
        return await self._threads.run(self._blocking.get_subjects, pattern)

    async def update_consumer_position(self, durable_name: str, subject: str, last_sequence: int) -> bool:
        """Say that a durable consumer has read up to `last_sequence`; anywhere, also back (`ack` does not).

        0 puts it before the first message. Returns True.
        """
        return await self._threads.run(
            self._blocking.update_consumer_position, durable_name, subject, last_sequence
        )

    async def get_consumer_position(self, durable_name: str, subject: str) -> int:
        """The last sequence that a durable consumer has read of a subject; 0 when it never said."""
        return await self._threads.run(self._blocking.get_consumer_position, durable_name, subject)

    async def get_consumers_by_subject(self, subject: str) -> list[tuple[str, str, int]]:
        """`(durable_name, subject, last_sequence)` of all who read a subject, by name."""
        return await self._threads.run(self._blocking.get_consumers_by_subject, subject)

    async def get_consumers(self) -> list[tuple[str, str, int]]:
        """The same of all subjects, by subject and name."""
        return await self._threads.run(self._blocking.get_consumers)

    async def get_consumer_count(self) -> int:
        """How many positions are kept: one for each durable consumer and subject."""
        return await self._threads.run(self._blocking.get_consumer_count)

    async def forget_consumer(self, durable_name: str, subject: str | None = None) -> int:
        """Drop a durable consumer's position in a subject, or in all; how many there were."""
        return await self._threads.run(self._blocking.forget_consumer, durable_name, subject)

    async def get_new_messages_count(
        self, subject: str, durable_name: str | None = None, since: int | None = None
    ) -> int:
        """How many messages lie behind a durable consumer's position, or behind the sequence `since`; exact.

        Without either: how many there are.
        """
        return await self._threads.run(self._blocking.get_new_messages_count, subject, durable_name, since)

    async def check_new_messages(self, subject: str, durable_name: str) -> NewMessages:
        """Whether there is something new for a durable consumer, and how much."""
        return await self._threads.run(self._blocking.check_new_messages, subject, durable_name)

    async def delete_old_messages(self, ttl_seconds: float) -> tuple[int, list[Deleted]]:
        """Delete all messages that are `ttl_seconds` old or older: how many, and which, for their bodies.

        0 deletes everything there is. Sequences go on where they were. Calling it again deletes nothing more.
        """
        return await self._threads.run(self._blocking.delete_old_messages, ttl_seconds)

    # How long messages live.

    async def configure_ttl(
        self, *, enabled: bool | None = None, default_ttl: Duration | None = None,
        check_interval: Duration | None = None, channels: Mapping[str, Duration] | None = None,
    ) -> TtlStatus:  # fmt: skip
        """Choose how long messages live; what is left out stays as it is.

        `channels` gives subjects, or patterns ("images.*"), a time of their own, longer or shorter; the
        longest text that fits a subject counts. It replaces the channels there were.
        """
        return await self._threads.run(
            self._blocking.configure_ttl,
            enabled=enabled,
            default_ttl=default_ttl,
            check_interval=check_interval,
            channels=channels,
        )

    async def start_ttl_cleanup(self, on_deleted: Callable[[list[Deleted]], None] | None = None) -> bool:
        """Have a thread of this process delete what is too old, now and at each interval; False if one runs.

        `on_deleted` is called in that thread with what went, for bodies that the stream does not keep
        itself; what it failed for is given to it again.
        """
        return await self._threads.run(self._blocking.start_ttl_cleanup, on_deleted)

    async def stop_ttl_cleanup(self) -> bool:
        """End that thread, waiting up to 5 seconds for a sweep under way; False when none ran."""
        return await self._threads.run(self._blocking.stop_ttl_cleanup)

    async def get_ttl_status(self) -> TtlStatus:
        """How long messages live, and whether this process sees to it."""
        return await self._threads.run(self._blocking.get_ttl_status)

    async def delete_expired(self) -> tuple[int, list[Deleted]]:
        """Delete what the TTL says, now: how many, and which. Nothing while it is not enabled."""
        return await self._threads.run(self._blocking.delete_expired)
