"""Sync two files at the same time: the file system makes both durable with one commit of its journal.

One after the other they cost two, which is most of what a durable message costs.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from penstock.files import Files

#: So many pairs of this process are synced at a time; further ones wait.
_THREADS = 4
_threads: ThreadPoolExecutor | None = None


def sync_both(files: Files, fd: int, other: int) -> None:
    """Return when both files are durable; OSError when one of them could not be synced."""
    try:
        second = _executor().submit(files.sync, other)
    except RuntimeError:  # the interpreter is ending
        files.sync(other)
        files.sync(fd)
        return
    try:
        files.sync(fd)
    finally:
        second.result()


def _executor() -> ThreadPoolExecutor:
    global _threads
    if _threads is None:
        _threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-sync")
    return _threads


def _forget() -> None:
    """In a forked child the threads are not there."""
    global _threads
    _threads = None


os.register_at_fork(after_in_child=_forget)
