"""A writer with a producer id: each message has a number, and none is stored twice (S001-04, S001-44 to 46).

The caller gives the numbers, or the writer counts up from the highest that is stored; not both. A
writer that counts takes its producer id over first: an older one cannot write under it any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from operator import lt
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO, Generic

from penstock.errors import InvalidOption, PenstockError
from penstock.keys import Key, checked_key
from penstock.log.frame import RAW
from penstock.log.producers import Pair
from penstock.message import Headers, StoredRun, V
from penstock.options import Sync
from penstock.parse import KEY_BYTES_MAX, KIB, SEQNO_MAX, Duration
from penstock.topic import input as outgoing
from penstock.topic.bodies import is_file
from penstock.topic.delayed import Due, Extras, Postponed, due_at, postponed, refuse_file
from penstock.topic.flusher import Flusher
from penstock.topic.input import consecutive, seqnos_of
from penstock.topic.open_topic import Landed, OpenTopic
from penstock.topic.producer import NOBODY, Producer
from penstock.topic.scan import Scan
from penstock.topic.value_codec import Packing, checked_headers, checked_seqno, checked_value
from penstock.topic.write_batch import FRAME_BYTES, FRAME_MESSAGES, WriteBatch
from penstock.topic.write_buffer import Pairs, Special, checked_extras, pair_columns, weight

#: Values that, with keys and offsets, make a frame of somewhat less than 1 MiB.
_FRAME_WORTH_BYTES = FRAME_BYTES * 3 // 4
#: Messages up to this size take the short way in.
SMALL_BYTES = KIB
#: The clock is looked at once for so many values, keys and seqnos: looking costs as much as a message.
LOOK_EVERY = 2 * 3 * 85


class Writer(Flusher, Generic[V]):
    """Writes many messages to a topic; safe to share between threads. Use it with `with`."""

    #: How many items of `_pending` are one message.
    _width = 2

    def __init__(
        self, partitions: OpenTopic, *, headers: Mapping[str, str | bytes] | None, linger_s: float,
        buffer_bytes: int, timeout_s: float | None, sync: Sync, sender: Producer = NOBODY,
        packing: Packing | None = None,
    ) -> None:  # fmt: skip
        self._sender = sender
        self._headers = checked_headers(headers)
        self._linger_s = linger_s
        self._extras = None if self._headers is None else Extras(self._headers, None, None)
        self._limit = partitions.options.value_bytes
        self._packing = packing
        # Who packs, or asks a partitioner before a message is accepted, looks at every one.
        short = packing is None and sender.choose is None
        self._small = min(self._limit, SMALL_BYTES) if short else -1
        self._pending: Pairs = []  # grows without the lock; only its front is taken, under the lock
        self._plain = True  # nothing special is pending
        self._later: list[Postponed] = []  # accepted, to be stored until they are due
        self._tried = 0  # so many of those in front could not be appended before
        self._pending_bytes = 0  # about: threads may overtake each other in counting
        self._deadline = 0.0  # when what is pending has lingered long enough
        self._watched = False  # somebody will see to what is pending
        # Last: from here on the store knows of it, and may close it.
        super().__init__(partitions, buffer_bytes=buffer_bytes, timeout_s=timeout_s, sync=sync)

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
        if (
            value.__class__ is not bytes
            or len(value) > self._small
            or (key is not None and (key.__class__ is not bytes or len(key) > KEY_BYTES_MAX))
            or headers is not None
            or timestamp is not None
            or partition is not None
            or group is not None
            or seqno is not None
            or delay is not None
            or deliver_at is not None
            or self._alert
        ):
            due = self._due_at(delay, deliver_at)
            if due is not None:
                refuse_file(value)
            self._write_carefully(value, key, headers, timestamp, partition, group, seqno, due)
            return
        # Extending a list is one step for all threads; a lock would cost as much as all the rest.
        pending = self._pending
        pending.extend((value, key))
        if not self._watched or not len(pending) % LOOK_EVERY:
            self._look()

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
        self.open_topic.check(partition)
        values = self.open_topic.bodies.outside_all(values)
        batch = outgoing.many(values, keys, headers, timestamps, partition, self._limit, self._packing)
        if self._headers is not None:
            own = batch.headers or [None] * len(batch.values)
            batch = batch._replace(headers=[self._merged(each) for each in own])
        given = self._checked_seqnos(seqnos, len(batch.values))
        if self._alert:
            self._make_room()
        with self._lock:
            self._append_pending()
            if batch.values:
                self._append_batch(batch, given)

    def last_seqno(self) -> int | None:
        """The highest seqno stored for this writer's producer and group, by anyone; None when there is none.

        After a restart a producer goes on behind it. With keys over several partitions some before it may
        be missing then: send again from the last one that was acknowledged.
        """
        raise InvalidOption("a writer without producer_id has no seqnos", hint="writer(producer_id=…)")

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        self._pending, self._later = [], []

    # Inside.

    def _stored(self, value: V | str | Path | BinaryIO | None) -> bytes | None:
        """A value as it is stored, if it can be; the body of a file is stored now, while it can be read."""
        if is_file(value):
            return self.open_topic.bodies.outside(value)  # type: ignore[no-any-return]
        return checked_value(value, self._limit) if self._packing is None else self._packing.one(value)

    def _write_carefully(
        self, value: V | str | Path | BinaryIO | None, key: Key, headers: Mapping[str, str | bytes] | None,
        timestamp: int | datetime | None, partition: int | None, group: str | None, seqno: int | None,
        due: Due | None = None,
    ) -> None:  # fmt: skip
        """A message that has to be looked at: large, not bytes, or with headers, time, place or number."""
        stored, stored_key = self._stored(value), checked_key(key)
        extras = self._extras_of(headers, timestamp, partition, group)
        self._check_choice(stored_key, extras)
        number = self._checked_seqno(seqno)
        if self._alert:
            self._make_room()
        with self._lock:
            if due is not None:
                self._later.append(self._postponed(stored, stored_key, extras, due))
            elif not self._number(number, extras.group):
                return
            else:
                self._plain = False
                self._pending.extend((Special(stored, extras), stored_key, number)[: self._width])
            self._pending_bytes += weight((stored, stored_key, extras))
        self._look(weighed=True)

    def _postponed(self, stored: bytes | None, key: bytes | None, extras: Extras, due: Due) -> Postponed:
        own = extras._replace(group=extras.group or self._sender.group)
        codec = RAW if self._packing is None else self._packing.codec
        return postponed(self.open_topic, stored, key, own, due, codec)

    # What a producer's writer does otherwise.

    def _due_at(self, delay: Duration | None, deliver_at: int | datetime | None) -> Due | None:
        """When a message is to enter the topic; None for now."""
        if delay is None and deliver_at is None:
            return None
        if self._sender.choose is not None:
            raise InvalidOption(
                "a partitioner of one's own cannot be asked later", hint="give the partition of what waits"
            )
        return due_at(delay, deliver_at, self.open_topic.clock.now_ns())

    def _checked_seqno(self, seqno: int | None) -> int | None:
        if seqno is not None:
            raise self._without_producer()
        return None

    def _checked_seqnos(self, seqnos: Any, count: int) -> Sequence[int] | None:
        if seqnos is not None:
            raise self._without_producer()
        return None

    def _number(self, seqno: int | None, group: str | None) -> bool:
        """Give the next message its number; False when it is a duplicate. The lock is held."""
        return True

    def _columns(self, rows: Pairs, *, plain: bool) -> WriteBatch:
        """What is pending, as columns. The lock is held."""
        now = self.open_topic.clock.now_ns()
        width = self._width
        batch = pair_columns(rows[0::width], rows[1::width], now, plain=plain, extras=self._extras)
        return batch if self._packing is None else batch._replace(codec=self._packing.codec)

    def _append_batch(self, batch: WriteBatch, seqnos: Sequence[int] | None) -> None:
        """Append many at once. The lock is held."""
        for landed in self.open_topic.append(batch, self._sender):
            self._take(landed)

    def _without_producer(self) -> InvalidOption:
        return InvalidOption("a seqno needs a producer", hint="writer(producer_id=…)")

    def _check_choice(self, key: bytes | None, extras: Extras) -> None:
        """Ask a partitioner of the user's own before its message is accepted."""
        choose = self._sender.choose
        if choose is not None and key is not None and extras.partition is None:
            choose(key, len(self.open_topic))

    def _look(self, *, weighed: bool = False) -> None:
        """Append when there is a frame's worth, or when the first message has lingered long enough.

        Small messages are not weighed one by one: the last stands for those before it.
        """
        with self._lock:
            if not weighed and self._watched and self._pending:
                last = self._pending[-self._width]
                messages = LOOK_EVERY // self._width
                self._pending_bytes += messages * len(last if isinstance(last, bytes) else b"")
            if self._ending:
                self._refuse()
            if not self._watched:
                self._watched = True
                self._deadline = monotonic() + self._linger_s
                self._wake_thread()
            if not self._is_full() and monotonic() < self._deadline:
                return
            try:
                self._append_pending()
            except (PenstockError, OSError) as error:  # the message is accepted: it is the next call's
                self._failure, self._broken, self._alert = error, True, True

    def _is_full(self) -> bool:
        return self._pending_bytes >= _FRAME_WORTH_BYTES or len(self._pending) >= self._width * FRAME_MESSAGES

    def _make_room(self) -> None:
        """Before anything is accepted: raise what happened, append what is too much, wait for the disk."""
        with self._lock:
            if self._broken:
                self._raise_failure()
            if self._ending:
                self._refuse()
            if self._is_full():
                self._append_pending()
            self._wait_for_room()
            self._alert = False

    # Inside; the lock is held.

    def _pause_s(self) -> float | None:
        return self._deadline - monotonic() if self._pending or self._later else None

    def _append_lingered(self) -> None:
        if (self._pending or self._later) and monotonic() >= self._deadline:
            self._append_pending()

    def _append_pending(self) -> None:
        self._watched = False  # whoever adds a message from here on looks after it
        self._store_later()
        plain, self._plain = self._plain, True
        rows = self._pending[:]
        if not rows:
            self._pending_bytes = 0
            return
        size, self._pending_bytes = self._pending_bytes, 0
        width, done = self._width, list[Landed]()
        try:
            for landed in self.open_topic.append(self._columns(rows, plain=plain), self._sender):
                done.append(landed)
                self._take(landed)
        finally:
            places = _left(len(rows) // width, done)
            self._pending[: len(rows)] = [
                item for place in places for item in rows[width * place : width * (place + 1)]
            ]
            self._tried = len(places)
            if places:
                self._plain = False
                self._pending_bytes += size * len(places) * width // len(rows)

    def _store_later(self) -> None:
        """Store what is delayed, on disk; what cannot be stays here, and is tried again with the rest."""
        if self._later:
            durable = self._sync == "disk"
            self.open_topic.delayed.add(self.open_topic.name, self._later, durable=durable)
            self._written += len(self._later)
            self._later = []

    def _extras_of(
        self,
        headers: Mapping[str, str | bytes] | None,
        timestamp: int | datetime | None,
        partition: int | None,
        group: str | None,
    ) -> Extras:
        self.open_topic.check(partition)
        return checked_extras(self._merged(headers), timestamp, partition, group)

    def _merged(self, headers: Mapping[str, str | bytes] | None) -> Headers | None:
        """The writer's own headers, and over them the message's."""
        if self._headers is None or not headers:
            return checked_headers(headers) or self._headers
        return checked_headers({**self._headers, **headers})


def _left(count: int, done: Sequence[Landed]) -> Sequence[int]:
    """The places of messages that did not land anywhere."""
    if sum(len(landed.places) for landed in done) == count:
        return ()
    stored = {place for landed in done for place in landed.places}
    return [place for place in range(count) if place not in stored]


MIXED = "seqnos are given for all messages of a writer, or for none"
#: The first one that a writer gives to a producer that has stored nothing (B001-09).
_FIRST = 1


class ProducerWriter(Writer[V]):
    """Writes messages of one producer, each exactly once. Use it with `with`."""

    _width = 3

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._last = -1  # the last seqno accepted from the caller, or given when messages are appended
        self._passed = -1  # the last one that an append was tried with
        self._taken_over: set[str] = set()  # groups whose older writers are fenced
        #: What a seqno must be to take the short way in; not known before the first message.
        self._kind: type = Writer

    def write(
        self, value: V | str | Path | BinaryIO | None, *, key: Key = None,
        headers: Mapping[str, str | bytes] | None = None, partition: int | None = None,
        timestamp: int | datetime | None = None, group: str | None = None, seqno: int | None = None,
        delay: Duration | None = None, deliver_at: int | datetime | None = None,
    ) -> None:  # fmt: skip
        if (
            value.__class__ is not bytes
            or len(value) > self._small
            or (key is not None and (key.__class__ is not bytes or len(key) > KEY_BYTES_MAX))
            or headers is not None
            or timestamp is not None
            or partition is not None
            or group is not None
            or seqno.__class__ is not self._kind
            or (seqno is not None and not self._last < seqno <= SEQNO_MAX)
            or delay is not None
            or deliver_at is not None
            or self._alert
        ):
            self._due_at(delay, deliver_at)
            self._write_carefully(value, key, headers, timestamp, partition, group, seqno)
            return
        if seqno is not None:
            self._last = seqno
        pending = self._pending
        pending.extend((value, key, seqno))
        if not self._watched or not len(pending) % LOOK_EVERY:
            self._look()

    def last_seqno(self) -> int | None:
        pair = Pair(self._sender.producer_id, self._sender.group)
        self.open_topic.refresh()
        highest = max(log.appender.known(pair).seqno for log in self.open_topic.logs())
        return None if highest < 0 else highest

    # Inside.

    def _due_at(self, delay: Duration | None, deliver_at: int | datetime | None) -> Due | None:
        if delay is not None or deliver_at is not None:
            # It would come behind higher ones, and count as a duplicate: lost, and nobody told.
            raise InvalidOption(
                "a producer's messages are numbered as they enter the topic, so none can wait",
                hint="delay it by a writer without producer_id, by topic.write or in a transaction",
            )
        return None

    def _checked_seqno(self, seqno: int | None) -> int | None:
        if seqno is not None:
            checked_seqno(seqno)
        if self._kind not in (Writer, type(seqno)):
            raise InvalidOption(MIXED)
        return seqno

    def _checked_seqnos(self, seqnos: Any, count: int) -> Sequence[int] | None:
        numbers = None if seqnos is None else seqnos_of(seqnos, count)
        if self._kind not in (Writer, type(None) if numbers is None else int):
            raise InvalidOption(MIXED)
        return numbers

    # Inside; the lock is held.

    def _number(self, seqno: int | None, group: str | None) -> bool:
        if seqno is None:
            self._take_over(group or self._sender.group)
            return True
        refuse_back(seqno, self._last)
        self._kind = int
        if seqno == self._last:  # the same again
            self._append_pending()
            self._skip(1)
            return False
        self._last = seqno
        return True

    def _take_over(self, group: str) -> None:
        """See that only this writer numbers messages of the group from here on, and goes on behind them."""
        if self._kind is int:  # another thread was quicker
            raise InvalidOption(MIXED)
        if group not in self._taken_over:
            if self._pending:
                self._append_pending()  # with the numbers that they would have got
            highest = self._sender.take_over(self.open_topic, group)
            self._sender.automatic = True
            self._last = max(self._last, highest, _FIRST - 1)
            self._taken_over.add(group)
            self._kind = type(None)

    def _skip(self, count: int) -> None:
        """Duplicates of the last message; they went nowhere."""
        self._skipped += count
        self._note(StoredRun(-1, -1, count, duplicate=True))

    def _columns(self, rows: Pairs, *, plain: bool) -> WriteBatch:
        if self._kind is not int:
            self._fill_in(rows)
        numbers: list[int] = rows[2::3]  # type: ignore[assignment]
        seqnos = consecutive(numbers)
        self._refuse_race(numbers, is_sure=isinstance(seqnos, range))
        return super()._columns(rows, plain=plain)._replace(seqnos=seqnos)

    def _refuse_race(self, numbers: list[int], *, is_sure: bool) -> None:
        """Threads may overtake each other between the check of a seqno and its message's turn.

        Stored in that order, the smaller one would be taken for a duplicate.
        """
        fresh = numbers[self._tried] if self._tried < len(numbers) else self._passed + 1
        if fresh <= self._passed or not (is_sure or all(map(lt, numbers, islice(numbers, 1, None)))):
            raise InvalidOption(
                "threads gave a writer seqnos out of order: not all of them are stored",
                hint="number and write under one lock, or open a writer for each thread",
            )
        self._passed = numbers[-1]

    def _fill_in(self, rows: Pairs) -> None:
        """Number what has no number yet; what could not be appended before keeps its own."""
        for at in range(2, len(rows), 3):
            if rows[at] is None:
                count = (len(rows) - at + 2) // 3
                rows[at::3] = range(self._last + 1, self._last + 1 + count)
                self._last += count
                return

    def _append_batch(self, batch: WriteBatch, seqnos: Sequence[int] | None) -> None:
        count = len(batch.values)
        if seqnos is None:
            self._take_over(self._sender.group)
            first = self._last + 1
            self._last += count
            super()._append_batch(batch._replace(seqnos=range(first, first + count)), None)
            return
        refuse_back(seqnos[0], self._last)
        fresh = _growing(seqnos, self._last)
        if len(fresh) < count:
            batch, seqnos = batch.pick(fresh), [seqnos[place] for place in fresh]
        if fresh:
            super()._append_batch(batch._replace(seqnos=seqnos), None)
            self._last = seqnos[-1]
        self._kind = int
        if len(fresh) < count:
            self._skip(count - len(fresh))


def refuse_back(seqno: int, last: int) -> None:
    """Raise when a seqno is below the one that was accepted before it."""
    if seqno < last:
        raise InvalidOption(
            f"seqno {seqno} after {last}: it must grow within a writer",
            hint="to send messages again, open a new writer: what is stored is skipped",
        )


def _growing(seqnos: Sequence[int], last: int) -> Sequence[int]:
    """The places of those that are above the one before them."""
    if isinstance(seqnos, range):
        return range(1 if seqnos[0] == last else 0, len(seqnos))
    places = []
    for place, seqno in enumerate(seqnos):
        if seqno > last:
            places.append(place)
        last = seqno
    return places
