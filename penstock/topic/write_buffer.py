"""The buffer of a writer, a transaction or a coroutine: messages that were accepted and not yet appended.

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
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, BinaryIO

from penstock.errors import InvalidOption, PenstockError
from penstock.headers import Headers, checked_headers
from penstock.keys import Key, checked_key
from penstock.log.frame import RAW
from penstock.log.frame_encode import FRAME_BYTES, FRAME_MESSAGES, MessageColumns
from penstock.parse import (
    HEADERS_BYTES_MAX,
    KEY_BYTES_MAX,
    KIB,
    TIME_MAX_NS,
    TIME_MIN_NS,
    Duration,
    all_are,
    identifier,
    nanoseconds,
)
from penstock.references import Referenced
from penstock.topic.bodies import is_file, refuse_waiting_file
from penstock.topic.delayed import NO_EXTRAS, Extras
from penstock.topic.open_topic import OpenTopic
from penstock.topic.value_codec import ValuePacker, checked_value
from penstock.topic.write_batch import WriteBatch

#: Items of a message.
WIDTH = 4
#: Messages up to this size are not weighed one by one.
_SMALL_BYTES = KIB
#: The owner looks once for so many messages.
_LOOK_EVERY = 512 * WIDTH
#: Values that, with keys and offsets, make a frame of somewhat less than 1 MiB.
FRAME_WORTH_BYTES = FRAME_BYTES * 3 // 4
_FRAMES_MOST = 4
_SAMPLED = 8


#: What few messages have, in the place of the timestamp: timestamp, partition, group, seqno.
Besides = tuple[int | None, int | None, str | None, int | None]
#: In the place of the timestamp of a message that is not to be stored again.
SKIP: Any = object()


#: What stands in the place of the timestamp for a seqno, timestamp, partition, group and key; or `SKIP`.
Number = Callable[[int | None, int | None, int | None, str | None, bytes | None], Any]
#: Has a checked message (value, key, the rest) wait; False when it is due already.
Postpone = Callable[[bytes | None, bytes | None, Extras, Duration | None, int | datetime | None], bool]


class _Never:
    """A class that no value has."""


_NEVER: Any = _Never()
#: An interpreter that takes a comparison of text with bytes for a mistake must not be made to do so.
_MAY_COMPARE = not sys.flags.bytes_warning


class WriteBuffer:
    """Arguments of many `write` calls, checked.

    What its owner does: `look` after what has gathered, `admit` a key (and whether its partition was chosen)
    when it asked to, `number` a message (by its seqno, timestamp, partition, group, key), `postpone` one.
    """

    __slots__ = (
        "_admit", "_encode", "_exact", "_frames", "_known", "_limit", "_look", "_number", "_own", "_packer",
        "_plain", "_postpone", "_small", "_topic", "_worth", "alert", "at", "last", "last_key", "lasts",
        "numbered", "rows", "weight",
    )  # fmt: skip

    def __init__(
        self, topic: OpenTopic, packer: ValuePacker | None, *,
        headers: Mapping[str, str | bytes] | None = None, look: Callable[[], None],
        admit: Callable[[bytes | None, bool], None], number: Number, postpone: Postpone,
    ) -> None:  # fmt: skip
        self._topic = topic
        self._packer = packer
        self._limit: int = topic.options.value_bytes
        self._small: int = min(self._limit, _SMALL_BYTES)
        #: So many frames gather: one for each partition, if those are few.
        self._frames: int = min(len(topic.active()), _FRAMES_MOST)
        self._worth: int = self._frames * FRAME_WORTH_BYTES
        self._look = look
        self._admit = admit
        self._number = number
        self._postpone = postpone
        #: Grows without the lock; only its front is taken, under the lock.
        self.rows: list[Any] = []
        #: Whoever makes it as long as this looks after it; 0: nobody does so yet.
        self.at: int = 0
        #: The owner wants to be asked before the next message is taken.
        self.alert: bool = False
        #: The owner has to be asked for the number of each message.
        self.numbered: bool = False
        #: The last seqno that came with a message, or -1. It moves with the message, without a call between:
        #: an interrupt must not leave a number behind whose message was not taken.
        self.last: int = -1
        #: The key of that message.
        self.last_key: bytes | None = None
        #: The last seqno and its key of each group that messages named themselves: it numbers its own.
        self.lasts: dict[str, tuple[int, bytes | None]] = {}
        #: Bytes of large values, about: threads may overtake each other in counting.
        self.weight: int = 0
        #: The owner's headers, which messages have besides their own.
        self._own: Headers | None = _copied(headers)
        #: The last headers that were given, as a copy, and what is stored for them.
        self._known: tuple[Any, Headers | None] = (_NEVER, None)
        # What is stored as it is; what one call turns into bytes; and that call.
        self._plain: type = bytes if packer is None else _Never
        self._exact: type = str if packer is None else packer.exact or _Never
        self._encode: Callable[[Any], bytes] = str.encode if packer is None else packer.encode_exact

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
            if headers is not None:
                given, stored = self._known
                headers = stored if headers == given else self._new_headers(headers)
            else:
                headers = self._own
        except PenstockError:
            raise
        except Exception as error:
            raise self._refusal(value, key, headers, error) from error
        if timestamp is not None and (
            timestamp.__class__ is not int or not TIME_MIN_NS <= timestamp <= TIME_MAX_NS
        ):
            timestamp = nanoseconds("timestamp", timestamp)
        if (
            self.alert
            or (value is not None and len(value) > self._small)
            or (key is not None and len(key) > KEY_BYTES_MAX)
        ):
            self._admit_odd(value, key, False)
        if seqno is not None or self.numbered:
            timestamp = self._number(seqno, timestamp, None, None, key)
            if timestamp is SKIP:
                return
        rows = self.rows
        rows += value, key, headers, timestamp
        if seqno is not None:
            self.last = seqno
            self.last_key = key
        if len(rows) >= self.at:
            self._look()

    @property
    def count(self) -> int:
        """How many messages there are."""
        return len(self.rows) // WIDTH

    def is_full(self) -> bool:
        """Whether there is about as much as a frame takes: a few of the last stand for all small ones."""
        length = len(self.rows)
        if length >= WIDTH * FRAME_MESSAGES * self._frames or self.weight >= self._worth:
            return True
        if not length:
            return False
        step = WIDTH * max(1, min(length, _LOOK_EVERY) // (WIDTH * _SAMPLED))
        sample = self.rows[-_LOOK_EVERY::step]
        small = sum(len(value) for value in sample if value is not None and len(value) <= self._small)
        return small * (length // WIDTH) >= len(sample) * self._worth

    def look_later(self) -> None:
        """Have the owner look again when some more have come."""
        length = len(self.rows)
        self.at = length + _LOOK_EVERY - length % _LOOK_EVERY

    def columns(self, rows: list[Any], now_ns: int) -> WriteBatch:
        """Rows as a batch; messages without a timestamp get the present one if others have their own."""
        values, keys, headers, besides = rows[0::4], rows[1::4], rows[2::4], rows[3::4]
        timestamps, partitions, groups, seqnos = _taken_apart(besides, now_ns)
        columns = MessageColumns(
            values,
            None if _is_unused(keys) else keys,
            None if _is_unused(headers) else headers,
            timestamps,
            seqnos=seqnos,
            codecs=RAW if self._packer is None else self._packer.codec,
        )
        return WriteBatch(columns, partitions, groups)

    def took(self, seqno: int, key: bytes | None, group: str | None) -> None:
        """Note the seqno of a message that another buffer has taken."""
        if group is None:
            self.last, self.last_key = seqno, key
        else:
            self.lasts[group] = seqno, key

    def last_of(self, group: str | None) -> tuple[int, bytes | None]:
        """The last seqno of a group that messages name, or of those without one, and that message's key."""
        return (self.last, self.last_key) if group is None else self.lasts.get(group, (-1, None))

    def merged(self, headers: Headers | None) -> Headers | None:
        """The owner's headers, and over them a message's own; checked."""
        if self._own is None or not headers:
            return checked_headers(headers) or self._own
        return checked_headers({**self._own, **headers})

    @property
    def own_headers(self) -> Headers | None:
        """The headers that every message of the writer gets; None if there are none."""
        return self._own

    def stored(self, file: Path | BinaryIO) -> bytes | None:
        """The body of a file, stored now, while it can be read: what stands for it, or its bytes if few."""
        body = self._topic.bodies.outside(file)
        if self._packer is None or isinstance(body, Referenced):
            return checked_value(body, self._limit)
        return self._packer.body(body)

    # What is odd, in the same call.

    def _odd(self, value: Any) -> bytes | None:
        """Return a value that is not plain bytes as it is stored; raise for what cannot be."""
        if is_file(value):
            return self.stored(value)
        return checked_value(value, self._limit) if self._packer is None else self._packer.one(value)

    def _refusal(self, value: Any, key: Any, headers: Any, error: Exception) -> Exception:
        """What is wrong with a value or a key that cannot be encoded, or with headers."""
        if isinstance(error, UnicodeEncodeError) and error.object is key:
            checked_key(key)  # says so
        checked_headers(headers)
        if self._packer is not None:
            self._packer.one(value)
        checked_value(value, self._limit)
        return error

    def _new_headers(self, headers: Mapping[str, str | bytes]) -> Headers | None:
        """A copy of headers that differ from the last ones, checked; the next ones may be equal to it."""
        if headers.__class__ is dict and self._own is None:
            own = headers.copy()
            try:
                text = "".join([*own, *own.values()])
                if text and text.isascii() and len(text) <= HEADERS_BYTES_MAX:
                    if _MAY_COMPARE:
                        self._known = own, own
                    return own
            except TypeError:  # some are bytes, or wrong
                pass
        if not headers:
            return self._own
        copied = _copied(headers)
        stored = self.merged(copied)
        if _MAY_COMPARE:
            self._known = copied, stored
        return stored

    def _add_odd(
        self, value: Any, key: Key, headers: Mapping[str, str | bytes] | None, partition: int | None,
        timestamp: int | datetime | None, group: str | None, seqno: int | None, delay: Duration | None,
        deliver_at: int | datetime | None,
    ) -> None:  # fmt: skip
        """Take a message with a partition, a group, a seqno, a timestamp or a delay of its own."""
        waits = delay is not None or deliver_at is not None
        if waits and value.__class__ not in (bytes, str):
            refuse_waiting_file(value)
        if waits and seqno is not None:
            raise InvalidOption("a seqno needs a producer, and of a producer's messages none can wait")
        if partition is not None:
            self._topic.growth.require_active(partition)
        moment = None if timestamp is None else nanoseconds("timestamp", timestamp)
        name = None if group is None else identifier("group", group)
        stored: bytes | None = value if value.__class__ is bytes is self._plain else self._odd(value)
        if key.__class__ is str and key.isascii() and 0 < len(key) <= KEY_BYTES_MAX:
            stored_key: bytes | None = key.encode()
        else:
            stored_key = checked_key(key)
        own = self._own if headers is None else self._new_headers(headers)
        if waits:
            is_plain = own is None and moment is None and partition is None and name is None
            extras = NO_EXTRAS if is_plain else Extras(own, moment, partition, name)
            if self._postpone(stored, stored_key, extras, delay, deliver_at):
                return
        self._admit_odd(stored, stored_key, partition is not None)
        besides: Any = moment, partition, name, None
        if seqno is not None or name is not None or self.numbered:
            besides = self._number(seqno, moment, partition, name, stored_key)
            if besides is SKIP:
                return
            name = besides[2] if besides.__class__ is tuple else None
        rows, lasts = self.rows, self.lasts
        rows += stored, stored_key, own, besides
        if seqno is not None:
            if name is None:
                self.last = seqno
                self.last_key = stored_key
            else:
                lasts[name] = seqno, stored_key
        if len(rows) >= self.at:
            self._look()

    def _admit_odd(self, value: bytes | None, key: bytes | None, is_placed: bool) -> None:
        """Weigh what is large, refuse what is too large, and ask the owner if it wants to be asked."""
        if key is not None and len(key) > KEY_BYTES_MAX:
            checked_key(key)
        if value is not None and len(value) > self._small:
            checked_value(value, self._limit)
            self.weight += len(value)
            if self.weight >= self._worth and self.at:
                self.at = 1
        if self.alert:
            self._admit(key, is_placed)


