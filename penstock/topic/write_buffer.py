"""Messages that were handed over and have not left yet: for writers, transactions and coroutines.

A message is four items of one flat list: value, key, headers, and its timestamp or, for the few that have
more to say, a `Besides`. A list of tuples would cost five times as much, a lock twice as much as all the
rest: `list += tuple` is one step for all threads, and only the list's front is ever taken, under the owner's
lock.

What a call was given is checked by that call, by exact type where it is what most messages are, and copied if
the caller could change it. All else (lengths, routing, packing) is done by columns when the messages leave.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeGuard

from penstock.errors import InvalidOption, PenstockError
from penstock.headers import Headers, checked_headers
from penstock.keys import Key, checked_key
from penstock.log.frame import RAW
from penstock.log.frame_encode import FRAME_BYTES, FRAME_MESSAGES, MessageColumns
from penstock.parse import KEY_BYTES_MAX, KIB, TIME_MAX_NS, TIME_MIN_NS, Duration, identifier, nanoseconds
from penstock.references import Referenced
from penstock.topic.bodies import is_file, refuse_waiting_file
from penstock.topic.delayed import Extras
from penstock.topic.open_topic import OpenTopic
from penstock.topic.value_codec import Packing, checked_value
from penstock.topic.write_batch import WriteBatch

#: Items of a message.
WIDTH = 4
#: Messages up to this size are not weighed one by one.
_SMALL_BYTES = KIB
#: The owner looks once for so many messages.
_LOOK_EVERY = 512 * WIDTH
#: Values that, with keys and offsets, make a frame of somewhat less than 1 MiB.
FRAME_WORTH_BYTES = FRAME_BYTES * 3 // 4
_SAMPLED = 8


class Besides(NamedTuple):
    """What few messages have: stands in the place of the timestamp."""

    timestamp: int | None
    partition: int | None
    group: str | None
    seqno: int | None


#: Has a checked message (value, key, the rest) wait; False when it is due already.
Postpone = Callable[[bytes | None, bytes | None, Extras, Duration | None, int | datetime | None], bool]


def _is_short_text(key: Key) -> TypeGuard[str]:
    """Whether a key is text that encodes to a key as it is: the usual case, quickly seen."""
    return key.__class__ is str and key.isascii() and 0 < len(key) <= KEY_BYTES_MAX


class _Never:
    """No value is of this class."""


_NEVER: Any = _Never()
#: An interpreter that takes a comparison of text with bytes for a mistake must not be made to do so.
_MAY_COMPARE = not sys.flags.bytes_warning


class WriteBuffer:
    """Arguments of many `write` calls, checked; `look`, `admit` and `postpone` are what its owner does."""

    __slots__ = (
        "_admit", "_encode", "_exact", "_known", "_limit", "_look", "_own", "_packing", "_plain", "_postpone",
        "_small", "_topic", "alert", "at", "rows", "weight",
    )  # fmt: skip

    def __init__(
        self, topic: OpenTopic, packing: Packing | None, *, headers: Mapping[str, str | bytes] | None = None,
        look: Callable[[], None], admit: Callable[[bytes | None, Besides | None], bool],
        postpone: Postpone,
    ) -> None:  # fmt: skip
        self._topic = topic
        self._packing = packing
        self._limit: int = topic.options.value_bytes
        self._small: int = min(self._limit, _SMALL_BYTES)
        self._look = look
        self._admit = admit
        self._postpone = postpone
        #: Grows without the lock; only its front is taken, under the lock.
        self.rows: list[Any] = []
        #: Whoever makes it as long as this looks after it; 0: nobody does so yet.
        self.at: int = 0
        #: The owner wants to be asked before the next message is taken.
        self.alert: bool = False
        #: Bytes of large values, about: threads may overtake each other in counting.
        self.weight: int = 0
        #: The owner's headers, which messages have besides their own.
        self._own: Headers | None = _copied(headers)
        #: The last headers that were given, as a copy, and what is stored for them.
        self._known: tuple[Any, Headers | None] = (_NEVER, None)
        # What is stored as it is; what one call turns into bytes; and that call.
        self._plain: type = bytes if packing is None else _Never
        self._exact: type = str if packing is None else packing.exact or _Never
        self._encode: Callable[[Any], bytes] = str.encode if packing is None else packing.encode_exact

    # Keyword-only parameters that are not given are looked up one by one in a dict: eight cost as much
    # as all the checks. `_` keeps callers from giving them by position, and costs nothing.
    def add(
        self, value: Any, _: Any = _NEVER, key: Key = None, headers: Mapping[str, str | bytes] | None = None,
        partition: int | None = None, timestamp: int | datetime | None = None, group: str | None = None,
        seqno: int | None = None, delay: Duration | None = None, deliver_at: int | datetime | None = None,
    ) -> None:  # fmt: skip
        """Take one message, or refuse it."""
        if (
            partition is not None
            or group is not None
            or seqno is not None
            or delay is not None
            or deliver_at is not None
            or _ is not _NEVER
        ):
            if _ is not _NEVER:
                raise TypeError("write() takes one positional argument, the value: name the others")
            self._add_odd(value, key, headers, partition, timestamp, group, seqno, delay, deliver_at)
            return
        try:
            if value.__class__ is not self._plain:
                value = self._encode(value) if value.__class__ is self._exact else self._odd(value)
            if key.__class__ is not bytes and key is not None:
                key = key.encode() if key.__class__ is str else checked_key(key)
        except PenstockError:
            raise
        except Exception as error:
            raise self._refusal(value, error) from error
        if headers is not None:
            given, stored = self._known
            headers = stored if headers == given else self._new_headers(headers)
        else:
            headers = self._own
        if timestamp is not None and (
            timestamp.__class__ is not int or not TIME_MIN_NS <= timestamp <= TIME_MAX_NS
        ):
            timestamp = nanoseconds("timestamp", timestamp)
        if (
            self.alert
            or (value is not None and len(value) > self._small)
            or (key is not None and len(key) > KEY_BYTES_MAX)
        ) and not self._admitted(value, key, None):
            return
        rows = self.rows
        rows += value, key, headers, timestamp
        if len(rows) >= self.at:
            self._look()

    @property
    def count(self) -> int:
        """How many messages there are."""
        return len(self.rows) // WIDTH

    def is_full(self) -> bool:
        """Whether there is about as much as a frame takes: a few of the last stand for all small ones."""
        length = len(self.rows)
        if length >= WIDTH * FRAME_MESSAGES or self.weight >= FRAME_WORTH_BYTES:
            return True
        if not length:
            return False
        step = WIDTH * max(1, min(length, _LOOK_EVERY) // (WIDTH * _SAMPLED))
        sample = self.rows[-_LOOK_EVERY::step]
        small = sum(len(value) for value in sample if value is not None and len(value) <= self._small)
        return small * (length // WIDTH) >= len(sample) * FRAME_WORTH_BYTES

    def look_later(self) -> None:
        """Have the owner look again when some more have come."""
        length = len(self.rows)
        self.at = length + _LOOK_EVERY - length % _LOOK_EVERY

    def columns(self, rows: list[Any], now_ns: int) -> WriteBatch:
        """Rows as a batch; messages without a timestamp get the present one if others have their own."""
        values, keys, headers, besides = rows[0::4], rows[1::4], rows[2::4], rows[3::4]
        count = len(values)
        timestamps, partitions, groups, seqnos = _taken_apart(besides, now_ns)
        columns = MessageColumns(
            values,
            None if keys.count(None) == count else keys,
            None if headers.count(None) == count else headers,
            timestamps,
            seqnos=seqnos,
            codecs=RAW if self._packing is None else self._packing.codec,
        )
        return WriteBatch(columns, partitions, groups)

    def merged(self, headers: Headers | None) -> Headers | None:
        """The owner's headers, and over them a message's own; checked."""
        if self._own is None or not headers:
            return checked_headers(headers) or self._own
        return checked_headers({**self._own, **headers})

    @property
    def own_headers(self) -> Headers | None:
        return self._own

    def stored(self, file: Path | BinaryIO) -> bytes | None:
        """The body of a file, stored now, while it can be read: what stands for it, or its bytes if few."""
        body = self._topic.bodies.outside(file)
        if self._packing is None or isinstance(body, Referenced):
            return checked_value(body, self._limit)
        return self._packing.body(body)

    # What is odd, in the same call.

    def _odd(self, value: Any) -> bytes | None:
        """A value as it is stored, if it can be."""
        if is_file(value):
            return self.stored(value)
        return checked_value(value, self._limit) if self._packing is None else self._packing.one(value)

    def _refusal(self, value: Any, error: Exception) -> Exception:
        """What is wrong with a value or a key that cannot be encoded."""
        if self._packing is not None:
            self._packing.one(value)  # says so
        if isinstance(error, UnicodeEncodeError):
            what = "value" if error.object is value else "key"
            return InvalidOption(f"the {what} holds a lone surrogate and cannot be stored as UTF-8")
        return error

    def _new_headers(self, headers: Mapping[str, str | bytes]) -> Headers | None:
        if not headers:
            return self._own
        own = _copied(headers)
        stored = self.merged(own)
        if _MAY_COMPARE:
            self._known = own, stored
        return stored

    def _add_odd(
        self, value: Any, key: Key, headers: Mapping[str, str | bytes] | None, partition: int | None,
        timestamp: int | datetime | None, group: str | None, seqno: int | None, delay: Duration | None,
        deliver_at: int | datetime | None,
    ) -> None:  # fmt: skip
        """Take a message that has something to say of its place, its number or its time to come."""
        waits = delay is not None or deliver_at is not None
        if waits and value.__class__ not in (bytes, str):
            refuse_waiting_file(value)
        if partition is not None:
            self._topic.check(partition)
        moment = None if timestamp is None else nanoseconds("timestamp", timestamp)
        name = None if group is None else identifier("group", group)
        stored: bytes | None = value if value.__class__ is bytes is self._plain else self._odd(value)
        stored_key = key.encode() if _is_short_text(key) else checked_key(key)
        own = self._own if headers is None else self._new_headers(headers)
        if waits and self._postpone(
            stored, stored_key, Extras(own, moment, partition, name), delay, deliver_at
        ):
            return
        besides = Besides(moment, partition, name, seqno)
        if not self._admitted(stored, stored_key, besides):
            return
        rows = self.rows
        rows += stored, stored_key, own, besides
        if len(rows) >= self.at:
            self._look()

    def _admitted(self, value: bytes | None, key: bytes | None, besides: Besides | None) -> bool:
        """Weigh what is large, refuse what is too large, and ask the owner; False when it took it itself."""
        if key is not None and len(key) > KEY_BYTES_MAX:
            checked_key(key)
        if value is not None and len(value) > self._small:
            checked_value(value, self._limit)
            self.weight += len(value)
            if self.weight >= FRAME_WORTH_BYTES and self.at:
                self.at = 1
        is_asked = self.alert or (
            besides is not None and (besides.seqno is not None or besides.group is not None)
        )
        return not is_asked or self._admit(key, besides)


def _copied(headers: Mapping[str, str | bytes] | None) -> Headers | None:
    """Headers of one's own: the caller may change theirs."""
    checked = checked_headers(headers)
    return None if checked is None else dict(checked)


def _taken_apart(
    besides: list[Any], now_ns: int
) -> tuple[list[int] | None, list[int | None] | None, list[str | None] | None, list[int | None] | None]:
    """Timestamps, partitions, groups and seqnos, where anybody has one."""
    count = len(besides)
    if besides.count(None) == count:
        return None, None, None, None
    kinds = set(map(type, besides))
    if Besides not in kinds:
        return (besides if len(kinds) == 1 else _filled(besides, now_ns)), None, None, None
    whole = [each if each.__class__ is Besides else (each, None, None, None) for each in besides]
    timestamps, partitions, groups, seqnos = map(list, zip(*whole, strict=True))
    return (
        None if timestamps.count(None) == count else _filled(timestamps, now_ns),
        None if partitions.count(None) == count else partitions,
        None if groups.count(None) == count else groups,
        None if seqnos.count(None) == count else seqnos,
    )


def _filled(timestamps: list[int | None], now_ns: int) -> list[int]:
    return [now_ns if moment is None else moment for moment in timestamps]
