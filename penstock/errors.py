"""Every exception Penstock raises, by what the caller should do.

    PenstockError
    ├─ UsageError            fix the call
    │  ├─ InvalidOption      (also a ValueError)
    │  ├─ InvalidSql         (also a ValueError)
    │  ├─ WrongType          (also a TypeError)
    │  ├─ UnknownTopic       (also a LookupError)
    │  ├─ UnknownConsumer    (also a LookupError)
    │  ├─ UnknownPipeline    (also a LookupError)
    │  ├─ AlreadyExists
    │  ├─ NotAStore
    │  ├─ NotATable
    │  ├─ NotAnArchive
    │  ├─ ForeignArchive
    │  ├─ MessageTooLarge    (also a ValueError)
    │  ├─ ReadOnly
    │  └─ MissingExtra       (also an ImportError)
    ├─ ConflictError         someone else acted
    │  ├─ OwnedElsewhere
    │  ├─ ProducerFenced
    │  ├─ PartitionLost
    │  ├─ PartitionInactive
    │  ├─ TopicReplaced
    │  ├─ HistoryChanged
    │  ├─ TakenElsewhere
    │  ├─ AlreadyCommitted
    │  ├─ PipelineRunning
    │  └─ PipelineChanged
    ├─ Unavailable           try again
    │  ├─ LockTimeout        (also a TimeoutError)
    │  ├─ WriteTimeout       (also a TimeoutError)
    │  └─ DiskFull
    ├─ OutOfRange            choose a new place
    │  ├─ OffsetTrimmed
    │  └─ OffsetAhead
    ├─ DataError             stop and look
    │  ├─ Corrupt
    │  ├─ UnknownFormat
    │  ├─ ForgottenTopic     its folder is there, its row in state.db is not
    │  ├─ Undecodable        one message's value; the others can be read
    │  │  └─ UnknownCodec
    │  ├─ BodyMissing        one message's body; the others can be read
    │  ├─ NotDurable
    │  │  └─ NotYetDurable   it is in the log; do not write it again
    │  └─ OutcomeUnknown     a commit may have happened; look before you repeat it
    ├─ PipelineFailed        look at the cause, mend it, run it again
    └─ Closed                open a new one

A duplicate, an empty read and the end of a bounded iteration are not errors.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ClassVar


class PenstockError(Exception):
    """The root of the tree. `hint` says what to do; `retryable` whether the same call may succeed later."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} ({self.hint})" if self.hint else message


def close_after(error: BaseException | None, close: Callable[[], None], what: str) -> None:
    """Close something, perhaps with an error on its way: a second error becomes a note of that one."""
    try:
        close()
    except PenstockError as second:
        if error is None:
            raise
        error.add_note(f"closing {what} failed too: {second}")


class UsageError(PenstockError):
    """The call itself is wrong; nothing was changed. Fix the call."""


class InvalidOption(UsageError, ValueError):
    """An option, name or value is not acceptable; the message names it and what would be."""


