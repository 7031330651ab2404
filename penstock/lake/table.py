"""An archive table: whose messages it holds, up to where, in which files, and how more is committed.

Where the archive stands is kept by the table itself, in the app transactions of its own commits:

    penstock/<store id>/<topic id>/<partition>  →  the next offset to archive

and by nothing else. A commit of offsets [start, stop) is made when the table's next offset is `start`,
skipped when it is `stop` or beyond (it was made before), and refused otherwise. Check and commit go through
one snapshot of the table; deltalake refuses the commit when another one with the same key came between.

A crash before the commit leaves files that no commit names; `vacuum` removes them after a grace.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, cast

import pyarrow as pa

from penstock.arrow import require_deltalake
from penstock.errors import (
    ConflictError,
    DataError,
    ForeignArchive,
    NotAnArchive,
    NotATable,
    Unavailable,
    UnknownFormat,
)
from penstock.lake.layout import DATE, WITH_STATISTICS, Kind, LakeFile
from penstock.lake.parquet_files import is_ours
from penstock.lake.storage import Storage, committing_to, first_line, unwritable, writing_to
from penstock.parse import datetime_ns, utc


def added(file: LakeFile, *, is_new: bool = True) -> Any:
    """The action that brings a file into the table; not `is_new` says that its rows were there before."""
    from deltalake.transaction import AddAction

    return AddAction(
        path=file.path,
        size=file.bytes,
        partition_values={DATE: file.date.isoformat()},
        modification_time=time.time_ns() // 1_000_000,
        data_change=is_new,
        stats=json.dumps(_statistics(file)),
    )


def removed(file: LakeFile, now_ms: int) -> Any:
    """The action that takes a file out of the table because its rows are in another one."""
    from deltalake.transaction import RemoveAction

    return RemoveAction(
        file.path, False, now_ms, size=file.bytes, partition_values={DATE: file.date.isoformat()}
    )


def files(actions: pa.Table) -> Iterator[LakeFile]:
    """Yield the files of a table's add actions, in no order; raise `DataError` for one that is not ours."""
    for row in actions.to_pylist():
        if row.get("min.offset") is None or row.get("max.written_at") is None:
            raise DataError(
                f"the table holds {row['path']}, which no archive wrote",
                hint="nothing else may write into an archive: restore the version before that",
            )
        yield LakeFile(
            path=row["path"],
            date=row[f"partition.{DATE}"],
            partition=row["min.partition"],
            first=row["min.offset"],
            stop=row["max.offset"] + 1,
            rows=row["num_records"],
            bytes=row["size_bytes"],
            timestamps=(_micros(row["min.timestamp"]), _micros(row["max.timestamp"])),
            written=(_micros(row["min.written_at"]), _micros(row["max.written_at"])),
        )


def _statistics(file: LakeFile) -> dict[str, Any]:
    def bound(offset: int, which: int) -> dict[str, Any]:
        return {
            "partition": file.partition,
            "offset": offset,
            "timestamp": _text(file.timestamps[which]),
            "written_at": _text(file.written[which]),
        }

    least = bound(file.first, 0)
    return {
        "numRecords": file.rows,
        "minValues": least,
        "maxValues": bound(file.stop - 1, 1),
        "nullCount": dict.fromkeys(least, 0),
    }


def _text(micros: int) -> str:
    return utc(micros * 1000).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _micros(moment: datetime) -> int:
    return datetime_ns(moment) // 1000


#: Keys in the table's configuration.
_STORE, _TOPIC_ID, _TOPIC, _KIND, _FORMAT = (
    f"penstock.{name}" for name in ("storeId", "topicId", "topic", "kind", "format")
)
_FORMAT_NOW = "1"
#: What compaction replaced stays for queries that are still reading it; so do files of a run that died.
GRACE_S = 7 * 86400.0
_HOUR_S = 3600


class ArchiveOrigin(NamedTuple):
    """Whose messages a table holds."""

    store_id: str
    topic_id: int
    #: For people; a table is known by the two ids.
    topic: str

    def key(self, partition: int) -> str:
        """Names the commits that add messages of a partition; their number is its next offset."""
        return f"penstock/{self.store_id}/{self.topic_id}/{partition}"

    def last_key(self, partition: int) -> str:
        """Names the fingerprint of the last message before a partition's next offset."""
        return f"{self.key(partition)}/last"

    @property
    def turn_key(self) -> str:
        """Names the commits that replace files, numbered: deltalake would let two replace the same ones."""
        return f"penstock/{self.store_id}/{self.topic_id}/replaced"


class ArchivedSpan(NamedTuple):
    """Offsets that one commit brings into a table; there need not be a message for each."""

    start: int
    stop: int
    #: Of the last message before `stop`, as `penstock.log.fingerprint` makes it; 0 when it is not known.
    fingerprint: int = 0


