"""Errors as the command line reports them: a message, a hint, an exit code; never a traceback.

The table below is the whole contract between the error tree and the exit codes.
"""

from __future__ import annotations

import re
import sys
from enum import IntEnum

from penstock.errors import (
    AlreadyExists,
    Corrupt,
    DataError,
    MessageTooLarge,
    MissingExtra,
    NotAStore,
    OffsetAhead,
    OffsetTrimmed,
    OwnedElsewhere,
    PartitionLost,
    PenstockError,
    ReadOnly,
    TopicReplaced,
    UnknownConsumer,
    UnknownTopic,
    UsageError,
)


class Exit(IntEnum):
    """What the command's exit code says."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNHEALTHY = 3
    TRY_AGAIN = 4
    INTERRUPTED = 130


#: The first that fits holds. Before all of them: an error whose `retryable` is True is TRY_AGAIN.
EXIT_CODES: tuple[tuple[type[BaseException], Exit], ...] = (
    (MissingExtra, Exit.FAILED),
    (UsageError, Exit.USAGE),
    (DataError, Exit.UNHEALTHY),
    (PenstockError, Exit.FAILED),  # ConflictError, OutOfRange, Closed
    (OSError, Exit.FAILED),
    (KeyboardInterrupt, Exit.INTERRUPTED),
)

#: The library's hints speak Python; here is what to type instead.
_HINTS: tuple[tuple[type[PenstockError], str], ...] = (
    (NotAStore, "-s PATH chooses another folder; `penstock topic create` makes a store"),
    (AlreadyExists, "--exists-ok accepts it as it is"),
    (
        MessageTooLarge,
        "`penstock topic alter TOPIC --max-message-bytes SIZE` raises the limit for values, "
        "--payloads files lets large ones lie beside the log",
    ),
    (OwnedElsewhere, "reading without --consumer works meanwhile; for the rest, close it there first"),
    (PartitionLost, "run it again: it goes on at the position that is stored now"),
    (TopicReplaced, "run it again to use the topic that has the name now"),
    (OffsetTrimmed, "`earliest` is the first message left; --on-gap skip goes on behind the gap"),
    (OffsetAhead, "`latest` is the end"),
    (Corrupt, "--on-gap skip reads what lies behind it; `penstock verify` lists all damage"),
    (UnknownConsumer, "`penstock consumer list` shows those there are"),
    (ReadOnly, "see who may write to the folder"),
)


_SPEAKS_PYTHON = re.compile("exists_ok|on_gap")


def exit_code(error: BaseException) -> Exit:
    """The exit code for an error; by the table above."""
    if getattr(error, "retryable", False):
        return Exit.TRY_AGAIN
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), Exit.FAILED)


def report(error: BaseException) -> Exit:
    """Tell what went wrong and what to do, on stderr; return the exit code."""
    tell(_message(error), _hint(error))
    for remark in getattr(error, "__notes__", ()):
        print(f"note: {remark}", file=sys.stderr)
    return exit_code(error)


def tell(message: str, hint: str = "") -> None:
    """Print an error and its hint to standard error."""
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


def _message(error: BaseException) -> str:
    if isinstance(error, PenstockError):
        return str(error.args[0])
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _hint(error: BaseException) -> str:
    if isinstance(error, UnknownTopic) and not error.hint.startswith("--"):
        known = error.hint.partition(";")[0]
        return f"{known}; `penstock topic create {error.name}` makes one"
    own = error.hint if isinstance(error, PenstockError) else ""
    if isinstance(error, (AlreadyExists, Corrupt)) and own and not _SPEAKS_PYTHON.search(own):
        return own
    return next((hint for kind, hint in _HINTS if isinstance(error, kind)), own)
