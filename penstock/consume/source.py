"""One partition as a reader reads it: a cursor, what was committed, and what to do about gaps."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from penstock.consume.commits import Commits
from penstock.errors import Closed, Corrupt, OffsetTrimmed
from penstock.log.cursor import Cursor
from penstock.log.log import Log
from penstock.message import Rows
from penstock.topic.partitions import Partitions

logger = logging.getLogger("penstock.reader")


class Gap(NamedTuple):
    """Offsets from `first` up to `stop` that could not be delivered, and why."""

    topic: str
    partition: int
    first: int
    stop: int
    reason: str


class Source:
    """A partition under a reader."""

    def __init__(self, topic: Partitions, partition: int, commits: Commits, gates: Mapping[int, int]) -> None:
        self.topic = topic
        self.partition = partition
        self.commits = commits
        #: The position that is stored.
        self.stored = commits.position
        self.epoch = 0
        self.cursor: Cursor = topic.log(partition).cursor(commits.position)
        self._gates = gates
        self._open = not gates

    @property
    def log(self) -> Log:
        return self.topic.log(self.partition)

    def move(self, offset: int) -> None:
        """Go on from `offset`, and forget what was delivered before."""
        self.commits = Commits(offset)
        self.stored = offset
        self.cursor = self.log.cursor(offset)

    def is_open(self, sources: Mapping[tuple[str, int], Source]) -> bool:
        """A partition added later opens once what came before it is committed: keys keep their order."""
        if not self._open:
            self._open = all(
                self._passed(sources.get((self.topic.name, p)), at) for p, at in self._gates.items()
            )
        return self._open

    def read(self, max_messages: int, max_bytes: int, skip_gaps: bool, gaps: list[Gap]) -> list[Rows]:
        """What comes next; where something is missing, raise, or note the gap and go on behind it."""
        while True:
            try:
                rows = self.cursor.read(max_messages, max_bytes)
            except (OffsetTrimmed, Corrupt) as error:
                if not skip_gaps:
                    raise
                gaps.append(self._step_over(error))
                continue
            except (Closed, OSError):
                self.topic.require_open()  # closed or dropped under us: this says which
                raise
            for each in rows:
                self.commits.deliver(each.first, each.stop)
            return rows

    def _step_over(self, error: OffsetTrimmed | Corrupt) -> Gap:
        first = self.cursor.offset
        stop = error.first if isinstance(error, OffsetTrimmed) else error.stop
        if stop is None:
            stop = self.log.bounds().end  # nothing sound lies behind it yet
        if stop <= first:
            raise error
        self.cursor.offset = stop
        logger.warning("skipped offsets %d to %d: %s", first, stop - 1, error)
        return Gap(self.topic.name, self.partition, first, stop, str(error))

    def _passed(self, parent: Source | None, gate: int) -> bool:
        if parent is None or parent.commits.position >= gate:
            return True
        return parent.commits.position == parent.commits.delivered and parent.is_at_gap_up_to(gate)

    def is_at_gap_up_to(self, offset: int) -> bool:
        """Whether nothing can come before `offset`: it was never given out, or is passed over."""
        if self.cursor.offset >= offset:
            return True
        if self.log.bounds().end < offset:
            return False
        try:
            return not self.log.cursor(self.cursor.offset).read(1, 1, offset)
        except (OffsetTrimmed, Corrupt):
            return False  # the parent's own next read meets it
