"""`enrich`: each message with the row of a table that belongs to it.

    enrich(store, "orders", "orders.full", table="tables/customers", on="get_json_object(text, '$.customer')",
           column="id", into="who")

    {"id": 7, "customer": "c1"}  +  table row (c1, Ada, Berlin)
        ─►  {"id": 7, "customer": "c1", "who": {"id": "c1", "name": "Ada", "city": "Berlin"}}

A stream that joins with a table as it was when the run began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.errors import InvalidOption
from penstock.parse import Duration, one_of
from penstock.spark.pipelines.engine import started
from penstock.spark.pipelines.expressions import (
    TEXT,
    check_expression,
    columns_for,
    no_messages,
    topic_stream,
    with_text,
)
from penstock.spark.pipelines.sink_run import StreamPace, run_into
from penstock.spark.user.query import check_table, read_table
from penstock.store import Store
from penstock.store.pipelines import Watch, claim, unwatched
from penstock.store.replay import identity_of, two_topics

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


#: What becomes of a message that has no row: kept with null, or left out.
Unmatched = Literal["keep", "drop"]
_JOIN, _ROW = "_join", "_row"


@dataclass(frozen=True)
class Enriched:
    """What a run of `enrich` did."""

    source: str
    sink: str
    table: str
    read: int


def enrich(
    store: Store, source: str, sink: str, *, table: str, column: str, on: str = "string(key)",
    into: str = "row", fields: Sequence[str] = (), unmatched: Unmatched = "keep", once: bool = False,
    trigger: Duration | None = None, name: str | None = None, spark: SparkSession | None = None,
    master: str | None = None, watch: Watch = unwatched,
) -> Enriched:  # fmt: skip
    """Write each message of `source` to `sink` with the row of `table` whose `column` equals `on`.

    `on` is SQL over a message's columns and `text`. A value that is a JSON object gets the row as the field
    `into`; any other value becomes {"value": …, into: …}. `fields` are the columns of the row that are taken,
    all by default. The table (Delta, Parquet, CSV, JSON) is read when a run begins, and its `column` must not
    hold a value twice. Keys, headers and timestamps stay.
    """
    origin, target = two_topics(store, source, sink)
    one_of("unmatched", unmatched, ("keep", "drop"))
    check_table("table", table)
    pace, called = StreamPace(once, trigger), name or f"enrich-{source}"
    columns = columns_for(("partition", "offset", "timestamp", "key", "value", "headers"), [on])
    running = started(spark, master, is_stream=True)
    check_expression(with_text(no_messages(running, columns)), "on", on)
    rows = _rows(read_table(running, "table", table), column, fields)
    identity = {**identity_of(origin, target), "on": on, "column": column, "into": into}
    with claim(
        store, called, kind="enrich", identity=identity, consumer=called,
        options={"table": table, "once": once},
    ) as run, watch(run):  # fmt: skip
        messages = topic_stream(running, store, source, columns, called)
        options = {"topic": sink}
        run_into(run, joined(messages, rows, on, into, unmatched), store.path, options, pace)
        return Enriched(source, sink, table, run.facts.rows)


def joined(messages: DataFrame, rows: DataFrame, on: str, into: str, unmatched: Unmatched) -> DataFrame:
    """Messages with their rows, as the sink takes them."""
    from pyspark.sql import functions as F

    known = with_text(messages).withColumn(_JOIN, F.expr(on).cast("string"))
    both = known.join(F.broadcast(rows), _JOIN, "left" if unmatched == "keep" else "inner")
    field = F.concat(_quoted(F.lit(into)), F.lit(":"), F.coalesce(F.to_json(_ROW), F.lit("null")), F.lit("}"))
    inner = F.expr(f"trim(substring(trim({TEXT}), 2, length(trim({TEXT})) - 2))")
    merged = F.concat(F.lit("{"), inner, F.when(inner == "", "").otherwise(","), field)
    wrapped = F.concat(F.lit('{"value":'), _quoted(F.col(TEXT)), F.lit(","), field)
    is_object = F.trim(TEXT).startswith("{") & F.trim(TEXT).endswith("}")
    value = F.when(F.col("value").isNotNull(), F.when(is_object, merged).otherwise(wrapped))
    return both.select("key", value.alias("value"), "headers", "timestamp")


def _quoted(text: Column) -> Column:
    """A text as JSON has it: as the only element of an array, without the brackets."""
    from pyspark.sql import functions as F

    array = F.to_json(F.array(text))
    return F.substring(array, F.lit(2), F.length(array) - 2)


def _rows(table: DataFrame, column: str, fields: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    missing = [each for each in (column, *fields) if each not in table.columns]
    if missing:
        raise InvalidOption(
            f"the table has no column {missing[0]!r}", hint=f"columns: {', '.join(table.columns)}"
        )
    chosen = F.struct(*(fields or table.columns)).alias(_ROW)
    rows = table.select(F.col(column).cast("string").alias(_JOIN), chosen)
    twice = rows.groupBy(_JOIN).count().where(f"count > 1 AND {_JOIN} IS NOT NULL").limit(1).collect()
    if twice:
        raise InvalidOption(
            f"{column}={twice[0][_JOIN]!r} is in the table more than once: its messages would be doubled",
            hint="join on a column that is unique, or make one row of them first",
        )
    return rows
