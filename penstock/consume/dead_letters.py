"""The dead letters of a topic, to be looked at, tried again, or dropped.

A letter's number is its offset in `<topic>.dead`. What was replayed or dropped is noted behind it in the same
topic, so nothing is rewritten, and readers fold letters and notes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from penstock.consume import dead_letter_topic, retries
from penstock.delay.records import NewRecord
from penstock.delay.waiting import WaitingMessages
from penstock.errors import InvalidOption, OutOfRange, TopicReplaced, UnknownConsumer, WrongType
from penstock.message import Message
from penstock.parse import consumer_name, whole
from penstock.state.database import refuse_read_only
from penstock.topic.delayed import retries_folder
from penstock.topic.open_topic import OpenTopic
from penstock.topic.scan import Scan

#: So many are replayed or dropped by one note; a crash in between repeats no more than these.
_AT_A_TIME = 500
#: A replayed letter comes as the second attempt: the log has delivered it once, and nobody else does.
_ATTEMPTS = 1
_LENGTHS = re.compile(r"\d+(,\d+)*")
_NOTED = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


class DeadLetter(NamedTuple):
    """A message that a consumer could not handle, and why."""

    number: int
    consumer: str
    reason: str
    attempts: int
    first_error: str
    last_error: str
    #: When it became one, in nanoseconds since 1970.
    died_at: int
    #: As its consumer got it, with the place it had in its topic.
    message: Message[Any]
    #: Differs from the topic's when that was dropped and made again since; 0 for a session.
    topic_id: int
    #: Of a session its id, and no consumer: its chunks are the message's value, joined.
    session: str | None = None
    #: The lengths of a session's chunks.
    chunks: tuple[int, ...] = ()
    #: Where the last error was raised, as Python shows it, its end if it is long; empty where nothing was.
    traceback: str = ""


#: Has a session delivered again: its topic and its letter.
Revive = Callable[[str, DeadLetter], None]


class DeadLetters:
    """The dead letters of one topic, of its consumers or of sessions; made by `Store.dead_letters`."""

    def __init__(
        self, name: str, topic: OpenTopic | None, find: Callable[[], OpenTopic | None], revive: Revive
    ) -> None:
        self._name = name
        self._topic = topic
        self.find_topic = find
        self._revive = revive

    @property
    def topic(self) -> str:
        """The name of the topic whose dead letters they are."""
        return self._name

    def list(
        self, *, consumer: str | None = None, reason: str | None = None, limit: int = 1000
    ) -> list[DeadLetter]:
        """Return the oldest letters, at most `limit`; of one consumer, or with `reason` in their error."""
        whole("limit", limit, 1, 2**31)
        return list(islice(self.choose(None, consumer, reason), limit))

    def show(self, number: int) -> DeadLetter:
        """Return the letter of that number; raises `OutOfRange` when there is none (any more)."""
        return next(self.choose([number], None, None))

    def count(self) -> int:
        """Count the letters."""
        return sum(1 for _ in self.choose(None, None, None))

    def replay(
        self, numbers: int | Iterable[int] | None = None, *, consumer: str | None = None,
        reason: str | None = None, rate: float | None = None,
    ) -> int:  # fmt: skip
        """Deliver letters again, without waiting, to the consumers that rejected them; return how many.

        All of them, or those with these numbers, of a consumer, or with `reason` in reason or error; at most
        `rate` a second. Each comes as attempt 2 and has the attempts that are left then. A process that dies
        meanwhile may leave some to be replayed twice, but none is left out.
        """
        _check_rate(rate)
        with ExitStack() as opened:
            folders: dict[str, WaitingMessages] = {}

            def send(letters: Sequence[DeadLetter]) -> None:
                entries: dict[str, list[NewRecord]] = {}
                for letter in letters:
                    if letter.session is not None:
                        self._revive(self._name, letter)
                        continue
                    topic = self._origin_of(letter)
                    folder = retries_folder(topic, letter.consumer, letter.message.partition)
                    entries.setdefault(folder, []).append(_entry(letter))
                    if folder not in folders:
                        folders[folder] = opened.enter_context(_waiting(topic, folder))
                for folder, some in entries.items():
                    folders[folder].store_many(some)

            return self._settle(self.choose(numbers, consumer, reason), "replayed", rate, send)

    def drop(
        self, numbers: int | Iterable[int] | None = None, *, consumer: str | None = None,
        reason: str | None = None,
    ) -> int:  # fmt: skip
        """Forget letters, chosen as for `replay`; how many there were. Their bytes go with retention."""
        return self._settle(self.choose(numbers, consumer, reason), "dropped", None, lambda _: None)

    def __repr__(self) -> str:
        return f"<DeadLetters of {self.topic}>"

    # Inside.

    def _settle(
        self, letters: Iterator[DeadLetter], how: str, rate: float | None,
        send: Callable[[Sequence[DeadLetter]], None],
    ) -> int:  # fmt: skip
        """Send letters on, durably, then note that they are settled."""
        there = self.find_topic()
        if there is None:
            return 0
        refuse_read_only(there.read_only)
        clock, total = there.clock, 0
        begin = clock.monotonic()
        at_a_time = _AT_A_TIME if rate is None else max(1, min(_AT_A_TIME, int(rate)))
        while some := list(islice(letters, at_a_time)):
            if rate is not None:
                clock.sleep(max(begin + (total + len(some)) / rate - clock.monotonic(), 0.0))
            send(some)
            dead_letter_topic.settle(there, _ranges([letter.number for letter in some]), how)
            total += len(some)
        return total

    def choose(
        self, numbers: int | Iterable[int] | None, consumer: str | None, reason: str | None
    ) -> Iterator[DeadLetter]:
        """Yield letters that are not settled, by number, or all that match."""
        if consumer is not None:
            consumer_name(consumer)
        if reason is not None and not isinstance(reason, str):
            raise WrongType(f"reason is a str, not {type(reason).__name__}")
        wanted = _numbers(numbers)
        if self._topic is not None:
            self._topic.require_open()
        found = self._letters() if wanted is None else self._numbered(wanted)
        return (
            letter
            for letter in found
            if (consumer is None or letter.consumer == consumer)
            and (reason is None or reason in letter.reason or reason in letter.last_error)
        )

    def _letters(self) -> Iterator[DeadLetter]:
        there = self.find_topic()
        if there is None:
            return
        gone = self.settled_numbers(there)
        for message in Scan(there, None, "earliest", "latest").messages():
            if message.offset not in gone and (letter := _letter(message)) is not None:
                yield letter

    def _numbered(self, wanted: Sequence[int]) -> Iterator[DeadLetter]:
        there = self.find_topic()
        gone = set() if there is None else self.settled_numbers(there)
        for number in wanted:
            message = None if there is None or number in gone else there.log(0).key_retention.message(number)
            letter = None if message is None else _letter(message)
            if letter is None:
                raise OutOfRange(
                    f"{self.topic!r} has no dead letter {number}, or none any more",
                    hint="list those there are",
                )
            yield letter

    def settled_numbers(self, there: OpenTopic) -> set[int]:
        """Numbers that were replayed or dropped."""
        gone: set[int] = set()
        for message in Scan(there, None, "earliest", "latest").messages():
            noted = (
                None
                if dead_letter_topic.ORIGIN in message.headers
                else message.headers.get(dead_letter_topic.SETTLED)
            )
            if isinstance(noted, str) and message.value is None and _NOTED.fullmatch(noted):
                for part in noted.split(","):
                    first, _, last = part.partition("-")
                    gone.update(range(int(first), int(last or first) + 1))
        return gone

    def _origin_of(self, letter: DeadLetter) -> OpenTopic:
        """Return the letter's topic; raise `UnknownConsumer` if its consumer no longer exists."""
        topic = self._topic
        if topic is None or letter.topic_id != topic.record.id:
            raise TopicReplaced(
                f"dead letter {letter.number} is of an earlier topic {self.topic!r}",
                hint="write its value to the topic anew, then drop it",
            )
        if not topic.consumers.exists(letter.consumer, letter.topic_id):
            raise UnknownConsumer(
                f"dead letter {letter.number} is of consumer {letter.consumer!r}, which is gone",
                hint="add_consumer makes one of that name; or drop the letter",
            )
        return topic


