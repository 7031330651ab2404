"""Dead letters: messages that a consumer could not handle, in the topic `<topic>.dead`, made at first use.

A dead letter has the key, the value as it was packed, the time and the headers of the message it was, and in
headers of its own why it is there. What became of it later is a message behind it, without key and value:

    penstock-reason        why it is a dead letter
    penstock-attempts      how often it was tried
    penstock-first-error   what went wrong the first time, and the last
    penstock-last-error
    penstock-traceback     where the last error was raised (its end, if it is long), if it was
    penstock-origin        JSON: where it was, whose consumer it was, who wrote it (`LetterOrigin`)
    penstock-session       of a session, instead of the origin: its id in hex
    penstock-chunks        of a session: the lengths of its chunks

A message that has such headers already (it was a dead letter before) keeps them as `penstock-before-…`.

    penstock-settled       numbers (offsets) of dead letters that are none any more: "3", "5-9", "3,5-9"
    penstock-how           "replayed" or "dropped"
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock import references
from penstock.consume.retries import Envelope
from penstock.errors import DataError, InvalidOption
from penstock.headers import Headers
from penstock.log.frame_encode import MessageColumns
from penstock.parse import topic_name
from penstock.topic.open_topic import OpenTopic
from penstock.topic.write_batch import WriteBatch

logger = logging.getLogger("penstock.dead")

SUFFIX = ".dead"
#: The reason of dead letters that were tried as often as they may.
EXHAUSTED = "attempts exhausted"
#: The reason of dead letters that no process outlived as often as they may be tried.
DIED = "the process died while handling it"
#: Long enough to be noticed and fixed, short enough that nobody's data stays for ever.
RETENTION = "30d"
REASON, ATTEMPTS = "penstock-reason", "penstock-attempts"
FIRST_ERROR, LAST_ERROR = "penstock-first-error", "penstock-last-error"
TRACEBACK = "penstock-traceback"
ORIGIN = "penstock-origin"
SESSION, CHUNKS = "penstock-session", "penstock-chunks"
SETTLED, HOW = "penstock-settled", "penstock-how"
OWN_HEADERS = frozenset(
    {REASON, ATTEMPTS, FIRST_ERROR, LAST_ERROR, TRACEBACK, ORIGIN, SESSION, CHUNKS, SETTLED, HOW}
)
_OURS, _BEFORE = "penstock-", "penstock-before-"


def deaths(count: int) -> str:
    """The error text of a letter whose processing killed so many processes."""
    return f"{count} times the process that had it was killed or crashed before it was settled"


class LetterOrigin(msgspec.Struct, frozen=True):
    """Where a dead letter came from."""

    topic: str
    topic_id: int
    partition: int
    offset: int
    consumer: str
    written_at: int
    producer_id: str | None = None
    group: str | None = None
    seqno: int | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LetterOrigin)


def dead_name(topic: str) -> str:
    """The name of the topic that holds the dead letters of a topic."""
    name = f"{topic}{SUFFIX}"
    try:
        return topic_name(name)
    except InvalidOption:
        raise InvalidOption(
            f"topic {topic!r} can have no dead letters: its name is too long",
            hint=f"195 characters leave room for {SUFFIX!r}",
        ) from None


def add_letter(topic: OpenTopic, consumer: str, enclosed: Envelope, *, attempts: int, reason: str) -> None:
    """Store a dead letter; it is as safe as its topic's messages when this returns."""
    origin = LetterOrigin(
        topic.name, enclosed.topic_id, enclosed.partition, enclosed.offset, consumer, enclosed.written_at,
        enclosed.producer_id, enclosed.group, enclosed.seqno,
    )  # fmt: skip
    headers = {
        **nest_headers(enclosed.headers),
        REASON: reason,
        ATTEMPTS: str(attempts),
        FIRST_ERROR: enclosed.first_error,
        LAST_ERROR: enclosed.last_error,
        ORIGIN: _encoder.encode(origin).decode(),
    }
    if enclosed.traceback:
        headers[TRACEBACK] = enclosed.traceback
    there = letter_topic(topic)
    value, codec = _brought(there, enclosed)
    letter = MessageColumns(
        (value,), None if enclosed.key is None else (enclosed.key,), (headers,), (enclosed.timestamp,),
        codecs=codec,
    )  # fmt: skip
    there.write(WriteBatch(letter))


def _brought(there: OpenTopic, enclosed: Envelope) -> tuple[bytes | None, int]:
    """Return the value of a letter and its codec; a body outside the log is copied for it.

    One that is gone, or for which the topic of letters has no place, stays a reference to where it was.
    """
    if enclosed.codec != references.CODEC or enclosed.value is None:
        return enclosed.value, enclosed.codec
    kept = references.Referenced(enclosed.value)
    reference, where = references.unpack(kept), f"offset {enclosed.offset} of partition {enclosed.partition}"
    try:
        if there.bodies.takes_bodies:
            with references.open_body(reference, where) as body:
                return there.bodies.put(body, codec=reference.codec).packed(), references.CODEC
        if reference.size <= there.options.max_message_bytes:
            return references.fetch(reference, where), reference.codec
    except DataError as error:
        logger.warning("a dead letter comes without its body: %s", error)
    return kept, references.CODEC


def nest_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Rename a message's headers for its dead letter, so that none passes for one of the letter's own."""
    return {
        _BEFORE + name.removeprefix(_OURS) if name in OWN_HEADERS or name.startswith(_BEFORE) else name: value
        for name, value in headers.items()
    }


def taken_out(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `nest_headers`: return the headers of the message that became a dead letter."""
    return {
        _OURS + name.removeprefix(_BEFORE) if name.startswith(_BEFORE) else name: value
        for name, value in headers.items()
        if name not in OWN_HEADERS
    }


def session_letter(
    identity: bytes, chunks: Sequence[bytes], errors: tuple[str, str], attempts: int
) -> WriteBatch:
    """Make a dead letter of a session that was tried as often as its policy allows."""
    headers = {
        REASON: EXHAUSTED, ATTEMPTS: str(attempts), FIRST_ERROR: errors[0], LAST_ERROR: errors[1],
        SESSION: identity.hex(), CHUNKS: ",".join(str(len(chunk)) for chunk in chunks),
    }  # fmt: skip
    return WriteBatch(MessageColumns((b"".join(chunks),), headers=(headers,)))


def settle(dead: OpenTopic, numbers: str, how: str) -> None:
    """Note that dead letters were replayed or dropped."""
    dead.write(WriteBatch(MessageColumns((None,), headers=({SETTLED: numbers, HOW: how},))))


def letter_topic(topic: OpenTopic) -> OpenTopic:
    """Open the topic of dead letters; it is made at first use."""
    options: dict[str, Any] = {"retention": RETENTION, "sync": topic.options.sync}
    if topic.bodies.takes_bodies:
        options["payloads"] = topic.options.payloads and topic.options.payloads.after(None)
    return topic.sibling_topic(dead_name(topic.name), options)


def origin_of(headers: Headers) -> LetterOrigin | None:
    """Return where a dead letter came from; None for a note, or for a message that somebody else wrote."""
    text: Any = headers.get(ORIGIN)
    if text is None:
        return None
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:
        return None