class InvalidSql(UsageError, ValueError):
    """A text is not SQL, or asks for what is not there; `line` and `column` say where, as far as known."""

    def __init__(
        self, message: str, *, line: int | None = None, column: int | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.line = line
        self.column = column


class WrongType(UsageError, TypeError):
    """An argument has a type that cannot be stored."""


class UnknownTopic(UsageError, LookupError):
    """There is no topic of that name in this store."""

    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        there = f"topics here: {', '.join(known)}" if known else "this store has no topics yet"
        super().__init__(f"no topic {name!r}", hint=f"{there}; create_topic({name!r}) makes one")
        self.name = name


class UnknownConsumer(UsageError, LookupError):
    """There is no consumer of that name."""


class UnknownPipeline(UsageError, LookupError):
    """There is no pipeline of that name in this store."""

    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        there = f"pipelines here: {', '.join(known)}" if known else "this store has no pipelines yet"
        super().__init__(f"no pipeline {name!r}", hint=there)
        self.name = name


class AlreadyExists(UsageError):
    """Something of that name is there already; pass `exists_ok=True` to accept it."""


class NotAStore(UsageError):
    """The folder is not a Penstock store."""


class NotATable(UsageError):
    """There is no Delta table at that place."""


class NotAnArchive(UsageError):
    """The Delta table was not made by an archive, or not by one of the kind that is needed."""


class ForeignArchive(UsageError):
    """The table is the archive of another topic, or of a topic in another store."""


class MessageTooLarge(UsageError, ValueError):
    """A key, value or set of headers is over its limit; nothing of the call was written."""


class ReadOnly(UsageError):
    """The folder cannot be written to by this process."""


class MissingExtra(UsageError, ImportError):
    """An optional part is not installed; the hint is the exact command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed", hint=f'pip install "penstock[{extra}]"')
        self.extra = extra


class ConflictError(PenstockError):
    """Someone else acted; look at what they did before going on."""


class OwnedElsewhere(ConflictError):
    """Another process has the store for itself (`exclusive=True`), or has it open while we want it so."""

    def __init__(self, message: str, *, pid: int | None = None, host: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.pid = pid
        self.host = host


class ProducerFenced(ConflictError):
    """A newer writer took over this producer id."""


class PartitionLost(ConflictError):
    """The partition now belongs to another member of the consumer."""


class PartitionInactive(ConflictError):
    """The partition was split and is only read; `children` are those that go on where it ends."""

    def __init__(self, topic: str, partition: int, children: tuple[int, ...]) -> None:
        named = " and ".join(map(str, children[-2:]))
        super().__init__(
            f"partition {partition} of {topic!r} was split", hint=f"write to {named}, or give a key instead"
        )
        self.partition = partition
        self.children = children


class TopicReplaced(ConflictError):
    """The topic was dropped, perhaps created anew: offsets held for the old one mean nothing now."""


class StoreMoved(ConflictError):
    """The store's folder was moved or removed while it was open. What was acknowledged went with it."""


class HistoryChanged(ConflictError):
    """A position that was kept is not of this log: the store was put back to an earlier state since.

    `offset` is the position. What was written between the backup and it is gone, or has other offsets.
    """

    def __init__(self, message: str, *, partition: int, offset: int) -> None:
        super().__init__(
            message, hint="what was read before may be missing from the store: look, then begin anew"
        )
        self.partition = partition
        self.offset = offset


class TakenElsewhere(ConflictError):
    """Another process delivers these waiting messages now; what was taken here is delivered again there."""


class AlreadyCommitted(ConflictError):
    """A transaction of that name was committed before; this one was not."""


class PipelineRunning(ConflictError):
    """Another process runs the pipeline of that name; `pid` is it, as far as it is known."""

    def __init__(self, name: str, pid: int | None = None) -> None:
        who = f" by process {pid}" if pid is not None else ""
        super().__init__(
            f"pipeline {name!r} is being run{who}",
            hint=f"penstock pipeline stop {name}; or choose another name",
        )
        self.pid = pid


class PipelineChanged(ConflictError):
    """A pipeline is not what it was when it was made, so what it kept means nothing now."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message, hint=f"choose another name, or begin anew: penstock pipeline drop {name}")


class Unavailable(PenstockError):
    """Not now; nothing was lost. Try again."""

    retryable: ClassVar[bool] = True


class LockTimeout(Unavailable, TimeoutError):
    """A lock was not released in time; `pid` is the holder as far as it is known."""

    def __init__(self, message: str, *, pid: int | None = None) -> None:
        super().__init__(message, hint="look at that process: it may be stopped or stuck")
        self.pid = pid


class WriteTimeout(Unavailable, TimeoutError):
    """The writer's buffer stayed full for the whole timeout; this message was not accepted."""


class DiskFull(Unavailable):
    """The disk is (nearly) full; the write was cut back and nothing of it stays."""


class OutOfRange(PenstockError):
    """The place asked for is not in the log. Choose a new place."""


class OffsetTrimmed(OutOfRange):
    """Retention or damage took what was asked for; `first` is the first offset that can be read."""

    def __init__(self, message: str, *, partition: int, offset: int, first: int) -> None:
        super().__init__(message, hint='seek to "earliest", or open the reader with on_gap="skip"')
        self.partition = partition
        self.offset = offset
        self.first = first


class OffsetAhead(OutOfRange):
    """The offset lies beyond the end; `end` is the next offset to be written."""

    def __init__(self, message: str, *, partition: int, offset: int, end: int) -> None:
        super().__init__(message, hint='seek to "latest"')
        self.partition = partition
        self.offset = offset
        self.end = end


class DataError(PenstockError):
    """Stored data is not what it should be. Stop and look; `penstock verify` names every damaged place."""


class Corrupt(DataError):
    """Bytes in `path` at `byte` fail their checksum; what lies around them can still be read.

    `first` and `stop` are the offsets lost with them, when known.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        byte: int,
        what: str,
        *,
        partition: int | None = None,
        first: int | None = None,
        stop: int | None = None,
        hint: str = 'on_gap="skip" reads what lies behind it',
    ) -> None:
        span = f", offsets {first} to {stop - 1}" if first is not None and stop is not None else ""
        super().__init__(
            f"{what} in {os.fspath(path)} at byte {byte}{span}",
            hint=hint,
        )
        self.path = os.fspath(path)
        self.byte = byte
        self.partition = partition
        self.first = first
        self.stop = stop


class UnknownFormat(DataError):
    """The store was written by a newer Penstock, or uses a feature this one does not know."""


class ForgottenTopic(DataError):
    """A folder of messages lies where a topic should be, and `state.db` does not know it; it is kept."""


class Undecodable(DataError):
    """The value of one message cannot be decoded; `topic`, `partition` and `offset` say which.

    It is raised when the value is asked for. The message's other fields can be read, it can be committed,
    and the messages around it are as they are.
    """

    def __init__(self, message: str, *, topic: str, partition: int, offset: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class UnknownCodec(Undecodable):
    """This process cannot unpack the codec of a message: register it, or install what it needs."""

    def __init__(
        self, message: str, *, codec: str, topic: str, partition: int, offset: int, hint: str = ""
    ) -> None:
        super().__init__(message, topic=topic, partition=partition, offset=offset, hint=hint)
        self.codec = codec


class BodyMissing(DataError):
    """A body that lies outside the log is not where it should be; `name` is its name, `place` where it was.

    Of a message: its other fields can be read, and the messages around it are as they are.
    """

    def __init__(self, name: str, place: str, *, message: str = "", hint: str = "") -> None:
        super().__init__(
            f"{message}body {name!r} is not in {place}",
            hint=hint or "it was deleted by another hand, or the place is not the one it was written to",
        )
        self.name = name
        self.place = place


class NotDurable(DataError):
    """The disk refused to make data durable; what was not acknowledged is not in the log."""


class NotYetDurable(NotDurable):
    """What was written is in the log, and not yet durable. Do not write it again."""


class OutcomeUnknown(DataError):
    """A transaction failed in a way that may have reached the disk: it may turn out to be committed.

    Look whether it is there before repeating it. One with a `name` may be repeated: it is committed once.
    """


class PipelineFailed(PenstockError):
    """A pipeline ended with an error of its own code, its data or its engine; it goes on where it stopped."""


class Closed(PenstockError):
    """The object was closed, or its background work failed (see `__cause__`). Open a new one."""
