"""A Delta table that holds the present state of a topic: one row a key, changed by MERGE.

The next offset of each partition, and the fingerprint of the message before it, are committed with the rows
(as app transactions, like an archive's). So table and offsets never disagree, whatever is killed when.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import pyarrow as pa

from penstock.arrow import require_deltalake
from penstock.errors import ForeignArchive, NotATable
from penstock.lake.layout import TIME
from penstock.lake.storage import Storage, committing_to

#: Keys in the table's configuration.
_STORE, _TOPIC_ID, _TOPIC = (f"penstock.current.{name}" for name in ("storeId", "topicId", "topic"))
_PLACES = (
    pa.field("timestamp", TIME, nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
)
_DELETED = "_deleted"


def schema_of(fields: pa.Schema | None) -> pa.Schema:
    """The table's columns: the key, the value or the fields of its JSON, and where the message lies."""
    value = [pa.field("value", pa.binary())] if fields is None else [*fields, pa.field("_error", pa.string())]
    return pa.schema([pa.field("key", pa.binary(), nullable=False), *value, *_PLACES])


class CurrentTable:
    """The table of one topic's present state; `merge` changes it."""

    def __init__(self, storage: Storage, delta: Any, columns: pa.Schema) -> None:
        self.storage, self._delta, self._columns = storage, delta, columns
        known = delta.metadata().configuration
        self.store_id, self.topic_id = known[_STORE], int(known[_TOPIC_ID])

    @property
    def version(self) -> int:
        """The number of the table's latest commit."""
        return int(self._delta.version())

    def positions(self, partitions: int) -> dict[int, tuple[int, int]]:
        """The next offset and its fingerprint of each of so many partitions, as far as they were read.

        Those behind them are among them that the table has, too: the topic may have been put back.
        """
        found: dict[int, tuple[int, int]] = {}
        for number in count():
            at = self._delta.transaction_version(self._key(number))
            if at is not None:
                last = self._delta.transaction_version(f"{self._key(number)}/last")
                found[number] = int(at), int(last or 0)
            elif number >= partitions:
                break
        return found

    def merge(self, rows: pa.Table, positions: Mapping[int, tuple[int, int]]) -> tuple[int, int]:
        """Take in the latest rows and move the offsets, in one commit; returns rows written and deleted.

        Raises `ConflictError` when someone else changed the table at the same moment.
        """
        from deltalake.transaction import CommitProperties, Transaction

        noted = [Transaction(self._key(number), at) for number, (at, _) in positions.items()]
        noted += [Transaction(f"{self._key(number)}/last", last) for number, (_, last) in positions.items()]
        properties = CommitProperties(app_transactions=noted)
        with committing_to(self.storage):
            if rows.num_rows:
                told = self._merged(rows, properties)
            else:
                told = {}
                self._delta.create_write_transaction(
                    [], "append", self._delta.schema(), [], commit_properties=properties
                )
        self._delta.update_incremental()
        written = told.get("num_target_rows_inserted", 0) + told.get("num_target_rows_updated", 0)
        return int(written), int(told.get("num_target_rows_deleted", 0))

    def _merged(self, rows: pa.Table, properties: Any) -> dict[str, Any]:
        source = rows.select([*self._columns.names, _DELETED])
        changes = {f"`{name}`": f"s.`{name}`" for name in self._columns.names}
        merger = self._delta.merge(
            source, "t.key = s.key", source_alias="s", target_alias="t", commit_properties=properties
        )
        done: dict[str, Any] = (
            merger.when_matched_delete(f"s.{_DELETED} = true")
            .when_matched_update(changes, f"s.{_DELETED} = false")
            .when_not_matched_insert(changes, f"s.{_DELETED} = false")
            .execute()
        )
        return done

    def _key(self, partition: int) -> str:
        return f"penstock/current/{self.store_id}/{self.topic_id}/{partition}"


def open_current(
    place: Storage, store_id: str, topic_id: int, fields: pa.Schema | None
) -> CurrentTable | None:
    """The table of a topic's present state; None when nothing is there yet.

    Raises `NotATable` when something else is there, `ForeignArchive` when it is another topic's.
    """
    deltalake = require_deltalake()
    from deltalake.exceptions import TableNotFoundError

    columns = schema_of(fields)
    try:
        delta = deltalake.DeltaTable(place.uri, storage_options=place.delta_options)
    except TableNotFoundError:
        if not place.is_empty():
            raise NotATable(
                f"{place.uri} holds something that is not a Delta table",
                hint="choose a folder that is empty or does not exist yet",
            ) from None
        return None
    _check(delta, place, store_id, topic_id, columns)
    return CurrentTable(place, delta, columns)


def open_or_create_current(
    place: Storage, store_id: str, topic_id: int, topic: str, fields: pa.Schema | None
) -> CurrentTable:
    """The table of a topic's present state, made if nothing is there yet; raises as `open_current`."""
    found = open_current(place, store_id, topic_id, fields)
    if found is not None:
        return found
    columns = schema_of(fields)
    known = {_STORE: store_id, _TOPIC_ID: str(topic_id), _TOPIC: topic}
    delta = require_deltalake().DeltaTable.create(
        place.uri, columns, name=topic, configuration=known, storage_options=place.delta_options,
        raise_if_key_not_exists=False,
    )  # fmt: skip
    return CurrentTable(place, delta, columns)


def _check(delta: Any, place: Storage, store_id: str, topic_id: int, columns: pa.Schema) -> None:
    known = delta.metadata().configuration
    if known.get(_STORE) != store_id or known.get(_TOPIC_ID) != str(topic_id):
        raise ForeignArchive(
            f"{place.uri} is not the table of this topic's present state", hint="choose another place"
        )
    there = pa.schema(delta.schema().to_arrow()).names
    if there != columns.names:
        raise NotATable(
            f"{place.uri} has the columns {', '.join(there)}, and {', '.join(columns.names)} are asked for",
            hint="use the schema it was made with, or another table",
        )
