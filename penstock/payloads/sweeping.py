"""Bodies without a message, and messages without a body: told from lists of both, without touching either.

A body is stored before its message, so one that is young may be of a message that is on its way: it is left
alone for a day. List bodies first and references after them to find orphans; to find losses list references
first, and ask of each loss whether its message is still there: retention may have taken both meanwhile.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TypeVar

from penstock.clock import NANOSECONDS
from penstock.payloads.stores import Found
from penstock.references import Reference

#: A transaction may be open for so long, and its bodies wait for it.
GRACE_NS = 24 * 3600 * NANOSECONDS

M = TypeVar("M")


def orphans(
    bodies: Iterable[Found], referenced: Container[str], now_ns: int, grace_ns: int = GRACE_NS
) -> Iterator[Found]:
    """Bodies of one place that no message refers to by name, and that are older than the grace."""
    limit = now_ns - grace_ns
    return (body for body in bodies if body.modified_ns < limit and body.name not in referenced)


def losses(
    referring: Iterable[tuple[M, Reference]], sizes: Mapping[int, Mapping[str, int]]
) -> Iterator[tuple[M, Reference]]:
    """Messages whose body is not there, or is too short to hold it; `sizes` are the bodies of each place."""
    for message, reference in referring:
        size = sizes.get(reference.place, {}).get(reference.name, -1)
        if size < reference.start + reference.size:
            yield message, reference