def _waiting(topic: OpenTopic, folder: str) -> WaitingMessages:
    return WaitingMessages(folder, topic.files, topic.clock, sync=topic.options.sync)


def _check_rate(rate: object) -> None:
    if rate is None:
        return
    if not isinstance(rate, (int, float)) or isinstance(rate, bool):
        raise WrongType(f"rate is a number of messages a second, not {type(rate).__name__}")
    if not rate > 0:
        raise InvalidOption(f"rate={rate!r} is no rate", hint="messages a second, more than 0")


def _letter(message: Message[Any]) -> DeadLetter | None:
    """Make a letter of a message in the topic of dead letters; None when it is a note."""
    origin = dead_letter_topic.origin_of(message.headers)
    session = None if origin is not None else _text(message, dead_letter_topic.SESSION)
    if origin is None and not session:
        return None
    attempts, chunks = _text(message, dead_letter_topic.ATTEMPTS), _text(message, dead_letter_topic.CHUNKS)
    return DeadLetter(
        message.offset, "" if origin is None else origin.consumer, _text(message, dead_letter_topic.REASON),
        int(attempts) if attempts.isdecimal() else 0, _text(message, dead_letter_topic.FIRST_ERROR),
        _text(message, dead_letter_topic.LAST_ERROR), message.written_at, _original(message, origin),
        0 if origin is None else origin.topic_id, session or None,
        tuple(map(int, chunks.split(","))) if _LENGTHS.fullmatch(chunks) else (),
        _text(message, dead_letter_topic.TRACEBACK),
    )  # fmt: skip


