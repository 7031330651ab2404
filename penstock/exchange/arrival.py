"""Messages that keep the offsets they had elsewhere: brought into one partition in order, gaps and all.

Where a partition ends says how much of it has arrived, so an import that was killed goes on there, and no
message comes twice. This is the only place here that knows how a log is appended to.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import ConflictError
from penstock.log.frame_encode import EncodedFrame, control
from penstock.log.frame_header import FENCE
from penstock.log.producer_table import ProducerTable
from penstock.log.producers import Claim, signed
from penstock.topic.open_topic import OpenTopic


class PartitionArrival:
    """One partition that is being filled, by its only writer."""

    def __init__(self, topic: OpenTopic, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self._log = topic.log(partition)
        self._log.appender.takes_arrivals = True  # the copy of a split partition is split from the start
        #: The offset that the next message will get; also after a process that died half-way.
        self.next = self._log.appender.leave_out(0)

    def begin_at(self, offset: int) -> None:
        """Let the partition begin at this offset: there is nothing before it, not even a gap."""
        self.skip_to(offset)
        if self._log.stored().start < offset:
            self._log.trim(offset)

    def skip_to(self, offset: int) -> None:
        """Leave out the offsets before this one; nothing happens when they have been passed."""
        self.next = self._log.appender.leave_out(offset)

    def append(self, frames: Sequence[EncodedFrame]) -> None:
        """Append frames as they are, durably."""
        appended = self._log.appender.append(frames, tree=self._topic.record.tree)
        self._topic.on_appended(self._partition)
        self._log.syncer.sync(appended.next, appended.cuts)
        self.arrived(appended.first, appended.next - appended.first)

    def know_producers(self, facts: ProducerTable) -> None:
        """Take over what is known of producers elsewhere: what they send again is a duplicate here.

        What is known already, from a run that was cut short, is not written again.
        """
        appender, now = self._log.appender, self._topic.clock.now_ns()
        for pair, seqno, epoch, _ in facts.items():
            if appender.known(pair).seqno >= seqno:
                continue
            frame = control(FENCE, b"", created=now, producer=signed(pair, epoch), seqno=seqno)
            claim = Claim(pair, epoch, False, -1, seqno, seqno)
            appender.append([frame], tree=self._topic.record.tree, claim=claim)

    def finish(self) -> None:
        """Make all that arrived durable and seen by readers, also what a run that was killed had written."""
        self._log.sync_all()

    def arrived(self, first: int, count: int) -> None:
        """Note what was written; raises `ConflictError` when somebody else wrote in between."""
        if first != self.next:
            raise ConflictError(
                f"another process writes to {self._topic.name!r}: offset {self.next} of partition "
                f"{self._partition} was to be imported, and is taken",
                hint="drop the topic, and import it again before others write to it",
            )
        self.next = first + count