class Archive:
    """A table as it was at one moment; `refresh` looks again, and so does every change made through it."""

    def __init__(self, storage: Storage, delta: Any) -> None:
        self.storage = storage
        self._delta = delta
        known = delta.metadata().configuration
        self.origin = ArchiveOrigin(known[_STORE], int(known[_TOPIC_ID]), known[_TOPIC])
        self.kind = cast(Kind, known[_KIND])

    def __repr__(self) -> str:
        return f"<Archive of {self.origin.topic!r} in {self.storage.uri}, version {self.version}>"

    @property
    def version(self) -> int:
        """The number of the table's latest commit, as far as it is known."""
        return int(self._delta.version())

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return pa.schema(self._delta.schema().to_arrow())

    def refresh(self) -> None:
        """See what was committed since."""
        self._delta.update_incremental()

    def check(self, store_id: str, topic_id: int, kind: Kind) -> None:
        """Raise unless this is the archive of that topic, of that kind."""
        if (self.origin.store_id, self.origin.topic_id) != (store_id, topic_id):
            is_ours = self.origin.store_id == store_id
            where = (
                "this store: another topic, or an earlier one of that name" if is_ours else "another store"
            )
            raise ForeignArchive(
                f"{self.storage.uri} is the archive of {self.origin.topic!r} of {where}",
                hint="an archive holds one topic as it was created once: use another table",
            )
        if self.kind != kind:
            has = {"raw": "whole values", "json": "values divided into columns"}
            raise NotAnArchive(
                f"{self.storage.uri} holds {has[self.kind]}, not {has[kind]}", hint="use another table"
            )

    def next_offset(self, partition: int) -> int | None:
        """The first offset that is not in the table; None when nothing of the partition was archived yet."""
        stored = self._delta.transaction_version(self.origin.key(partition))
        return None if stored is None else int(stored)

    def fingerprint(self, partition: int) -> int:
        """The fingerprint of the last message before `next_offset`; 0 when the table does not have it."""
        return int(self._delta.transaction_version(self.origin.last_key(partition)) or 0)

    def files(self, partition: int | None = None) -> list[LakeFile]:
        """The data files, of all partitions or of one, in the order of partition and offset."""
        found = files(pa.table(self._delta.get_add_actions(flatten=True)))
        return sorted(
            (each for each in found if partition is None or each.partition == partition),
            key=lambda each: (each.partition, each.first),
        )

    def append(self, files: Sequence[LakeFile], spans: Mapping[int, ArchivedSpan]) -> bool:
        """Commit files that hold these offsets, by partition; False if they were in the table already.

        What was staged is deleted unless it was committed. Raises `ConflictError` when the table stands
        elsewhere, or someone else commits the same at this moment: look again, and plan anew.
        """
        try:
            if not self._is_new(spans):
                self.storage.delete(each.path for each in files)
                return False
            keys = {self.origin.key(number): span.stop for number, span in spans.items()}
            keys |= {self.origin.last_key(number): span.fingerprint for number, span in spans.items()}
            self._commit([added(each) for each in files], keys)
        except ConflictError:
            if not self._discard(files):
                raise
        return True

    def replace(self, old: Sequence[LakeFile], new: Sequence[LakeFile]) -> None:
        """Put the same rows in other files; raises `ConflictError` when someone else did it meanwhile."""
        now_ms = time.time_ns() // 1_000_000
        made = [added(each, is_new=False) for each in new]
        made += [removed(each, now_ms) for each in old]
        turn = self._delta.transaction_version(self.origin.turn_key) or 0
        try:
            self._commit(made, {self.origin.turn_key: turn + 1})
        except ConflictError:
            if not self._discard(new):
                raise

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Let the table have more columns; they may be null, and are in every row there is."""
        from deltalake import Schema

        def add() -> None:
            self._delta.alter.add_columns(list(Schema.from_arrow(pa.schema(fields)).fields))

        self._change(add)

    def vacuum(self, grace_s: float = GRACE_S, *, dry_run: bool = False) -> list[str]:
        """Remove files of ours that have been in no version of the table for so long; returns their paths."""
        self.refresh()  # files committed since the last look must not be taken for leftovers
        stale = self._delta.vacuum(
            retention_hours=int(grace_s // _HOUR_S), dry_run=True, enforce_retention_duration=False, full=True
        )
        ours = sorted(path for path in stale if is_ours(path))
        if not dry_run:
            self.storage.delete(ours)
        return ours

    # Inside.

    def _is_new(self, spans: Mapping[int, ArchivedSpan]) -> bool:
        stands = {number: self.next_offset(number) for number in spans}
        if all(stands[number] in (None, span.start) for number, span in spans.items()):
            return True
        if all((at := stands[number]) is not None and at >= span.stop for number, span in spans.items()):
            return False
        told = ", ".join(
            f"partition {number} stands at {stands[number]}, not at {span.start}"
            for number, span in spans.items()
            if stands[number] not in (None, span.start)
        )
        raise ConflictError(
            f"someone else archived into {self.storage.uri}: {told}",
            hint="run it again; it goes on from there",
        )

    def _discard(self, staged: Sequence[LakeFile]) -> bool:
        """Delete what was not committed; True if all of it was after all.

        A request that is sent twice, since its answer was lost, is refused because of its own success.
        """
        self.refresh()
        live = {each.path for each in self.files()}
        self.storage.delete(each.path for each in staged if each.path not in live)
        return bool(staged) and all(each.path in live for each in staged)

    def _commit(self, made: Sequence[Any], keys: Mapping[str, int]) -> None:
        from deltalake.transaction import CommitProperties, Transaction

        noted = CommitProperties(app_transactions=[Transaction(key, at) for key, at in keys.items()])

        def commit() -> None:
            self._delta.create_write_transaction(
                list(made), "append", self._delta.schema(), [DATE], commit_properties=noted
            )

        self._change(commit)

    def _change(self, change: Callable[[], None]) -> None:
        """Change the table, make that last, and look at it again."""
        before = self.version
        with committing_to(self.storage):
            change()
        self.refresh()
        self._make_last(before)

    def _make_last(self, before: int) -> None:
        """Sync what deltalake wrote since that version: it does not do so itself."""
        names = [
            f"{version:020d}.{kind}"
            for version in range(before + 1, self.version + 1)
            for kind in ("json", "checkpoint.parquet")
        ]
        with writing_to(self.storage):
            for name in (*names, "_last_checkpoint"):
                with suppress(FileNotFoundError):  # not every version has a checkpoint
                    self.storage.sync(f"_delta_log/{name}")


def open_archive(storage: Storage) -> Archive:
    """The archive at that place.

    Raises `NotATable` when no Delta table is there, `NotAnArchive` when it is not one of ours.
    """
    found = _load(storage)
    if found is None:
        what = "there is nothing at" if storage.is_empty() else "there is no Delta table at"
        raise NotATable(f"{what} {storage.uri}", hint="`penstock pipeline archive TOPIC TABLE` makes one")
    return found


def open_or_create(storage: Storage, origin: ArchiveOrigin, kind: Kind, schema: pa.Schema) -> Archive:
    """The archive of that topic at that place, made if nothing is there yet.

    Raises `NotATable` when something else is there, `NotAnArchive` or `ForeignArchive` when it is a table
    that must not be written to, `ReadOnly` when it cannot be.
    """
    found = _load(storage)
    if found is None:
        if not storage.is_empty():
            raise NotATable(
                f"{storage.uri} holds something that is not a Delta table",
                hint="choose a folder that is empty or does not exist yet",
            )
        _create(storage, origin, kind, schema)
        found = open_archive(storage)
    found.check(origin.store_id, origin.topic_id, kind)
    return found


def _load(storage: Storage) -> Archive | None:
    """The archive, or None when no Delta table is there; raises when it is not ours."""
    deltalake = require_deltalake()
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        delta = deltalake.DeltaTable(storage.uri, storage_options=storage.delta_options)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise Unavailable(f"the table {storage.uri} cannot be read: {first_line(error)}") from error
    known = delta.metadata().configuration
    if _FORMAT not in known:
        raise NotAnArchive(
            f"{storage.uri} is a Delta table, but no archive of Penstock", hint="choose another place"
        )
    if known[_FORMAT] != _FORMAT_NOW:
        raise UnknownFormat(f"{storage.uri} was made by a newer Penstock", hint="install that version")
    return Archive(storage, delta)


def _create(storage: Storage, origin: ArchiveOrigin, kind: Kind, schema: pa.Schema) -> None:
    deltalake = require_deltalake()
    from deltalake.exceptions import DeltaError

    configuration = {
        _FORMAT: _FORMAT_NOW,
        _STORE: origin.store_id,
        _TOPIC_ID: str(origin.topic_id),
        _TOPIC: origin.topic,
        _KIND: kind,
        "delta.dataSkippingStatsColumns": ",".join(WITH_STATISTICS),
    }
    try:
        deltalake.DeltaTable.create(
            storage.uri, schema, mode="ignore", partition_by=[DATE], name=origin.topic,
            configuration=configuration, storage_options=storage.delta_options,
            raise_if_key_not_exists=False,
        )  # fmt: skip
    except (DeltaError, OSError) as error:
        raise unwritable(storage, error) from error
    storage.sync("_delta_log/00000000000000000000.json")
