"""Read ahead: the next piece of a file is fetched while the one before it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

_END: Final = object()


def read_ahead(pieces: Iterator[T]) -> Iterator[T]:
    """Yield what `pieces` yields, one piece ahead, from a thread; what fails there is raised here.

    It pays where reading and storing leave Python for native code: both cores work then.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="penstock-read-ahead") as thread:
        following = thread.submit(next, pieces, _END)
        while (piece := following.result()) is not _END:
            following = thread.submit(next, pieces, _END)
            yield piece  # type: ignore[misc]  # mypy cannot tell the end from a piece
