"""Sessions: work that can be changed while it is done, and is delivered again later when it was not finished.

    open ──append, replace──> finish        nothing of it ever touches a file
      └──────────────────────> store        it waits in the files of its topic
    due  ──append, replace──> finish        its record is done
      └──────────────────────> store        it waits again, one attempt more; after the last a dead letter

A session that is due stays in its file until it is finished or stored again, so a process that dies leaves it
to the next one. One that was opened lives in memory and dies with its process, unless it was opened
`durable`: then each change is on disk before the call returns.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import msgspec

from penstock.clock import Clock
from penstock.consume.dead_letter_topic import session_letter
from penstock.consume.dead_letters import DeadLetter
from penstock.consume.options import Retry, checked_policy
from penstock.consume.retries import error_text
from penstock.delay.journal import Journal, SessionData, abandoned
from penstock.delay.ladder import wait_ms
from penstock.delay.records import DATA_BYTES_MAX, NewRecord, uuid7
from penstock.delay.waiting import WaitingMessages
from penstock.delay.window import TakenMessage
from penstock.errors import Closed, Corrupt, InvalidOption, MessageTooLarge, UsageError, WrongType
from penstock.files import Files
from penstock.parse import KIB, Duration, seconds, topic_name, wait_seconds, whole
from penstock.topic.write_batch import WriteBatch

logger = logging.getLogger("penstock.sessions")

_NAME = "policy.json"


class StoredPolicy(msgspec.Struct):
    """A policy as it is kept in `policy.json`."""

    first_s: float
    factor: float
    limit_s: float
    attempts: int
    jitter: float
    delays_s: list[float] = []


def read_policy(folder: str, files: Files) -> Retry:
    """The policy that was declared; the default when none was."""
    path = os.path.join(folder, _NAME)
    if not files.exists(path):
        return Retry()
    fd = files.open(path, write=False)
    try:
        data = files.pread(fd, files.size(fd), 0)
    finally:
        files.close(fd)
    try:
        found = msgspec.json.decode(data, type=StoredPolicy)
    except msgspec.DecodeError as error:
        raise Corrupt(path, 0, f"not a policy: {error}") from None
    try:
        return Retry(
            first=found.first_s, factor=found.factor, limit=found.limit_s, attempts=found.attempts,
            jitter=found.jitter, delays=tuple(found.delays_s),
        )  # fmt: skip
    except InvalidOption as error:
        raise Corrupt(path, 0, f"not a policy: {error}") from None


def write_policy(folder: str, files: Files, policy: Retry) -> None:
    """Replace a topic's policy: who reads meanwhile gets the one before or the one after."""
    stored = StoredPolicy(
        seconds("first", policy.first), policy.factor, seconds("limit", policy.limit), policy.attempts,
        policy.jitter, [seconds("delays", each) for each in policy.delays],
    )  # fmt: skip
    draft = os.path.join(folder, f"{_NAME}.{os.getpid()}.tmp")
    fd = files.open(draft, create=True)
    try:
        files.pwrite(fd, msgspec.json.encode(stored), 0)
        files.sync(fd)
    finally:
        files.close(fd)
    files.rename(draft, os.path.join(folder, _NAME))
    files.sync_dir(folder)


#: Stores a dead letter of a topic.
AddLetter = Callable[[str, WriteBatch], None]
_BYTES_MAX = DATA_BYTES_MAX - 64 * KIB
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SessionData)


