"""`mirror`: a topic copied into a topic of another store, as it grows, each message once.

    mirror(store, "orders", to="/mnt/backup/data")

Partition i goes to partition i when both have as many, else keys choose. Keys, headers and the producer's
times stay (times to the microsecond); offsets and times of writing are those of the other store.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import InvalidOption, NotAStore
from penstock.parse import Duration
from penstock.spark.pipelines.engine import started
from penstock.spark.pipelines.expressions import topic_stream
from penstock.spark.pipelines.sink_run import StreamPace, run_into
from penstock.spark.source.options import store_path
from penstock.spark.user.query_plan import refuse_connect
from penstock.store import Store, open_store
from penstock.store.pipelines import Watch, claim, unwatched
from penstock.store.replay import identity_of
from penstock.topic.copy import is_same_layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_COLUMNS = ("timestamp", "key", "value", "headers")


@dataclass(frozen=True)
class Mirrored:
    """What a run of `mirror` did."""

    source: str
    #: The folder of the other store, and the topic there.
    to: str
    sink: str
    copied: int


def mirror(
    store: Store, source: str, *, to: str | os.PathLike[str], sink: str | None = None, once: bool = False,
    trigger: Duration | None = None, name: str | None = None, important: bool | None = None,
    spark: SparkSession | None = None, master: str | None = None, watch: Watch = unwatched,
) -> Mirrored:  # fmt: skip
    """Copy `source` into the topic `sink` (by default of the same name) of the store in the folder `to`.

    Its progress is kept in the store that is read; `important` makes retention there wait for it. A store
    that was put back to an earlier state, on either side, is noticed: `HistoryChanged` or `ConflictError`.
    """
    origin = store.topic(source)
    place, called = store_path(os.fspath(to)), name or f"mirror-{source}"
    if os.path.realpath(place) == os.path.realpath(store.path):
        raise InvalidOption(
            "a store is not mirrored into itself", hint="penstock pipeline replay copies a topic"
        )
    pace = StreamPace(once, trigger)
    if spark is not None:
        refuse_connect(spark)
    with _other(place) as other:
        target = other.topic(sink or source)
        identity = {**identity_of(origin, target), "store": place, "store_id": other.id}
        is_alike = is_same_layout(origin.open_topic.tree, target.open_topic.tree)
    with claim(
        store, called, kind="mirror", identity=identity, consumer=called, options={"once": once}
    ) as run, watch(run):  # fmt: skip
        columns = ("partition", *_COLUMNS) if is_alike else _COLUMNS
        rows = topic_stream(started(spark, master), store, source, columns, called, important=important)
        run_into(run, rows, place, {"topic": target.name}, pace)
        return Mirrored(source, place, target.name, run.facts.rows)


def _other(place: str) -> Store:
    """The store that is written to, as it is."""
    try:
        return open_store(place, create=False, read_only=True)
    except NotAStore:
        raise InvalidOption(
            f"there is no store to mirror into in {place}",
            hint="penstock.open(…) makes one; on the command line --create does",
        ) from None
