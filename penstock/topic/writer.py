"""The buffered writer: collects messages into large frames and syncs them in a background thread.

With a producer id each message has a number, and none is stored twice (S001-04, S001-44 to 46). The caller
gives the numbers, or the writer counts up from the highest that is stored; not both. One that counts takes
its producer id over first: an older one cannot write under it any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Generic, Self

import msgspec

from penstock.errors import InvalidOption, close_after
from penstock.files import speak, speaking
from penstock.keys import Key
from penstock.log.frame import RAW
from penstock.log.producers import Pair
from penstock.message import Receipts, V
from penstock.options import Sync
from penstock.parse import SEQNO_MAX, Duration
from penstock.topic.delayed import Extras, due_at, postponed
from penstock.topic.flusher import Flusher
from penstock.topic.input import batch_of_many, seqnos_of
from penstock.topic.open_topic import OpenTopic
from penstock.topic.producer import NOBODY, Producer, growing, refuse_back, refuse_two_keys
from penstock.topic.scan import Scan
from penstock.topic.value_codec import ValuePacker, checked_seqno
from penstock.topic.write_batch import WriteBatch
from penstock.topic.write_buffer import SKIP, WIDTH, Besides, WriteBuffer

#: The flusher looks once for so many delayed messages.
_LOOK_EVERY = 512


@speaking("write_many", "flush", "close", "last_seqno")
class Writer(Generic[V]):
    """Writes many messages to a topic; safe to share between threads. Use it with `with`."""

    def __init__(
        self, topic: OpenTopic, *, headers: Mapping[str, str | bytes] | None, linger_s: float,
        buffer_bytes: int, timeout_s: float | None, sync: Sync, producer: Producer = NOBODY,
        packer: ValuePacker | None = None,
    ) -> None:  # fmt: skip
        self.open_topic = topic
        self.producer = producer
        self.packer = packer
        self.flusher = Flusher(
            topic, producer, linger_s=linger_s, buffer_bytes=buffer_bytes, timeout_s=timeout_s, sync=sync
        )
        self.buffer = WriteBuffer(
            topic, packer, headers=headers, look=self.flusher.look, admit=self._admit, number=self._number,
            postpone=self._postpone,
        )  # fmt: skip
        self.buffer.numbered = bool(producer.id)
        self.numbering = self.flusher.numbering
        # A message is one call, not two.
        self.write = self.buffer.add  # type: ignore[method-assign]
        self.flusher.start(self.buffer)
        topic.writers.add(self)

    # Writing.

    def write(
        self, value: V | str | Path | BinaryIO | None, *, key: Key = None,
        headers: Mapping[str, str | bytes] | None = None, partition: int | None = None,
        timestamp: int | datetime | None = None, group: str | None = None, seqno: int | None = None,
        delay: Duration | None = None, deliver_at: int | datetime | None = None,
    ) -> None:  # fmt: skip
        """Accept one message; it is stored by `flush`, or soon by itself.

        Waits when too much is not yet durable. Raises what went wrong in the background before; then
        this message was not accepted, and those accepted before it are as the error says. A producer's
        `seqno` grows from message to message; without one the writer numbers them itself. With `delay` or
        `deliver_at` it is on disk after `flush` and enters the topic later: it has no receipt, since it has
        no offset yet, and a producer's message cannot be delayed.
        """
        self.buffer.add(
            value, key=key, headers=headers, partition=partition, timestamp=timestamp, group=group,
            seqno=seqno, delay=delay, deliver_at=deliver_at,
        )  # fmt: skip

    def write_many(
        self, values: Any, *, keys: Any = None, headers: Any = None, timestamps: Any = None,
        partition: int | None = None, seqnos: Any = None,
    ) -> None:  # fmt: skip
        """Accept many messages at once; lists, Arrow arrays, a table, a `Batch` or a `Scan`."""
        if isinstance(values, Scan):
            if seqnos is not None:
                raise InvalidOption("a Scan cannot have seqnos", hint="write its batches one by one")
            for part in values:
                self.write_many(part, keys=keys, headers=headers, timestamps=timestamps, partition=partition)
            return
        topic = self.open_topic
        topic.growth.require_active(partition)
        values = topic.bodies.outside_all(values)
        limit = topic.options.value_bytes
        batch = batch_of_many(values, keys, headers, timestamps, partition, limit, self.packer)
        count = len(batch.columns.values)
        if self.buffer.own_headers is not None:
            own = batch.columns.headers or [None] * count
            merged = [self.buffer.merged(each) for each in own]
            batch = batch._replace(columns=batch.columns._replace(headers=merged))
        given = self._checked_seqnos(seqnos, count)
        if not self.flusher.is_roomy:
            self.flusher.make_room()
        with self.flusher.lock:
            self.flusher.append_pending()
            if count and self.producer.id:
                self._append_numbered(batch, given)
            elif count:
                self.flusher.append_batch(batch)

    def flush(self) -> Receipts:
        """Return when everything written before is stored; the receipts tell where and how safely."""
        return self.flusher.flush()

    @property
    def written(self) -> int:
        """How many messages were stored so far, as safely as this writer promises."""
        return self.flusher.written

    @property
    def skipped(self) -> int:
        """How many messages were duplicates and not stored again, as safely as the first ones."""
        return self.flusher.skipped

    @property
    def waited(self) -> float:
        """For how many seconds a quota (`write_quota`) held this writer back so far."""
        return self.flusher.waited

    def last_seqno(self) -> int | None:
        """The highest seqno stored for this writer's producer and group, by anyone; None when there is none.

        After a restart a producer goes on behind it. With keys over several partitions some before it may
        be missing then: send again from the last one that was acknowledged.
        """
        if not self.producer.id:
            raise InvalidOption("a writer without producer_id has no seqnos", hint="writer(producer_id=…)")
        pair = Pair(self.producer.id, self.producer.group)
        self.open_topic.refresh()
        highest = max(
            log.appender.known(pair).seqno for log in map(self.open_topic.log, self.open_topic.active())
        )
        return None if highest < 0 else highest

    def close(self) -> None:
        """Flush and end; raises if anything could not be stored."""
        self.flusher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_after(error, self.close, "the writer")

    # Inside.

    def check_choice(self, key: bytes | None, is_placed: bool) -> None:
        """Ask a partitioner of the user's own before its message is accepted."""
        choose = self.producer.choose
        if choose is not None and key is not None and not is_placed:
            choose(key, len(self.open_topic.active()))

    def check_seqno(self, seqno: int | None) -> None:
        """Raise unless a message may have this seqno, or none, in this writer."""
        if seqno is not None:
            if not self.producer.id:
                raise InvalidOption("a seqno needs a producer", hint="writer(producer_id=…)")
            checked_seqno(seqno)
        if self.producer.id:
            self.numbering.refuse_mixed(given=seqno is not None)

    def take(self, rows: list[Any]) -> None:
        """Accept messages that another buffer has checked; those that were not accepted stay in `rows`."""
        self.flusher.make_room()
        self.buffer.weight += sum(len(value) for value in rows[::WIDTH] if value is not None)
        pending = self.buffer.rows
        if not self.producer.id:
            pending += rows
            del rows[:]
        else:
            self._take_one_by_one(rows, pending)
        self.flusher.look()

    def _take_one_by_one(self, rows: list[Any], pending: list[Any]) -> None:
        """Accept messages that have numbers, or are to get them."""
        at = 0
        try:
            while at < len(rows):
                value, key, headers, besides = rows[at : at + WIDTH]
                if self.producer.id:
                    said = besides if besides.__class__ is tuple else (besides, None, None, None)
                    moment, partition, group, seqno = said
                    besides = self._number(seqno, moment, partition, group, key)
                    if besides is not SKIP and seqno is not None:
                        self.buffer.took(seqno, key, self.producer.named(group))
                if besides is not SKIP:
                    pending += value, key, headers, besides
                at += WIDTH
        finally:
            del rows[:at]

    def _admit(self, key: bytes | None, is_placed: bool) -> None:
        """See that there is room for a message, and where it may go; the buffer asks before it takes one."""
        self.check_choice(key, is_placed)
        if not self.flusher.is_roomy or self.producer.choose is None:
            self.flusher.make_room()

    def _number(
        self, seqno: int | None, timestamp: int | None, partition: int | None, group: str | None,
        key: bytes | None,
    ) -> int | Besides | None:  # fmt: skip
        """Take the number of a message that is accepted, or see that the writer may count."""
        numbering, last = self.numbering, self.buffer.last
        if group is None and numbering.given and seqno.__class__ is int and last < seqno <= SEQNO_MAX:
            return timestamp, partition, None, seqno
        group = self.producer.named(group)
        self.check_seqno(seqno)
        if seqno is None:
            named = group or self.producer.group
            if self.producer.id and named not in numbering.taken_over:
                with self.flusher.lock:
                    self._take_over(named)
            return timestamp if partition is None and group is None else (timestamp, partition, group, None)
        before = self.buffer.last_of(group)
        refuse_back(seqno, key, before)
        numbering.given = True
        if seqno != before[0]:
            return timestamp, partition, group, seqno
        with self.flusher.lock:
            self.flusher.append_pending()
            self.flusher.skip(1)
        skipped: int | Besides | None = SKIP
        return skipped

    def _postpone(
        self, value: bytes | None, key: bytes | None, extras: Extras, delay: Duration | None,
        deliver_at: int | datetime | None,
    ) -> bool:  # fmt: skip
        """Delay a message; False when it is due already."""
        topic, buffer, flusher = self.open_topic, self.buffer, self.flusher
        if self.producer is not NOBODY:
            self._refuse_waiting()
        due = due_at(delay, deliver_at, topic.clock.now_ns())
        if due is None:
            return False
        if self.producer.group and not extras.group:
            extras = msgspec.structs.replace(extras, group=self.producer.group)
        later = postponed(topic, value, key, extras, due, RAW if self.packer is None else self.packer.codec)
        if buffer.alert:
            flusher.make_room()
        flusher.later.append(later)
        if value is not None:
            buffer.weight += len(value)
        if not buffer.at or not len(flusher.later) % _LOOK_EVERY:
            flusher.look()
        return True

    def _refuse_waiting(self) -> None:
        """Raise for a writer whose messages cannot wait."""
        if self.producer.id:
            # It would come behind higher ones, and count as a duplicate: lost, and nobody told.
            raise InvalidOption(
                "a producer's messages are numbered as they enter the topic, so none can wait",
                hint="delay it by a writer without producer_id, by topic.write or in a transaction",
            )
        if self.producer.choose is not None:
            raise InvalidOption(
                "a partitioner of one's own cannot be asked later", hint="give the partition of what waits"
            )

    def _checked_seqnos(self, seqnos: Any, count: int) -> Sequence[int] | None:
        if seqnos is not None and not self.producer.id:
            raise InvalidOption("a seqno needs a producer", hint="writer(producer_id=…)")
        numbers = None if seqnos is None else seqnos_of(seqnos, count)
        if self.producer.id:
            self.numbering.refuse_mixed(given=numbers is not None)
        return numbers

    # Inside; the flusher's lock is held.

    def _take_over(self, group: str) -> None:
        """See that only this writer numbers messages of the group from here on, and goes on behind them."""
        self.numbering.refuse_mixed(given=False)  # another thread was quicker
        if group not in self.numbering.taken_over:
            self.flusher.append_pending()  # with the numbers that they would have got
            try:
                highest = self.open_topic.appender.take_over(self.producer, group)
            except OSError as error:
                speak(error)
            self.producer.automatic = True
            self.numbering.begin_counting(group, highest)
            self.buffer.numbered = False

    def _append_numbered(self, batch: WriteBatch, given: Sequence[int] | None) -> None:
        numbering, count = self.numbering, len(batch.columns.values)
        if given is None:
            self._take_over(self.producer.group)
            seqnos: Sequence[int] = numbering.count(count)
            numbering.last = seqnos[-1]
            self.flusher.append_batch(_numbered(batch, seqnos))
            return
        keys, before = batch.columns.keys, self.buffer.last_of(None)
        refuse_back(given[0], None if keys is None else keys[0], before)
        fresh = growing(given, before[0])
        if len(fresh) < count:
            refuse_two_keys(given, keys)
            batch, given = batch.take(fresh), [given[place] for place in fresh]
        if fresh:
            self.flusher.append_batch(_numbered(batch, given))
            numbering.last = self.buffer.last = given[-1]
            self.buffer.last_key = None if batch.columns.keys is None else batch.columns.keys[-1]
        numbering.given = True
        if len(fresh) < count:
            self.flusher.skip(count - len(fresh))


def _numbered(batch: WriteBatch, seqnos: Sequence[int]) -> WriteBatch:
    return batch._replace(columns=batch.columns._replace(seqnos=seqnos))
