"""Penstock: the event stream you pip install.

    import penstock

    with penstock.open("data") as store:
        topic = store.create_topic("orders", exists_ok=True)
        topic.write(b"paid", key="customer-7")
        for message in topic.reader(consumer="billing", follow=False):
            print(message.key, message.value)

Topics live in a folder; any process reads and writes them with no server.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.codecs import register_codec
from penstock.errors import (
    AlreadyCommitted,
    AlreadyExists,
    BodyMissing,
    Closed,
    ConflictError,
    Corrupt,
    DataError,
    DiskFull,
    ForeignArchive,
    HistoryChanged,
    InvalidOption,
    InvalidSql,
    LockTimeout,
    MessageTooLarge,
    MissingExtra,
    NotAnArchive,
    NotAStore,
    NotATable,
    NotDurable,
    OffsetAhead,
    OffsetTrimmed,
    OutOfRange,
    OwnedElsewhere,
    PartitionInactive,
    PartitionLost,
    PenstockError,
    PipelineChanged,
    PipelineFailed,
    PipelineRunning,
    ProducerFenced,
    ReadOnly,
    StoreMoved,
    TakenElsewhere,
    TopicReplaced,
    Unavailable,
    Undecodable,
    UnknownCodec,
    UnknownConsumer,
    UnknownFormat,
    UnknownPipeline,
    UnknownTopic,
    UsageError,
    WriteTimeout,
    WrongType,
)
from penstock.files import Files

if TYPE_CHECKING:
    from penstock.consume.dead_letters import DeadLetter, DeadLetters
    from penstock.consume.options import Retry
    from penstock.consume.process_queue import Summary
    from penstock.consume.reader import Reader
    from penstock.events.events import Events
    from penstock.message import Batch, Message, Receipt, Receipts
    from penstock.options import Payloads
    from penstock.references import Reference
    from penstock.serve.asgi import asgi
    from penstock.sessions.sessions import Session, Sessions
    from penstock.spark.user.pipeline import pipeline
    from penstock.sql.session import SqlResult
    from penstock.store import Pipeline, Store, Topic, Transaction
    from penstock.streams.engine import Publication, StreamMessage
    from penstock.streams.stream import Stream
    from penstock.tarantool.tarantool import Tarantool
    from penstock.topic.scan import Scan
    from penstock.topic.writer import Writer


if sys.platform == "win32":
    raise ImportError(
        "Penstock runs on Linux and macOS; Windows has no file locks that die with their holder"
    )


__version__ = "0.1.0"

__all__ = [
    "AlreadyCommitted",
    "AlreadyExists",
    "Batch",
    "BodyMissing",
    "Clock",
    "Closed",
    "ConflictError",
    "Corrupt",
    "DataError",
    "DeadLetter",
    "DeadLetters",
    "DiskFull",
    "Events",
    "Files",
    "ForeignArchive",
    "HistoryChanged",
    "InvalidOption",
    "InvalidSql",
    "LockTimeout",
    "Message",
    "MessageTooLarge",
    "MissingExtra",
    "NotAStore",
    "NotATable",
    "NotAnArchive",
    "NotDurable",
    "OffsetAhead",
    "OffsetTrimmed",
    "OutOfRange",
    "OwnedElsewhere",
    "PartitionInactive",
    "PartitionLost",
    "Payloads",
    "PenstockError",
    "Pipeline",
    "PipelineChanged",
    "PipelineFailed",
    "PipelineRunning",
    "ProducerFenced",
    "Publication",
    "ReadOnly",
    "Reader",
    "Receipt",
    "Receipts",
    "Reference",
    "Retry",
    "Scan",
    "Session",
    "Sessions",
    "SqlResult",
    "Store",
    "StoreMoved",
    "Stream",
    "StreamMessage",
    "Summary",
    "TakenElsewhere",
    "Tarantool",
    "Topic",
    "TopicReplaced",
    "Transaction",
    "Unavailable",
    "Undecodable",
    "UnknownCodec",
    "UnknownConsumer",
    "UnknownFormat",
    "UnknownPipeline",
    "UnknownTopic",
    "UsageError",
    "WriteTimeout",
    "Writer",
    "WrongType",
    "__version__",
    "asgi",
    "open",
    "pipeline",
    "register_codec",
]

#: Names that are loaded when first used, so that `import penstock` stays quick and needs no msgspec: Spark's
#: executors do without.
_LAZY = {
    "Batch": "penstock.message",
    "DeadLetter": "penstock.consume.dead_letters",
    "DeadLetters": "penstock.consume.dead_letters",
    "Events": "penstock.events.events",
    "Message": "penstock.message",
    "Pipeline": "penstock.store",
    "Publication": "penstock.streams.engine",
    "Reader": "penstock.consume.reader",
    "Payloads": "penstock.options",
    "Receipt": "penstock.message",
    "Reference": "penstock.references",
    "Receipts": "penstock.message",
    "Retry": "penstock.consume.options",
    "Scan": "penstock.topic.scan",
    "Session": "penstock.sessions.sessions",
    "Sessions": "penstock.sessions.sessions",
    "SqlResult": "penstock.sql.session",
    "Store": "penstock.store",
    "Stream": "penstock.streams.stream",
    "StreamMessage": "penstock.streams.engine",
    "Summary": "penstock.consume.process_queue",
    "Tarantool": "penstock.tarantool.tarantool",
    "Topic": "penstock.store",
    "Transaction": "penstock.store",
    "Writer": "penstock.topic.writer",
    "asgi": "penstock.serve.asgi",
    "pipeline": "penstock.spark.user.pipeline",
}


def open(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    exclusive: bool = False,
    files: Files | None = None,
    clock: Clock | None = None,
) -> Store:
    """Open the store in a folder, making it if need be.

    Any number of processes may have it open and write to it; `exclusive=True` makes this one the only
    one that may. `read_only=True` changes nothing in the folder. ":memory:" is a store of your own that
    is gone when it is closed. `files` and `clock` are for tests.
    """
    from penstock.store import open_store

    return open_store(path, create=create, read_only=read_only, exclusive=exclusive, files=files, clock=clock)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in ("aio", "testing", "spark"):
        import importlib

        return importlib.import_module(f"penstock.{name}")
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
