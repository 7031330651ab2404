"""What a task of `compact` does: it copies the chosen messages of its slice into staged files.

It reads segment files and writes staged ones, and opens nothing else of the store. Only what it returns can
be committed; what an attempt that failed leaves behind is removed after a day.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from penstock.clock import Clock
from penstock.files import Files
from penstock.log.copy import FrameRun, MessageRun, SingleRun
from penstock.log.folder import Folder
from penstock.log.single_frame import Singles
from penstock.log.staging import StagedPiece
from penstock.partition_tree import PartitionTree
from penstock.spark.executors import Failed
from penstock.spark.sink.task import unseen
from penstock.spark.source.plan import Slice
from penstock.spark.source.segments import FramePart, parts
from penstock.topic.copy import OffsetSet, TopicCopy
from penstock.topic.write_plan import TopicPlan


class Job(NamedTuple):
    """All that a task is told."""

    slice: Slice
    marks: OffsetSet
    sink: TopicPlan
    source: PartitionTree
    #: Tombstones written before this moment are left out.
    keep_since: int


class Done(NamedTuple):
    """What was staged, by partition of the sink."""

    pieces: dict[int, list[StagedPiece]]
    messages: int
    bytes: int


def stage(job: Job) -> Done:
    """Stage what is marked, durably; nothing of it stays when this raises."""
    folders: dict[int, Folder] = {}

    def folder_of(number: int) -> Folder:
        path = job.sink.path(number)
        if not os.path.isdir(path):
            raise unseen(job.slice.store, job.sink.name)
        folders[number] = Folder(
            path, topic_id=job.sink.id, partition=number, files=Files(), clock=Clock(), read_only=True
        )
        return folders[number]

    copying = TopicCopy(job.sink, folder_of, source=job.source)
    try:
        for first, run in _runs(job.slice):
            copying.add_marked(job.slice.partition, first, run, job.marks, keep_since=job.keep_since)
        return Done(copying.finish(), copying.count, copying.bytes)
    except BaseException:
        copying.discard()
        raise
    finally:
        for folder in folders.values():
            folder.close()


def _runs(planned: Slice) -> Iterator[tuple[int, MessageRun]]:
    """Everything of a slice of the log, each run with its first offset; no archive is planned here."""
    for part in parts(planned):
        if isinstance(part, FramePart):
            yield part.frame.head.base + part.first, FrameRun(part.frame, part.first, part.stop)
        elif isinstance(part, Singles):
            yield part.first, SingleRun(part.keys, part.values, part.created, part.written)


def gathered(results: Sequence[Done | Failed], jobs: Sequence[Job]) -> Done:
    """What all tasks staged, in the order of the jobs; raises what one of them raised.

    Nothing of the others stays then.
    """
    done = [each for each in results if isinstance(each, Done)]
    failures = [each for each in results if isinstance(each, Failed)]
    if failures:
        for each in done:
            _remove(each, jobs[0].sink)
        raise failures[0].error()
    pieces: dict[int, list[StagedPiece]] = {}
    for each in done:
        for number, staged in each.pieces.items():
            pieces.setdefault(number, []).extend(staged)
    return Done(pieces, sum(each.messages for each in done), sum(each.bytes for each in done))


def _remove(done: Done, sink: TopicPlan) -> None:
    """No transaction knows of these files yet, so nobody else needs them."""
    for number, pieces in done.pieces.items():
        for piece in pieces:
            if piece.file is not None:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(sink.path(number), piece.file))