def _shown(function: Callable[..., None]) -> Signature:
    """The signature that callers have to keep to: what follows `_` is given by its name."""
    own, value, _, *named = signature(function).parameters.values()
    return Signature([own, value, *(each.replace(kind=Parameter.KEYWORD_ONLY) for each in named)])


WriteBuffer.add.__signature__ = _shown(WriteBuffer.add)  # type: ignore[attr-defined]
WriteBuffer.add.__qualname__ = "Writer.write"  # as callers know it, for what Python says of wrong arguments


def _copied(headers: Mapping[str, str | bytes] | None) -> Headers | None:
    """Copy headers: the caller may change the originals."""
    checked = checked_headers(headers)
    return None if checked is None else dict(checked)


def _taken_apart(
    besides: list[Any], now_ns: int
) -> tuple[list[int] | None, list[int | None] | None, list[str | None] | None, list[int | None] | None]:
    """Timestamps, partitions, groups and seqnos, where anybody has one."""
    if _is_unused(besides):
        return None, None, None, None
    if all_are(int, besides):
        return besides, None, None, None
    if tuple not in set(map(type, besides)):
        return _filled(besides, now_ns), None, None, None
    whole = [each if each.__class__ is tuple else (each, None, None, None) for each in besides]
    timestamps, partitions, groups, seqnos = map(list, zip(*whole, strict=True))
    return (
        None if _is_unused(timestamps) else _filled(timestamps, now_ns),
        None if _is_unused(partitions) else partitions,
        None if _is_unused(groups) else groups,
        None if _is_unused(seqnos) else seqnos,
    )


def _is_unused(column: list[Any]) -> bool:
    """Whether no message has this column; mostly the first one tells."""
    return column[0] is None and column.count(None) == len(column)


def _filled(timestamps: list[int | None], now_ns: int) -> list[int]:
    return [now_ns if moment is None else moment for moment in timestamps]
