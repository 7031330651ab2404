"""The door to Spark's source: plans, slices, batches."""

from penstock.spark.source import batches as batches_module
from penstock.spark.source import bodies as bodies_module
from penstock.spark.source import plan as plan_module
from penstock.spark.source import query as query_module
from penstock.spark.source import schema as schema_module
from penstock.spark.source.admission import (
    Extent,
    Loss,
    Reading,
    available,
    between,
    capped,
    is_open,
    limited_bytes,
    limited_rows,
    losses,
    moved,
    shares,
)
from penstock.spark.source.batches import arrow_schema, floored
from penstock.spark.source.checkpoint import decode, encode
from penstock.spark.source.filter_parse import Comparison, understood
from penstock.spark.source.filters import FilterBounds, NumberSpan, bounds, from_text, to_text
from penstock.spark.source.options import parse, refuse_for_batch, refuse_for_stream
from penstock.spark.source.plan import (
    TASK_BYTES_LEAST,
    TASK_BYTES_MOST,
    SegmentRange,
    Slice,
    bundled,
    clipped,
    divided,
    instead,
    range_bytes,
    reach,
    task_bytes,
)
from penstock.spark.source.query import ConsumerProgress, StreamQuery
from penstock.spark.source.schema import ALL
from penstock.spark.source.source import DefaultSource
from penstock.spark.source.survey import survey
from penstock.spark.source.table_options import of_table
from penstock.spark.source.views import view_rows
