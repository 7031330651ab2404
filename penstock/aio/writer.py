"""The async buffered writer: gathers in the loop, hands over to the blocking writer in a thread.

`write` only waits when two frames' worth of messages have not been handed over. A task takes what
has gathered to the blocking writer, which appends and syncs it as it always does; while that waits
for the disk, the task waits, and so in turn does `write`.

What fails in the background is raised by the next call, and by leaving `async with`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Generic

from penstock.aio.scan import Scan
from penstock.aio.twin import Threads, forwarded, mirrored
from penstock.errors import Closed, PenstockError, WriteTimeout
from penstock.keys import Key
from penstock.log.frame import RAW
from penstock.message import Receipts, V
from penstock.parse import KIB, Duration
from penstock.topic import writer
from penstock.topic.bodies import is_file
from penstock.topic.producer import Numbering, refuse_back
from penstock.topic.value_codec import ValuePacker
from penstock.topic.write_buffer import WIDTH, Besides, WriteBuffer

#: How long the task rests when the blocking writer has no room within the writer's `timeout`.
_REST_S = 0.01
#: Values up to this size are packed in the loop: a thread would take longer.
_PACK_HERE_BYTES = 16 * KIB


class Writer(Generic[V]):
    """Writes many messages to a topic; safe to share between coroutines. Use it with `async with`."""

    def __init__(self, blocking: writer.Writer[V], threads: Threads, *, timeout_s: float | None) -> None:
        self._blocking = blocking
        self._threads = threads
        self._timeout_s = timeout_s
        #: What has gathered: a frame's worth at most, while as much may be on its way.
        self._buffer = WriteBuffer(
            blocking.open_topic, blocking.packer, headers=blocking.buffer.own_headers, look=self._look,
            admit=blocking.check_choice, number=self._number, postpone=_never,
        )  # fmt: skip
        self._buffer.alert = blocking.producer.choose is not None
        self._buffer.numbered = bool(blocking.producer.id)
        self._is_full = False
        self._numbering = Numbering()
        self._accepted = 0
        self._handed = 0
        self._progress = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._closed = ""

    # Writing.

    @mirrored(writer.Writer.write, besides="Cancelled, a delayed message may have been accepted.")
    async def write(
        self, value: V | str | Path | BinaryIO | None, *, key: Key = None,
        headers: Mapping[str, str | bytes] | None = None, partition: int | None = None,
        timestamp: int | datetime | None = None, group: str | None = None, seqno: int | None = None,
        delay: Duration | None = None, deliver_at: int | datetime | None = None,
    ) -> None:  # fmt: skip
        if delay is not None or deliver_at is not None:
            await self._raise_failure()
            await self._hand_over()  # what was written before comes before it
            await self._threads.run(
                self._blocking.write, value, key=key, headers=headers, partition=partition,
                timestamp=timestamp, group=group, seqno=seqno, delay=delay, deliver_at=deliver_at,
            )  # fmt: skip
            return
        body: Any = value
        packer = self._blocking.packer
        if is_file(value):
            body = await self._threads.run(self._buffer.stored, value)
        elif packer is not None and packer.codec != RAW:
            body = await self._packed(value, packer)  # type: ignore[arg-type]
        if self._failure is not None or self._closed or self._blocking.flusher.broken:
            await self._raise_failure()
        if self._is_full:
            await self._wait_for_room()
        self._buffer.add(
            body, key=key, headers=headers, partition=partition, timestamp=timestamp, group=group, seqno=seqno
        )
        self._accepted += 1
        if self._task is None:
            self._start()

    @mirrored(writer.Writer.write_many)
    async def write_many(
        self, values: Any, *, keys: Any = None, headers: Any = None, timestamps: Any = None,
        partition: int | None = None, seqnos: Any = None,
    ) -> None:  # fmt: skip
        await self._raise_failure()
        await self._hand_over()
        if isinstance(values, Scan):
            values = values.blocking
        await self._threads.run(
            self._blocking.write_many, values, keys=keys, headers=headers, timestamps=timestamps,
            partition=partition, seqnos=seqnos,
        )  # fmt: skip
        self._numbering.given = seqnos is not None
        if self._blocking.buffer.last >= self._buffer.last:
            self._buffer.took(*self._blocking.buffer.last_of(None), None)

    @mirrored(writer.Writer.flush)
    async def flush(self) -> Receipts:
        await self._raise_failure()
        await self._hand_over()
        return await self._threads.run(self._blocking.flush)

    written = forwarded[int](writer.Writer.written, of="_blocking")
    waited = forwarded[float](writer.Writer.waited, of="_blocking")
    skipped = forwarded[int](writer.Writer.skipped, of="_blocking")

    @mirrored(writer.Writer.last_seqno)
    async def last_seqno(self) -> int | None:
        return await self._threads.run(self._blocking.last_seqno)

    @mirrored(writer.Writer.close)
    async def close(self) -> None:
        if self._closed:
            return
        self._closed = "the writer is closed"
        try:
            await self._hand_over()
        except PenstockError as error:
            try:
                await self._threads.run(self._blocking.close)
            except PenstockError as second:
                error.add_note(f"closing the writer failed too: {second}")
            raise
        await self._threads.run(self._blocking.close)

    async def __aenter__(self) -> Writer[V]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        try:  # what was accepted is stored, but must not hide the error that is on its way
            await self.close()
        except PenstockError as second:
            error.add_note(f"closing the writer failed too: {second}")

    # Inside.

    async def _packed(self, value: V | str | None, packer: ValuePacker) -> bytes | None:
        """A value as it is stored; packing a large one would hold up the loop."""
        body = packer.encoded(value)
        if packer.codec == RAW or body is None or len(body) < _PACK_HERE_BYTES:
            return packer.body(body)
        return await self._threads.run(packer.body, body)

    def _look(self) -> None:
        """Note whether the buffer is full; the buffer asks now and then."""
        self._is_full = self._buffer.is_full()
        self._buffer.look_later()

    def _number(
        self, seqno: int | None, timestamp: int | None, partition: int | None, group: str | None,
        key: bytes | None,
    ) -> Besides:  # fmt: skip
        """Refuse at once what the blocking writer would refuse later."""
        group = self._blocking.producer.named(group)
        self._blocking.check_seqno(seqno)
        if self._blocking.producer.id:
            self._numbering.refuse_mixed(given=seqno is not None)
            if seqno is not None:
                refuse_back(seqno, key, self._buffer.last_of(group))
            self._numbering.given = seqno is not None
        return timestamp, partition, group, seqno

    async def _raise_failure(self) -> None:
        """Raise what happened; after a failure that passes (a full disk) writing may go on."""
        if self._blocking.flusher.broken:
            while self._task is not None and self._failure is None:
                await self._wait_for_progress()  # the task may have heard of it, and not have told yet
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._closed:
            topic = self._blocking.open_topic.name
            raise Closed(f"writer of {topic!r}: {self._closed}", hint="open a new one")
        if self._blocking.flusher.broken:
            await self._threads.run(self._blocking.flush)  # which raises it

    async def _wait_for_room(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                while self._is_full and self._failure is None:
                    await self._wait_for_progress()
        except TimeoutError:
            raise WriteTimeout(
                f"the disk was too slow for {self._timeout_s} s: this message was not accepted",
                hint="write it again later; write more slowly, or raise buffer=",
            ) from None
        await self._raise_failure()

    async def _hand_over(self) -> None:
        """Return when the blocking writer has everything that was accepted before."""
        target = self._accepted
        while self._handed < target and self._failure is None:
            await self._wait_for_progress()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def _wait_for_progress(self) -> None:
        if self._task is None:
            self._start()
        self._progress.clear()
        await self._progress.wait()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """The task: take what has gathered to the blocking writer, until there is nothing or it fails."""
        try:
            while self._buffer.rows and self._failure is None:
                rows, self._buffer.rows = self._buffer.rows, []
                self._buffer.at = self._buffer.weight = 0
                self._is_full = False
                try:
                    await self._hand(rows)
                finally:
                    self._progress.set()
        finally:
            self._task = None
            self._progress.set()

    async def _hand(self, rows: list[Any]) -> None:
        """Give messages to the blocking writer, in a thread; what it has not accepted stays here."""
        count = len(rows)
        try:
            await self._threads.run(self._blocking.take, rows)
        except WriteTimeout:
            self._put_back(rows, count)
            await asyncio.sleep(_REST_S)
        except Exception as error:  # noqa: BLE001 - kept, and raised from the next call
            self._failure = error
            if getattr(error, "retryable", False):
                self._put_back(rows, count)
            else:
                self._handed += count // WIDTH  # they are lost, and the error says so
        else:
            self._handed += count // WIDTH

    def _put_back(self, rows: list[Any], count: int) -> None:
        """Put what was not accepted before what has gathered meanwhile."""
        self._handed += (count - len(rows)) // WIDTH
        self._buffer.rows[:0] = rows
        self._buffer.weight += sum(len(value) for value in rows[::WIDTH] if value is not None)
        self._look()


def _never(*message: Any) -> bool:
    raise AssertionError("what is delayed goes another way")