class Session:
    """One piece of work: a list of chunks. Made by `Sessions.open` and `Sessions.due`.

    With `with` it is finished at the end, and stored when an exception leaves it.
    """

    def __init__(
        self,
        owner: SessionTopic, identity: bytes, data: SessionData, attempt: int, taken: TakenMessage | None,
        journal: Journal | None,
    ) -> None:  # fmt: skip
        self._topic = owner
        self._identity = identity
        self._data = data
        self._taken = taken
        self._journal = journal
        self._mutex = threading.Lock()
        self._ended = ""
        self._attempt = attempt

    @property
    def id(self) -> str:
        """An id that stays the same over all attempts of the session."""
        return self._identity.hex()

    @property
    def topic(self) -> str:
        """The topic that the session belongs to."""
        return self._topic.topic

    @property
    def attempt(self) -> int:
        """1 when it was opened; each time it is delivered again it is one more."""
        return self._attempt

    @property
    def chunks(self) -> list[bytes]:
        """What was appended, in order."""
        return list(self._data.chunks)

    @property
    def data(self) -> bytes:
        """All chunks, joined."""
        return b"".join(self._data.chunks)

    @property
    def last_error(self) -> str:
        """What went wrong the last time."""
        return self._data.last_error

    def append(self, data: bytes) -> None:
        """Add a chunk."""
        with self._mutex:
            self._change([*self._data.chunks, _checked(data)])

    def replace(self, data: bytes) -> None:
        """Replace all chunks by this one."""
        with self._mutex:
            self._change([_checked(data)])

    def finish(self) -> None:
        """Finish it: it is never delivered again. Raises `TakenElsewhere` if another process has it now."""
        with self._mutex:
            self._require_open()
            if self._taken is not None:
                self._taken.done()
            self._end("was finished")

    def store(self, delay: Duration | None = None, *, error: BaseException | str | None = None) -> bool:
        """Store it until later: after `delay`, but not sooner than its topic's policy says.

        Without a delay the policy's back-off decides. When it allows no further attempt the session becomes
        a dead letter in `<topic>.dead` instead, and False is returned.
        """
        asked_s = None if delay is None else wait_seconds("delay", delay)
        with self._mutex:
            self._require_open()
            failed = self._data.failed(error_text(error))
            wait_s = self._topic.wait_s(self._attempt, asked_s)
            if wait_s is None:
                self._topic.add_letter(self._identity, failed, self._attempt)
                if self._taken is not None:
                    self._taken.done()
            else:
                self._put_away(failed, wait_s, fixed=delay is not None or self._topic.policy.is_exact)
            self._end("was stored" if wait_s is not None else "is a dead letter")
            return wait_s is not None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        if error is None:
            self.finish()
        else:
            self.store(error=error)

    def __repr__(self) -> str:
        return f"<Session {self.id} of {self.topic}: attempt {self._attempt} {self._ended}".rstrip() + ">"

    # Inside.

    def _change(self, chunks: list[bytes]) -> None:
        self._require_open()
        if sum(map(len, chunks)) + 8 * len(chunks) > _BYTES_MAX:
            raise MessageTooLarge(
                f"a session of more than {_BYTES_MAX} bytes", hint="store the body elsewhere"
            )
        changed = msgspec.structs.replace(self._data, chunks=chunks)
        if self._journal is not None:
            self._journal.put(self._identity, changed)
        self._data = changed

    def _end(self, how: str) -> None:
        self._ended = how
        if self._journal is not None:
            self._journal.remove(self._identity)

    def _require_open(self) -> None:
        if self._ended:
            raise UsageError(
                f"session {self.id} {self._ended} before", hint="each is finished or stored once"
            )

    def _put_away(self, failed: SessionData, wait_s: float, *, fixed: bool) -> None:
        data = _encoder.encode(failed)
        if self._taken is not None:
            self._taken.again(wait_s, attempts=self._attempt, data=data, fixed=fixed)
            return
        entry = NewRecord(wait_ms("delay", wait_s), self._identity, self.topic, self._attempt, data)
        self._topic.store([entry], fixed=fixed)


class SessionTopic:
    """The sessions of one topic: its files, its policy, and what dead letters become."""

    def __init__(self, topic: str, folder: str, files: Files, clock: Clock, add_letter: AddLetter) -> None:
        self.topic = topic
        self._folder = folder
        self._files = files
        self._add_letter = add_letter
        self._clock = clock
        self._waiting: WaitingMessages | None = None
        self._journal: Journal | None = None
        self._mutex = threading.RLock()
        self._take_lock = threading.Lock()
        self.policy = read_policy(folder, files)

    def declare(self, policy: Retry) -> None:
        """Set the policy by which sessions are delivered again."""
        self._opened()
        write_policy(self._folder, self._files, policy)
        self.policy = policy

    def journal(self) -> Journal:
        """Return the topic's journal, opened when first asked for."""
        with self._mutex:
            if self._journal is None:
                self._opened()
                self._journal = Journal(self._folder, self._files)
            return self._journal

    def wait_s(self, attempt: int, asked_s: float | None) -> float | None:
        """How long a session waits now; None when it may not."""
        wait_s = self.policy.wait_s(attempt, random.random())
        if wait_s is None or asked_s is None:
            return wait_s
        return max(asked_s, self.policy.least_s)

    def store(self, entries: list[NewRecord], *, fixed: bool = True) -> None:
        """Store sessions until they are due."""
        self._opened().store_many(entries, fixed=fixed)

    def take(self, limit: int, timeout: float) -> list[Session]:
        """Return sessions that are due, at most `limit`; wait up to `timeout` for the first."""
        waiting = self._opened()
        with self._take_lock:
            self._recover()
            taken = waiting.take(limit)
            if not taken and timeout and waiting.wait(timeout):
                taken = waiting.take(limit)
        return [session for each in taken if (session := self._session(each)) is not None]

    def count(self) -> int:
        """Return how many sessions wait."""
        return self._opened().count()

    def add_letter(self, identity: bytes, data: SessionData, attempts: int) -> None:
        """Make a session a dead letter of its topic."""
        errors = data.first_error, data.last_error
        self._add_letter(self.topic, session_letter(identity, data.chunks, errors, attempts))

    def close(self) -> None:
        """Close the topic's files."""
        if self._journal is not None:
            self._journal.close()
        if self._waiting is not None:
            self._waiting.close()

    def _session(self, taken: TakenMessage) -> Session | None:
        """A session that is due; None when it cannot be read: it stays where it is, to be looked at."""
        try:
            data = _decoder.decode(taken.data)
        except msgspec.MsgspecError as error:
            logger.error("session %s of %r cannot be read and stays: %s", taken.id.hex(), self.topic, error)
            return None
        return Session(self, taken.id, data, taken.attempts + 1, taken, None)

    def _opened(self) -> WaitingMessages:
        """The files, opened with the first session that is stored: one that is finished needs none."""
        with self._mutex:
            if self._waiting is None:
                self._waiting = WaitingMessages(
                    os.path.join(self._folder, "waiting"), self._files, self._clock
                )
            return self._waiting

    def _recover(self) -> None:
        """Store what processes that died had open, then forget their journals."""
        for journal in abandoned(self._folder, self._files):
            with journal:
                found = journal.sessions()
                self.store(
                    [NewRecord(0, each, self.topic, 1, _encoder.encode(found[each])) for each in found]
                )
                journal.forget()


