"""The door to one partition's files: the log, its parts, its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from penstock.clock import Clock
from penstock.errors import TopicReplaced
from penstock.files import Files
from penstock.log import append as append_module
from penstock.log import key_index as key_index_module
from penstock.log import log as log_module
from penstock.log import lost as lost_module
from penstock.log import producer_table as producer_table_module
from penstock.log import producers as producers_module
from penstock.log import segment as segment_module
from penstock.log import segment_index as segment_index_module
from penstock.log import staging as staging_module
from penstock.log.active_segment import ActiveSegment
from penstock.log.append import Appender
from penstock.log.descriptors import AWAKE, AwakeLogs
from penstock.log.folder import PRODUCERS
from penstock.log.key_index import GatheredKeys
from penstock.log.key_retention import KeyDurations
from penstock.log.key_search import stored_keys
from penstock.log.log import Log
from penstock.log.lost import Lost
from penstock.log.producer_table import Pair, ProducerTable
from penstock.log.producers import Producers
from penstock.log.records import DURABLE_AT, RECORD_BYTES, AppendRecord, DurableRecord, ShownRecord
from penstock.log.repair import Repair
from penstock.log.segment import SEGMENT_HEADER_BYTES, SegmentHead, parse_head
from penstock.log.staging import Hold, PlacedPiece
from penstock.log.sync import Syncer
from penstock.log.trim import purge
from penstock.options import TopicOptions


class NoStore:
    """What a store knows of a partition that nobody reads and no transaction writes to (`PartitionState`)."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options

    def options(self) -> TopicOptions:
        return self._options

    def require_topic(self) -> None:
        raise TopicReplaced("the topic was dropped", hint="open it anew by its name")

    def is_split(self) -> bool:
        return False

    def highest_position(self) -> int:
        return 0

    def holds(self) -> list[Hold]:
        return []

    def unfinished(self) -> list[PlacedPiece]:
        return []

    def move(self, pieces: Iterable[PlacedPiece]) -> None:
        raise AssertionError("no transactions")

    def finish(self, tx: int) -> None:
        raise AssertionError("no transactions")


def log_without_store(
    path: str, options: TopicOptions, *, topic: str = "t", topic_id: int = 7, files: Files | None = None,
    clock: Clock | None = None, read_only: bool = False,
) -> Log:  # fmt: skip
    """A log in a folder of its own, which no store knows."""
    return Log(
        path, topic=topic, topic_id=topic_id, partition=0, options=options, files=files or Files(),
        clock=clock or Clock(), state=NoStore(options), read_only=read_only,
    )  # fmt: skip


def seal_segment(log: Log) -> None:
    """End the active segment, so that what was written lies in a sealed one."""
    log.appender.seal_active()


@contextmanager
def no_housekeeping(log: Log) -> Iterator[None]:
    """Meanwhile nobody removes what has expired, not even a thread that a roll has woken."""
    with log.folder.housekeeping():
        yield


def do_housekeeping(log: Log) -> None:
    """Do the log's housekeeping now: index, repack and remove what is due."""
    with log.folder.housekeeping():
        log.tidy()
