"""The past of the topic that a query reads, as the driver asks for it: in an archive, or nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.lake.cut import NOTHING, Held
from penstock.topic.partitions import Partitions

if TYPE_CHECKING:
    from penstock.lake.history import History
    from penstock.lake.storage import Storage


class Lookback:
    """What the table has that was named by the option `history`; nothing, when none was."""

    def __init__(self, table: Storage | None, store_id: str, topics: Mapping[str, Partitions]) -> None:
        """Looks at the table at once: raises when it is not the topic's archive."""
        self.table = table
        self._history: History | None = None
        if table is not None:
            from penstock.lake.history import History

            (partitions,) = topics.values()
            self._history = History(table, store_id, partitions.record.id)
            self._history.look()

    def held(self, partition: int, log_start: int) -> Held:
        """What the table has of a partition whose log begins there by now; looks again if that helps."""
        return NOTHING if self._history is None else self._history.held(partition, log_start)

    def known(self, partition: int) -> Held:
        """The same as it was at the last look."""
        return NOTHING if self._history is None else self._history.known(partition)

    def written_since(self, held: Held, moment: int, stop: int) -> int | None:
        """The first offset before `stop` that the table says was written at that time or later."""
        return None if self._history is None else self._history.written_since(held, moment, stop)