class Sessions:
    """The sessions of a store, by topic; it is `Store.sessions`. Threads may share it.

    Their topics are names of their own, not those of logs. One process at a time delivers what is due of a
    topic; when it ends or closes the store, the next one that asks goes on.
    """

    def __init__(self, folder: str, files: Files, clock: Clock, add_letter: AddLetter) -> None:
        self._folder = folder
        self._files = files
        self._clock = clock
        self._add_letter = add_letter
        self._mutex = threading.Lock()
        self._topics: dict[str, SessionTopic] = {}
        self._closed = False

    def declare(self, topic: str, retry: Retry) -> None:
        """Choose when sessions of a topic are delivered again, and how often; it is kept in the store.

        `retry.first` is the least that any of them waits.
        """
        self._topic(topic).declare(checked_policy(retry))

    def policy(self, topic: str) -> Retry:
        """What was declared for a topic, or else the default."""
        return self._topic(topic).policy

    def open(self, topic: str, *, data: bytes | None = None, durable: bool = False) -> Session:
        """Begin a session. If this process dies it is lost; if it is `durable` it is delivered again."""
        owner = self._topic(topic)
        journal = owner.journal() if durable else None
        identity, empty = uuid7(self._clock.now_ns() // 1_000_000), SessionData([])
        if journal is not None:
            journal.put(identity, empty)
        session = Session(owner, identity, empty, 1, None, journal)
        if data is not None:
            session.append(data)
        return session

    def due(self, topic: str, *, limit: int = 100, timeout: Duration = 0) -> list[Session]:
        """Sessions whose time has come, the earliest first; waits up to `timeout` when there are none.

        Each must be finished or stored again; those that were not when this process ends are delivered again.
        """
        return self._topic(topic).take(whole("limit", limit, 1, 100_000), seconds("timeout", timeout))

    def revive(self, topic: str, letter: DeadLetter) -> None:
        """Deliver a session that is a dead letter again, as attempt 2: for `DeadLetters.replay`."""
        assert letter.session is not None
        data, at, chunks = letter.message.value or b"", 0, []
        for length in letter.chunks or (len(data),):
            chunks.append(data[at : at + length])
            at += length
        again = SessionData(chunks, letter.first_error, letter.last_error)
        identity = bytes.fromhex(letter.session)
        self._topic(topic).store([NewRecord(0, identity, topic, 1, _encoder.encode(again))])

    def count(self, topic: str) -> int:
        """How many wait or were delivered and are not settled."""
        return self._topic(topic).count()

    def topics(self) -> list[str]:
        """Names of topics that ever had a session stored or declared."""
        return sorted(self._files.listdir(self._folder)) if self._files.exists(self._folder) else []

    def close(self) -> None:
        """Release the files; with the store."""
        with self._mutex:
            self._closed = True
            topics, self._topics = self._topics, {}
        for each in topics.values():
            each.close()

    def __repr__(self) -> str:
        return f"<Sessions in {self._folder}>"

    def _topic(self, topic: str) -> SessionTopic:
        topic_name(topic)
        with self._mutex:
            if self._closed:
                raise Closed("the store is closed", hint="open it again")
            if topic not in self._topics:
                folder = os.path.join(self._folder, topic)
                self._topics[topic] = SessionTopic(topic, folder, self._files, self._clock, self._add_letter)
            return self._topics[topic]


def _checked(data: Any) -> bytes:
    if not isinstance(data, bytes):
        raise WrongType(f"a chunk is bytes, not {type(data).__name__}", hint="encode it first")
    return data
