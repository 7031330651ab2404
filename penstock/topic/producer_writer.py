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
from typing import Any, BinaryIO

from penstock.errors import InvalidOption
from penstock.keys import Key
from penstock.log.producers import Pair
from penstock.message import Stored, V
from penstock.options import KEY_BYTES_MAX, SEQNO_MAX, Duration
from penstock.topic.buffer import Pairs
from penstock.topic.checks import checked_seqno
from penstock.topic.framing import Outgoing
from penstock.topic.outgoing import consecutive, seqnos_of
from penstock.topic.writer import LOOK_EVERY, Writer

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
        self._partitions.refresh()
        highest = max(log.appender.known(pair).seqno for log in self._partitions.logs())
        return None if highest < 0 else highest

    # Inside.

    def _due_at(self, delay: Duration | None, deliver_at: int | datetime | None) -> int | None:
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
            highest = self._sender.take_over(self._partitions, group)
            self._sender.automatic = True
            self._last = max(self._last, highest, _FIRST - 1)
            self._taken_over.add(group)
            self._kind = type(None)

    def _skip(self, count: int) -> None:
        """Duplicates of the last message; they went nowhere."""
        self._skipped += count
        self._note(Stored(-1, -1, count, duplicate=True))

    def _columns(self, rows: Pairs, *, plain: bool) -> Outgoing:
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

    def _append_batch(self, batch: Outgoing, seqnos: Sequence[int] | None) -> None:
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
