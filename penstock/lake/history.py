"""A topic's archive for readers of the past: opened when it is needed, never written to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.cut import NOTHING, Held
from penstock.lake.layout import LakeFile, nanoseconds
from penstock.lake.parquet_files import read
from penstock.lake.storage import Storage
from penstock.lake.table import open_archive

#: What is known of a table is used for so long. Replaced files stay for days, so it may be much longer.
_KNOWN_S = 60.0


class History:
    """The archive of one topic. It is looked at when there is a need, and not held open between."""

    def __init__(
        self, place: Storage, store_id: str, topic_id: int, *, elapsed: Callable[[], float] = time.monotonic
    ) -> None:
        self.place = place
        self._store_id = store_id
        self._topic_id = topic_id
        self._elapsed = elapsed
        self._known: dict[int, Held] = {}
        self._looked_at: float | None = None

    def look(self) -> None:
        """See what the table has now.

        Raises `NotATable` when none is there (any more), `NotAnArchive` or `ForeignArchive` when it is not
        this topic's archive of whole values, `Unavailable` when it cannot be read now.
        """
        archive = open_archive(self.place)
        archive.check(self._store_id, self._topic_id, "raw")
        by_partition: dict[int, list[LakeFile]] = {}
        for file in archive.files():
            by_partition.setdefault(file.partition, []).append(file)
        self._known = {
            number: Held(
                files[0].first, archive.next_offset(number) or 0, tuple(files), archive.fingerprint(number)
            )
            for number, files in by_partition.items()
        }
        self._looked_at = self._elapsed()

    def held(self, partition: int, upto: int = 0) -> Held:
        """What the table has of a partition; looks again if what is known is old or ends before `upto`.

        Learn where the log begins first, then ask: between the two the archive may only have gone on.
        """
        is_old = self._looked_at is None or self._elapsed() - self._looked_at > _KNOWN_S
        if is_old or self.known(partition).next < upto:
            self.look()
        return self.known(partition)

    @property
    def all_known(self) -> Mapping[int, Held]:
        """What the table had at the last look, by partition."""
        return self._known

    def known(self, partition: int) -> Held:
        """Return what the table had of a partition at the last look."""
        return self._known.get(partition, NOTHING)

    def read(self, held: Held, start: int, stop: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The messages of a range, in offset order, in these columns of the table."""
        for each in held.stretches(start, stop):
            yield from read(self.place, each.file, start=each.base, stop=each.stop, columns=columns)

    def written_since(self, held: Held, moment: int, stop: int) -> int | None:
        """The first offset before `stop` that was written at that time (in nanoseconds) or later."""
        for each in held.stretches(0, stop):
            if each.file.written[1] < moment // 1000:
                continue
            columns = ("offset", "written_at", "written_at_nanos")
            for batch in read(self.place, each.file, stop=each.stop, columns=columns):
                written = nanoseconds(batch.column(1), batch.column(2)).view("int64")
                place = pc.index(pc.greater_equal(written, moment), True).as_py()
                if place >= 0:
                    return int(batch.column(0)[place].as_py())
        return None
