"""Removing the oldest: the start moves to an exact offset, whole segments below it go.

Removed segments are first renamed to `.deleted` and unlinked a minute later, so that scans planned
in other processes finish. The active segment always stays: its name keeps the high-water mark, and a
seal lies in it. A crash between the two leaves files that the next trim takes up. Before anything goes,
a checkpoint of what it says of producers must verify.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.clock import NANOSECONDS
from penstock.files import refusal
from penstock.locks import hold
from penstock.log.append import Appender
from penstock.log.folder import COMPANIONS, DELETED, KEY_INDEX, PRODUCERS, Folder, file_bytes
from penstock.log.producer_table import keep_later_checkpoint
from penstock.log.segments import Segments

#: How long a removed segment can still be opened by a scan that was planned before.
LINGER_NS = 60 * NANOSECONDS


class Trimmed(NamedTuple):
    """What a trim did."""

    start: int
    messages: int
    segments: int
    bytes: int


def trim(folder: Folder, appender: Appender, segments: Segments, start: int) -> Trimmed:
    """Make `start` the first readable offset, durably, then remove whole segments below it."""
    before, start = hold((folder.append,), lambda: _move_start(appender, segments, start))
    count, removed = _remove_below(folder, segments, start)
    purge(folder)
    return Trimmed(start, start - before, count, removed)


def _move_start(appender: Appender, segments: Segments, start: int) -> tuple[int, int]:
    """Publish the start, durably; return what it was and what it is. The append lock is held."""
    ends, bounds = appender.ready(), segments.bounds()
    start = min(max(start, bounds.start), bounds.end)
    if start > bounds.start:
        has_messages = ends.append.next > ends.append.segment
        if start == ends.append.next and has_messages and not ends.shown.sealed:
            appender.roll(ends)  # all of it is expired: let its space go too, but for a seal
        appender.publish_start(start)
    return bounds.start, start


def _remove_below(folder: Folder, segments: Segments, start: int) -> tuple[int, int]:
    """Rename segments that lie wholly below `start`; count them and their bytes."""
    limit = min(start, segments.bounds().segment)
    bases = [base for base in segments.bases() if base <= limit]
    count = size = 0
    for base in bases[:-1]:
        if not count:
            _sync_start(folder)
            keep_later_checkpoint(folder, bases[-1])  # what is known of producers outlives their messages
        path = folder.segment_path(base)
        size += file_bytes(folder, base)
        mark = f".{folder.clock.now_ns()}{DELETED}"
        folder.files.rename(path, path + mark)
        for kind in (*COMPANIONS, KEY_INDEX, PRODUCERS):
            _unlink(folder, folder.segment_path(base, kind))
        count += 1
    if count:
        folder.files.sync_dir(folder.path)
        segments.forget()
    return count, size


def _sync_start(folder: Folder) -> None:
    """Sync the start: its publisher may have died before that, and what lies below it goes now."""
    try:
        folder.sync_tail()
    except OSError as error:
        raise refusal(folder.path, error) from error


def purge(folder: Folder, *, now: bool = False) -> None:
    """Unlink segments that were removed more than a minute ago."""
    limit = folder.clock.now_ns() - LINGER_NS
    for name in folder.files.listdir(folder.path):
        if name.endswith(DELETED):
            moment = name[: -len(DELETED)].rpartition(".")[2]
            if now or not moment.isdecimal() or int(moment) <= limit:
                _unlink(folder, folder.name(name))


def _unlink(folder: Folder, path: str) -> None:
    try:
        folder.files.unlink(path)
    except FileNotFoundError:
        pass
