"""Work after an append: after a roll indexes, repacking, vacuum; splits of partitions written to too fast.

It is done by a thread of the process that appended. Nothing depends on it happening: readers build a missing
index for themselves, and the next roll or `vacuum()` takes up what a process that died left undone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.topic.open_topic import OpenTopic
from penstock.topic.retention import vacuum_partition

logger = logging.getLogger("penstock.housekeeper")


#: What is done to a partition.
_Work = Callable[[OpenTopic, int], object]


def _split(topic: OpenTopic, partition: int) -> None:
    topic.growth.split_hot(partition)


class Housekeeper:
    """One thread for a whole store, started when there is something to do."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[OpenTopic, int, _Work]] = []
        self._busy = False
        self._ended = False

    def add(self, topic: OpenTopic, partition: int) -> None:
        """Have a partition tidied soon."""
        self._add(topic, partition, vacuum_partition)

    def split(self, topic: OpenTopic, partition: int) -> None:
        """Have a partition split soon, if that is still called for then."""
        self._add(topic, partition, _split)

    def _add(self, topic: OpenTopic, partition: int, work: _Work) -> None:
        with self._changed:
            if self._ended or (topic, partition, work) in self._waiting:
                return
            self._waiting.append((topic, partition, work))
            if not self._busy:
                thread = threading.Thread(target=self._work, name="penstock-housekeeper", daemon=True)
                self._busy = True
                try:
                    thread.start()
                except BaseException:
                    self._busy = thread.is_alive()
                    raise

    def finish(self, timeout: float) -> bool:
        """Wait until nothing is left to do; False when time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, timeout)

    def end(self, timeout: float) -> None:
        """Finish what is being done, drop the rest."""
        with self._changed:
            self._ended = True
            self._waiting.clear()
            self._changed.wait_for(lambda: not self._busy, timeout)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._busy = False
                    self._changed.notify_all()
                    return
                topic, number, work = self._waiting.pop(0)
            try:
                work(topic, number)
            except (PenstockError, OSError) as error:
                if not topic.ended:  # else it was dropped meanwhile, and there is nothing to tidy
                    logger.warning("housekeeping of %s/%d failed: %s", topic.name, number, error)
            except Exception:  # or nobody would do the rest, and `finish` wait in vain
                logger.exception("housekeeping of %s/%d failed", topic.name, number)
