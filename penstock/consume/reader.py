"""`Reader`: receives and iterates by waiting for an engine that never waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic

from penstock.consume import process
from penstock.consume.engine import ReaderEngine
from penstock.consume.lag import Lag
from penstock.consume.options import ReaderOptions, Retry
from penstock.consume.partition import Gap, Key
from penstock.consume.process_queue import Summary
from penstock.consume.queue_reader import QueueReader
from penstock.consume.stream_reader import StreamReader
from penstock.consume.transaction_part import Transactional
from penstock.files import speak, speaking
from penstock.message import Batch, Message, V
from penstock.parse import MIB, Duration, Size, seconds, size, whole
from penstock.place import Place
from penstock.topic.open_topic import OpenTopic
from penstock.wake import within

_BATCH_BYTES = 8 * MIB
#: A loop that is quicker than this with a message gets so many without a look at anything else.
_QUICK_S = 0.0001
_STRETCH = 100


@speaking("receive_batch", "retry", "reject", "process", "close")
class Reader(Generic[V]):
    """Reads topics as a consumer, or without one; not to be shared between threads.

    Readers of one consumer share its partitions, wherever they run. Within a partition messages come in
    order; between partitions in turn. Without a consumer nothing is saved. Use it with `with`.
    """

    def __init__(self, engine: ReaderEngine) -> None:
        self.engine = engine
        self._stop = process.Stop(engine.bell.ring)

    @property
    def consumer(self) -> str | None:
        """The consumer it reads for, if any."""
        return self.engine.consumer

    @property
    def gaps(self) -> list[Gap]:
        """Offsets that were skipped with on_gap="skip", oldest first."""
        return self.engine.gaps

    @property
    def skipped(self) -> list[Gap]:
        """Offsets that were skipped because of `read_from` and `max_lag`, oldest first."""
        return self.engine.skipped

    # Receiving.

    def receive(self, timeout: Duration | None = None) -> Message[V] | None:
        """The next message; None when none came within `timeout` (for ever by default).

        `timeout` is in seconds, or text like "200ms". With `follow=False` also None at the end.
        """
        engine = self.engine
        message = engine.next()
        if message is None:
            try:
                batch = engine.poll(engine.fetches, _BATCH_BYTES)  # mostly something is there
            except OSError as error:
                speak(error)
            if batch is None:
                batch = self.receive_batch(engine.fetches, timeout=timeout)
            message = engine.hand_out(batch)
        return message

    def receive_batch(
        self, max_messages: int = 1000, max_bytes: Size = _BATCH_BYTES, timeout: Duration | None = None,
        tx: Transactional | None = None,
    ) -> Batch[V]:  # fmt: skip
        """What comes next from one partition, one message at least; empty after `timeout`.

        With `follow=False` also empty at the end. In a transaction it is committed with it; rolled back,
        it is delivered again.
        """
        engine, (most, limit, deadline) = self.engine, asked(max_messages, max_bytes, timeout)
        engine.require_open()
        if tx is not None:
            engine.join(tx, None)
        while (batch := engine.poll(most, limit)) is None:
            pause = engine.pause_s()
            if pause is not None:
                pause = within(deadline, pause)
            if pause is None:
                return Batch(engine.name, ())
            engine.bell.wait(pause)
        if tx is not None:
            engine.join(tx, batch)
        return batch

    def __iter__(self) -> Iterator[Message[V]]:
        engine, fetched, now = self.engine, self.engine.next, time.monotonic
        while True:
            message = fetched()
            if message is None:
                message = engine.hand_out(self.receive_batch(engine.fetches))
                if message is None:
                    if engine.follow:
                        continue
                    return
            began = now()
            yield message
            if now() - began < _QUICK_S:
                yield from engine.few(_STRETCH)

    def __next__(self) -> Message[V]:
        message = self.engine.next()
        while message is None:
            message = self.engine.hand_out(self.receive_batch(self.engine.fetches))
            if message is None and not self.engine.follow:
                raise StopIteration
        return message

    # Committing and moving.

    def commit(self, done: Message[Any] | Batch[Any], *, tx: Transactional | None = None) -> None:
        """Mark messages as done: the consumer will not get them again.

        In any order; the stored position is the first one that is not done. It is stored when this returns,
        and outlives the process. Raises `PartitionLost` when the partition went to another member, or was
        moved, since they were received: they are delivered again. The reader goes on with what it has. With
        `tx` they are done when the transaction commits. Of a queue, it raises when the lease of any ran out
        and another reader got it meanwhile; the others are done.
        """
        try:
            if tx is not None:
                self.engine.join(tx, done)
            else:
                self.engine.commit(done)
        except OSError as error:
            speak(error)

    def retry(
        self, message: Message[Any], *, after: Duration | None = None,
        error: BaseException | str | None = None,
    ) -> bool:  # fmt: skip
        """Deliver a message again later, to this consumer only, and commit it, in one step.

        It comes after `after`, or else as the reader's `retry` policy says, with `message.attempt` one
        higher; `error` is kept with it. When the policy allows no further attempt it becomes a dead letter
        instead, and False is returned. A process that dies in between leaves it to be delivered
        once more. Raises `PartitionLost` when the partition went to another member, or the message of a queue
        to another reader: it is delivered again there.
        """
        return self.engine.retry(message, after, error)

    def reject(self, message: Message[Any], reason: str) -> None:
        """Make a message a dead letter, now, and commit it: it lies in `<topic>.dead` with its reason."""
        self.engine.reject(message, reason)

    def process(
        self, handler: Callable[[Message[V]], object], *, workers: int = 1, retry: Retry | None = None,
        follow: bool = True, keep_order: bool = False, signals: bool = True,
    ) -> Summary:  # fmt: skip
        """Call `handler` with each message: commit it when that returns, try it again later when it raises.

        `workers` is how many threads handle messages at a time; 1 is the thread that calls. `retry` says
        when they are tried again, and when they become dead letters; else the reader's policy does. With
        `keep_order` messages of one key are handled one after the other, and wait while an earlier one
        waits; other keys go on.

        `follow=False` ends when nothing is left now; else `stop` ends it, when what runs is done. So do
        SIGTERM and Ctrl-C, where the program left them as Python has them; Ctrl-C interrupts a handler in
        this thread, and its message is delivered again. `signals=False` leaves signals alone.
        """
        return process.run(
            self.engine, handler, self._stop, workers=workers, retry=retry, follow=follow,
            keep_order=keep_order, signals=signals,
        )  # fmt: skip

    def stop(self) -> None:
        """Have `process` end, from any thread or from its handler, when what runs is done."""
        self._stop()

    def seek(self, place: Place) -> None:
        """Go on from `place` in every partition it reads; with a consumer the place is stored at once.

        For a queue this holds for all its readers: what is out is out no more.
        """
        self.engine.seek(place)

    @property
    def assigned(self) -> list[Key]:
        """(topic, partition) of everything this reader reads now."""
        return self.engine.assigned

    def lag(self) -> Lag:
        """What is stored in the partitions it reads and was not yet delivered: messages, bytes, seconds."""
        return self.engine.lag()

    def close(self) -> None:
        """Release all partitions; a thread that waits in `receive` gets `Closed`. Never waits."""
        self.engine.close()

    def __enter__(self) -> Reader[V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def asked(max_messages: int, max_bytes: Size, timeout: Duration | None) -> tuple[int, int, float | None]:
    """How many messages, how many bytes, and until when to wait, as a caller spelled them."""
    whole("max_messages", max_messages, 1, 2**31)
    limit = max(size("max_bytes", max_bytes), 1)  # one message at least comes, however large
    if timeout is None:
        return max_messages, limit, None
    # What is already over is no mistake of a caller who counts down.
    is_past = isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and timeout < 0
    return max_messages, limit, time.monotonic() + (0.0 if is_past else seconds("timeout", timeout))


def open_reader(topics: Sequence[OpenTopic], options: ReaderOptions) -> Reader[Any]:
    """A reader of topics, of the kind that its options name."""
    engine: ReaderEngine = (QueueReader if options.is_queue else StreamReader)(topics, options)
    return Reader(engine)
