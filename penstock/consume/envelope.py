"""A message as it waits for another attempt: all it had in its topic, and what went wrong.

It carries its own bytes instead of pointing at the log, so that retention may take the original meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from typing import Any

import msgspec

from penstock import codecs, references
from penstock.delay.records import DATA_BYTES_MAX
from penstock.errors import DataError, MessageTooLarge, Unavailable
from penstock.headers import NO_HEADERS
from penstock.message import Message, Unopened
from penstock.options import KIB, MIB

#: A record has a few bytes besides its message.
BYTES_MAX = DATA_BYTES_MAX - KIB
#: A body outside the log comes along up to this size.
_BODY_BYTES = MIB
#: Of an error's text so much is kept.
_ERROR_CHARACTERS = 1000


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

    def message(self, topic: str, attempt: int) -> Message[Any]:
        """The message as its consumer gets it."""
        name = codecs.name_of(self.codec)
        is_plain = self.codec == codecs.RAW or self.value is None
        fields: tuple[Any, ...] = (
            topic, self.partition, self.offset, self.key, self.value if is_plain else msgspec.UNSET,
            self.timestamp, self.written_at, self.headers or NO_HEADERS, self.producer_id, self.group,
            self.seqno, name, attempt,
        )  # fmt: skip
        return Message(*fields) if is_plain else Unopened(*(*fields, self.value))

    def failed(self, error: str) -> Envelope:
        """The same after one more failure."""
        return msgspec.structs.replace(self, first_error=self.first_error or error, last_error=error)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def enclosed(message: Message[Any], topic_id: int) -> Envelope:
    """A message that the log delivered, about to wait for the first time."""
    stored, number = _kept(message)
    return Envelope(
        topic_id, message.partition, message.offset, message.key, stored, number, message.timestamp,
        message.written_at, dict(message.headers), message.producer_id, message.group, message.seqno,
    )  # fmt: skip


def _kept(message: Message[Any]) -> tuple[bytes | None, int]:
    """What waits of a value, and its codec: a body outside the log comes along unless it is large.

    A large one stays where it is, and so does one that cannot be had now: waiting must not fail for it.
    """
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
    return _decoder.decode(data)


def waiting_id(consumer: str, envelope: Envelope, attempts: int) -> bytes:
    """The same for the same attempt of the same message by the same consumer: duplicates are recognised."""
    origin = (consumer, envelope.topic_id, envelope.partition, envelope.offset, attempts)
    return blake2b(_encoder.encode(origin), digest_size=16).digest()


def error_text(error: BaseException | str | None) -> str:
    """What is kept of an error: its kind and what it says."""
    if error is None:
        return ""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    # A lone surrogate (a broken file name, say) cannot be stored as UTF-8.
    return text[:_ERROR_CHARACTERS].encode(errors="backslashreplace").decode()
