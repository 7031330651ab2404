"""`ReaderEngine`: what a reader asks for messages. `StreamReader` and `QueueReader` are the two engines.

An engine never waits: `poll` gives what is there now, `pause_s` how long one may wait for a ring of `bell`
before polling again. `Reader` waits in a thread, `aio.Reader` in an event loop, and `process` over either.
An engine has a mutex of its own, since another thread hands over partitions while the user is busy. It holds
no reference to its reader: when that is forgotten, the engine ends and frees what it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from penstock.consume.lag import Lag
from penstock.consume.options import Retry
from penstock.consume.partition import Gap, Key
from penstock.consume.transaction_part import Transactional
from penstock.message import Batch, Message
from penstock.parse import Duration
from penstock.place import Place
from penstock.wake import Bell


class ReaderEngine(Protocol):
    """Delivers and settles the messages of a reader, without ever waiting."""

    consumer: str | None
    #: The first topic, for an empty batch.
    name: str
    #: Rung when something was written, or the engine was closed.
    bell: Bell
    #: Whether the reader waits at the end for what is to come.
    follow: bool
    gaps: list[Gap]
    skipped: list[Gap]

    # Delivering.

    @property
    def fetches(self) -> int:
        """How many messages `receive` asks for at a time."""

    def next(self) -> Message[Any] | None:
        """The next of the messages that were fetched before; None when all were delivered."""

    def few(self, count: int) -> Iterator[Message[Any]]:
        """The next few of the messages that were fetched, delivered as they are asked for; perhaps none."""

    def poll(self, max_messages: int, max_bytes: int) -> Batch[Any] | None:
        """What comes next of one partition, one message at least; None when nothing is there."""

    def hand_out(self, batch: Batch[Any]) -> Message[Any] | None:
        """The first message of a batch that was polled; the others are there for `next`."""

    def put_back(self, batch: Batch[Any]) -> None:
        """Have a batch that nobody got after all come next, if it is still this reader's."""

    @property
    def has_fetched(self) -> bool:
        """Whether messages were fetched that nobody got yet."""

    @property
    def reads_files(self) -> bool:
        """Whether the next `poll` may take a moment even where the reader is at the end."""

    @property
    def is_doubtful(self) -> bool:
        """Whether what comes next may have killed a process: one at a time, then."""

    def pause_s(self) -> float | None:
        """How long to wait for a ring; None when there is nothing to wait for."""

    # Settling.

    def commit(self, done: Message[Any] | Batch[Any]) -> None:
        """Commit a message or a batch."""

    def commit_range(self, topic: str, partition: int, first: int, stop: int) -> None:
        """Commit the messages from offset `first` up to `stop`."""

    def retry(
        self, message: Message[Any], after: Duration | None, error: BaseException | str | None,
        policy: Retry | None = None,
    ) -> bool:  # fmt: skip
        """Store a message for another attempt; return False if it became a dead letter instead."""

    def reject(self, message: Message[Any], reason: str) -> None:
        """Make a message a dead letter."""

    def park(self, message: Message[Any], wait_s: float) -> None:
        """Have a message wait behind an earlier one of its key; that is no attempt."""

    def is_settled(self, message: Message[Any]) -> bool:
        """Whether nothing is left to decide about a message."""

    def blocked_ms(self, message: Message[Any]) -> int | None:
        """How long until an earlier message of its key that waits is due; None when none waits."""

    def join(self, tx: Transactional, done: Message[Any] | Batch[Any] | None) -> None:
        """Take part in a transaction, and have messages committed with it."""

    def begin_process(self, policy: Retry | None, *, keep_order: bool) -> Retry:
        """Check that messages can be handled in this way; return the retry policy."""

    def deliver_again(self, messages: Iterable[Message[Any]]) -> None:
        """End a `process`: these were not handled, and are delivered again."""

    # Partitions.

    def seek(self, place: Place) -> None:
        """Move the reader to a place."""

    @property
    def assigned(self) -> list[Key]:
        """The partitions that the reader has now."""

    def lag(self) -> Lag:
        """Return how far the reader is behind."""

    def hand_over(self) -> None:
        """Let other members have their share while the user is busy; from another thread."""

    def let_go(self) -> None:
        """Free everything: the store or the topic is closed."""

    def close(self) -> None:
        """Close the reader and release its partitions."""

    def require_open(self) -> None:
        """Raise `Closed` if the reader was closed."""
