"""`PartitionRetries`: messages of a partition that wait for another attempt; `Envelope`: one as stored."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from penstock import codecs, references
from penstock.delay.records import DATA_BYTES_MAX, NewRecord, uuid7
from penstock.delay.waiting import WaitingMessages
from penstock.delay.window import TakenMessage
from penstock.errors import DataError, MessageTooLarge, PartitionLost, TakenElsewhere, Unavailable
from penstock.headers import NO_HEADERS
from penstock.message import LazyMessage, Message
from penstock.parse import KIB, MIB
from penstock.topic.delayed import retries_folder
from penstock.topic.open_topic import OpenTopic

#: A record has a few bytes besides its message.
BYTES_MAX = DATA_BYTES_MAX - KIB
#: A body outside the log comes along up to this size.
_BODY_BYTES = MIB
#: Of an error's text so much is kept.
_ERROR_CHARACTERS = 1000
_TRACEBACK_CHARACTERS = 4000


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """What is stored as the data of a waiting record (docs/FORMAT.md); fields are only ever added."""

    topic_id: int
    partition: int
    offset: int
    key: bytes | None
    #: As it lies in the log, packed by `codec`.
    value: bytes | None
    codec: int
    timestamp: int
    written_at: int
    #: Values are text or bytes.
    headers: dict[str, Any]
    producer_id: str | None
    group: str | None
    seqno: int | None
    first_error: str = ""
    last_error: str = ""
    #: Where the last error was raised, as Python shows it; its end, if it is long.
    traceback: str = ""

    def message(self, topic: str, attempt: int) -> Message[Any]:
        """The message as its consumer gets it."""
        name = codecs.name_of(self.codec)
        kind = Message if self.codec == codecs.RAW or self.value is None else LazyMessage
        return kind(
            topic, self.partition, self.offset, self.key, self.value, self.timestamp, self.written_at,
            self.headers or NO_HEADERS, self.producer_id, self.group, self.seqno, name, attempt,
        )  # fmt: skip

    def failed(self, error: BaseException | str | None) -> Envelope:
        """The envelope after one more failure; unchanged when no error is given."""
        if error is None or not (text := error_text(error)):
            return self
        return msgspec.structs.replace(
            self, first_error=self.first_error or text, last_error=text, traceback=traceback_text(error)
        )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def enclosed(message: Message[Any], topic_id: int) -> Envelope:
    """Make the envelope of a message that the log delivered and that waits for the first time."""
    stored, number = _kept(message)
    return Envelope(
        topic_id, message.partition, message.offset, message.key, stored, number, message.timestamp,
        message.written_at, dict(message.headers), message.producer_id, message.group, message.seqno,
    )  # fmt: skip


def _kept(message: Message[Any]) -> tuple[bytes | None, int]:
    """What waits of a value, and its codec: a body outside the log comes along unless it is large.

    A large one stays where it is, and so does one that cannot be had now: waiting must not fail for it.
    """
    if type(message) is Message and message.codec == "raw":
        return message.value, codecs.RAW
    reference = message.reference
    if reference is not None and reference.size <= _BODY_BYTES:
        with suppress(DataError, Unavailable):
            where = f"offset {message.offset} of {message.topic!r} partition {message.partition}"
            return references.fetch(reference, where), reference.codec
    return message.stored, codecs.stored_number(message.codec)


def encoded(envelope: Envelope) -> bytes:
    """The bytes that wait; raises `MessageTooLarge` when they are more than a record may have."""
    data = _encoder.encode(envelope)
    if len(data) > BYTES_MAX:
        raise MessageTooLarge(
            f"offset {envelope.offset} of partition {envelope.partition} is too large to wait: "
            f"{len(data)} bytes",
            hint=f"{BYTES_MAX} bytes can wait, with key and headers: handle it, or reject it",
        )
    return data


def decode(data: bytes) -> Envelope:
    """Decode the envelope in which a message waits for another attempt."""
    return _decoder.decode(data)


def waiting_id(consumer: str, envelope: Envelope, attempts: int) -> bytes:
    """The id of one attempt of a message by a consumer: should a crash store it twice, both have it."""
    origin = (consumer, envelope.topic_id, envelope.partition, envelope.offset, attempts)
    digest = blake2b(_encoder.encode(origin), digest_size=10).digest()
    return uuid7(envelope.written_at // 1_000_000, int.from_bytes(digest, "big"))


def error_text(error: BaseException | str | None) -> str:
    """What is kept of an error: its kind and what it says."""
    if error is None:
        return ""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    # A lone surrogate (a broken file name, say) cannot be stored as UTF-8.
    return text[:_ERROR_CHARACTERS].encode(errors="backslashreplace").decode()


def traceback_text(error: BaseException | str | None) -> str:
    """Where an error was raised; empty for one that is only text, or was never raised."""
    if not isinstance(error, BaseException) or error.__traceback__ is None:
        return ""
    lines = traceback.format_exception(error)
    return "".join(lines)[-_TRACEBACK_CHARACTERS:].encode(errors="backslashreplace").decode()


#: How often one looks without being told: for a folder that another process made, or a hint that was lost.
_LOOK_AGAIN_S = 1.0
_NEVER_MS = 2**63


class OutMessage(NamedTuple):
    """A message that was delivered, where it lies, and what it was made of."""

    message: Message[Any]
    envelope: Envelope
    #: More than one when a crash left duplicates.
    records: list[TakenMessage]


class PartitionRetries:
    """The waiting messages of one partition; used under its reader's mutex, but for `close`.

    With `shared`, other readers have the partition too, and any of them may be the one that schedules.
    """

    def __init__(
        self, topic: OpenTopic, partition: int, consumer: str, ring: Callable[[], None], *,
        shared: bool = False,
    ) -> None:  # fmt: skip
        self._shared = shared
        self._topic = topic
        self._consumer = consumer
        self._ring = ring
        self._folder = retries_folder(topic, consumer, partition)
        self._key = (topic.name, partition)
        self._waiting: WaitingMessages | None = None
        self._closed = False
        #: By offset.
        self._out: dict[int, OutMessage] = {}
        #: Taken from the files, not yet delivered.
        self._fetched: deque[Message[Any]] = deque()
        #: Nothing is due before; as of the last look.
        self._next_due_ms = 0
        self._look_again_at = 0.0
        #: By key: offsets that wait, and when they are due. None until somebody asks for order.
        self._by_key: dict[bytes, dict[int, int]] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether all that was delivered is done."""
        return len(self._out) == len(self._fetched)

    def close(self) -> None:
        """Release the files; what is not done is delivered again to the reader that gets the partition."""
        self._closed = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.close()

    # Handing out.

    def take(self, max_messages: int, max_bytes: int) -> list[Message[Any]]:
        """What is due now, the earliest first, within the limits but one message at least; mostly nothing."""
        if not self._fetched and not self._fetch(max_messages):
            return []
        found: list[Message[Any]] = []
        weight = 0
        while self._fetched and len(found) < max_messages:
            weight += len(self._fetched[0].key or b"") + len(self._fetched[0].stored or b"")
            if found and weight > max_bytes:
                break
            found.append(self._fetched.popleft())
            self._left(found[-1])
        return found

    def move_due(self, limit: int, add: Callable[[list[tuple[int, int, bytes]]], None]) -> bool:
        """Give what is due to `add`, as (offset, attempts, data), and finish it; whether there was any."""
        if not self._may_fetch():
            return False
        waiting = self._opened()
        self._next_due_ms = 0  # somebody may store while we look
        taken = waiting.take(limit)
        if taken:
            add([(decode(each.data).offset, each.attempts, each.data) for each in taken])
            waiting.finish(taken)
            waiting.ring()
        due_ms = waiting.next_due()
        self._next_due_ms = _NEVER_MS if due_ms is None else due_ms
        return bool(taken)

    def put_back(self, offsets: Sequence[int]) -> None:
        """Put messages back that were not delivered after all: they come next."""
        there = [self._out[offset].message for offset in offsets if offset in self._out]
        self._fetched.extendleft(reversed(there))
        for message in there:
            self._note(message.key, message.offset, 0)

    def due_in_s(self) -> float:
        """How long until something is to be done here, as far as is known."""
        if self._fetched:
            return 0.0
        if self._waiting is None or self._next_due_ms == _NEVER_MS:
            return _LOOK_AGAIN_S
        return max(self._next_due_ms - self._now_ms(), 0) / 1000

    @property
    def seems_due(self) -> bool:
        """Whether something may be delivered now; looks into no file."""
        return bool(self._fetched) or (self._waiting is not None and self._now_ms() >= self._next_due_ms)

    @property
    def reads_files(self) -> bool:
        """Whether the next `take` looks into files, which may take a moment."""
        return self._waiting is not None and not self._fetched and self._is_worth_a_look()

    @property
    def has_out(self) -> bool:
        """Whether something was delivered from here and is not done."""
        return bool(self._out)

    def out(self, offset: int) -> OutMessage | None:
        """What was delivered from here and is not done, at an offset."""
        return self._out.get(offset)

    def finish(self, first: int, stop: int) -> bool:
        """Finish messages `first` to `stop` that came from here; return whether any did.

        Raises `PartitionLost` when another member hands them out now.
        """
        if not self._out:
            return False
        offsets = [first] if stop == first + 1 else [each for each in self._out if first <= each < stop]
        done = [self._out.pop(offset) for offset in offsets if offset in self._out]
        if not done:
            return False
        try:
            self._opened().finish([record for each in done for record in each.records])
        except TakenElsewhere as error:
            raise PartitionLost(
                f"{self._key[0]!r} partition {self._key[1]} went to another member, with what waited of it",
                hint="what was not committed comes again there: go on receiving",
            ) from error
        except BaseException:
            self._out.update({each.message.offset: each for each in done})
            raise
        return True

    # Storing.

    def store(self, enclosed: Envelope, *, wait_s: float, attempts: int, fixed: bool = False) -> None:
        """Store a message for another attempt; it is as safe as its topic's messages when this returns.

        `attempts` is how often it was tried: it comes back as the next one. `fixed` waits are those that
        other messages wait too (`WaitingMessages.store`).
        """
        now = -(-self._topic.clock.now_ns() // 1_000_000)  # both rounded up: nothing comes too early
        wait_ms = -(-round(wait_s * 1_000_000) // 1000)
        number = waiting_id(self._consumer, enclosed, attempts)
        record = NewRecord(wait_ms, number, self._key[0], attempts, encoded(enclosed))
        self._opened().store_one(record, now, fixed=fixed)
        due_ms = now + wait_ms
        self._next_due_ms = min(self._next_due_ms, due_ms)
        self._note(enclosed.key, enclosed.offset, due_ms)

    # The order of a key.

    def earlier_due_ms(self, key: bytes, offset: int) -> int | None:
        """When an earlier message of a key that waits here is due; None when none does.

        The first call reads all that waits, and from then on their keys are kept in memory.
        """
        if self._by_key is None:
            self._by_key = {}
            for record in self._opened().scan() if self._is_there() else ():
                found = decode(record.data)
                if found.offset not in self._out:
                    self._note(found.key, found.offset, record.due)
            for message in self._fetched:
                self._note(message.key, message.offset, 0)
        offsets = self._by_key.get(key)
        return None if not offsets else min((due for at, due in offsets.items() if at < offset), default=None)

    def _note(self, key: bytes | None, offset: int, due_ms: int) -> None:
        if self._by_key is not None and key is not None:
            self._by_key.setdefault(key, {})[offset] = due_ms

    def _left(self, message: Message[Any]) -> None:
        if self._by_key is not None and message.key is not None:
            offsets = self._by_key.get(message.key, {})
            offsets.pop(message.offset, None)
            if not offsets:
                self._by_key.pop(message.key, None)

    # Inside.

    def _fetch(self, limit: int) -> bool:
        """Take what is due from the files, if it is worth a look."""
        if not self._may_fetch():
            return False
        waiting = self._opened()
        self._next_due_ms = 0  # somebody may store while we look
        for record in waiting.take(limit):
            self._add(record)
        if not self._fetched:
            due_ms = waiting.next_due()
            self._next_due_ms = _NEVER_MS if due_ms is None else due_ms
        return bool(self._fetched)

    def _may_fetch(self) -> bool:
        """Whether something may be due in the files, which are there."""
        if self._closed or not self._is_worth_a_look():
            return False
        self._look_again_at = time.monotonic() + _LOOK_AGAIN_S
        if not self._is_there():
            self._next_due_ms = _NEVER_MS
            return False
        return True

    def _is_worth_a_look(self) -> bool:
        return self._now_ms() >= self._next_due_ms or time.monotonic() >= self._look_again_at

    def _add(self, record: TakenMessage) -> None:
        found = decode(record.data)
        there = self._out.get(found.offset)
        if there is not None:  # a crash left a second record of it: done with the first
            there.records.append(record)
            return
        message = found.message(self._key[0], record.attempts + 1)
        self._out[found.offset] = OutMessage(message, found, [record])
        self._fetched.append(message)

    def _is_there(self) -> bool:
        return self._waiting is not None or self._topic.files.exists(self._folder)

    def _opened(self) -> WaitingMessages:
        if self._waiting is None:
            self._topic.require_open()
            if self._closed:
                raise PartitionLost(
                    f"{self._key[0]!r} partition {self._key[1]} is not read by this reader any more",
                    hint="what was not committed comes again, here or to another member: go on receiving",
                )
            waiting = WaitingMessages(
                self._folder, self._topic.files, self._topic.clock, sync=self._topic.options.sync
            )
            waiting.listen(self._hear)
            if not self._shared and waiting.holder is not None:
                waiting.kick()  # it has lost the partition, and does not know, or cannot act on it
            self._waiting = waiting
        return self._waiting

    def _hear(self) -> None:
        """Somebody stored something. Called from any thread."""
        self._next_due_ms = 0
        self._ring()

    def _now_ms(self) -> int:
        return self._topic.clock.now_ns() // 1_000_000
