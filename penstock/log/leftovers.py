"""What a check says of files beside the segments that are missing, or that nobody will ever use."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

from penstock.errors import Corrupt
from penstock.findings import Finding, damage, note
from penstock.log.folder import GATE_PRODUCERS, Folder
from penstock.log.producer_table import begin, facts_at
from penstock.log.staging import STAGED

_MISSING = "what was known of producers when partitions were added is missing"
_MADE_AGAIN = f"{_MISSING}: it is made again from the log"
_GONE = f"{_MISSING}: what they send again may be stored twice"


def missing_gates(folder: Folder, gates: Collection[int]) -> Iterator[Finding]:
    """Tables that were kept where the partition ended at those moments, and are not there."""
    for offset in sorted(gates):
        path = folder.segment_path(offset, GATE_PRODUCERS)
        if folder.files.exists(path):
            continue
        facts = facts_at(folder, offset)
        if facts is not None and len(facts):
            yield note(path, None, _MADE_AGAIN)
        elif facts is None and _has_producers(folder):
            yield damage(path, None, _GONE)


def _has_producers(folder: Folder) -> bool:
    with suppress(Corrupt):  # said elsewhere
        return len(begin(folder)[0]) > 0
    return True


def abandoned(folder: Folder, needed: Collection[str | None]) -> Iterator[Finding]:
    """What transactions have staged and not committed: they are at work, or were killed."""
    for name in sorted(folder.files.listdir(folder.path)):
        if name.endswith(STAGED) and name not in needed:
            yield note(
                folder.name(name), None,
                f"{_size(folder, name)} bytes that no transaction has committed: "
                "it is at work, or was killed (then they are removed after a day)",
            )  # fmt: skip


def _size(folder: Folder, name: str) -> int:
    with suppress(FileNotFoundError):  # its transaction ended meanwhile
        fd = folder.files.open(folder.name(name), write=False)
        try:
            return folder.files.size(fd)
        finally:
            folder.files.close(fd)
    return 0