def _original(message: Message[Any], origin: dead_letter_topic.LetterOrigin | None) -> Message[Any]:
    """The message as it was before it became a letter; a session has no other place than its letter's."""
    headers = dead_letter_topic.taken_out(message.headers)
    if origin is None:
        return msgspec.structs.replace(message, headers=headers)
    return msgspec.structs.replace(
        message, topic=origin.topic, partition=origin.partition, offset=origin.offset, headers=headers,
        written_at=origin.written_at, producer_id=origin.producer_id, group=origin.group,
        seqno=origin.seqno,
    )  # fmt: skip


def _text(message: Message[Any], name: str) -> str:
    return str(message.headers.get(name, ""))


def _entry(letter: DeadLetter) -> NewRecord:
    """The letter as it waits for its consumer, due now."""
    message = letter.message
    enclosed = retries.enclosed(message, letter.topic_id)
    identity = retries.waiting_id(letter.consumer, enclosed, _ATTEMPTS)
    return NewRecord(0, identity, message.topic, _ATTEMPTS, retries.encoded(enclosed))


def _numbers(numbers: int | Iterable[int] | None) -> list[int] | None:
    if numbers is None:
        return None
    given: Any = [numbers] if isinstance(numbers, int) else numbers
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
        raise WrongType(f"numbers is a number or a list of them, not {type(numbers).__name__}")
    return sorted({whole("number", number, 0, 2**63 - 1) for number in given})


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as text: "3,5-9"."""
    parts: list[str] = []
    at = 0
    while at < len(numbers):
        end = at
        while end + 1 < len(numbers) and numbers[end + 1] == numbers[end] + 1:
            end += 1
        parts.append(str(numbers[at]) if end == at else f"{numbers[at]}-{numbers[end]}")
        at = end + 1
    return ",".join(parts)
