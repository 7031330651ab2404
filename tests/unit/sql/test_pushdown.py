"""What a filter leaves out cannot pass it: tried with many filters over many rows."""

from datetime import UTC, datetime, timedelta
from functools import reduce

import pyarrow as pa
import pyarrow.dataset as ds
from hypothesis import given
from hypothesis import strategies as st

from penstock.parse import datetime_ns
from penstock.sql.pushdown import narrowed
from penstock.sql.topic_table import table_schema

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
TIME = table_schema().field("written_at").type
ROWS = pa.table(
    {
        "partition": pa.array([row % 3 for row in range(60)], pa.int32()),
        "offset": pa.array([row // 3 for row in range(60)], pa.int64()),
        "key": pa.array([None if row % 7 == 0 else f"k{row % 5}" for row in range(60)], pa.string()),
        "written_at": pa.array([BEGIN + timedelta(hours=row // 3) for row in range(60)], TIME),
        "timestamp": pa.array([BEGIN + timedelta(hours=row * 7 % 20) for row in range(60)], TIME),
    }
)
SMALL = pa.schema(ROWS.schema)

numbers = st.integers(-2, 22)
moments = st.integers(-2, 22).map(lambda hours: pa.scalar(BEGIN + timedelta(hours=hours), TIME))
keys = st.sampled_from(["k0", "k1", "k4", "k9", "", 'quote"d', "back\\slash", "new\nline"])
compared = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])


def comparison(name, operator, value):
    column = ds.field(name)
    return {
        "==": column == value, "!=": column != value, "<": column < value,
        "<=": column <= value, ">": column > value, ">=": column >= value,
    }[operator]  # fmt: skip


simple = st.one_of(
    st.builds(comparison, st.just("partition"), compared, numbers.map(lambda n: pa.scalar(n, pa.int32()))),
    st.builds(comparison, st.just("offset"), compared, numbers),
    st.builds(comparison, st.just("written_at"), compared, moments),
    st.builds(comparison, st.just("timestamp"), compared, moments),
    st.builds(comparison, st.just("key"), compared, keys),
    st.lists(keys, min_size=1, max_size=3).map(lambda some: ds.field("key").isin(some)),
    st.just(ds.field("key").is_null()),
    st.just(ds.field("key").is_valid()),
)
filters = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        inner.map(lambda each: ~each),
    ),
    max_leaves=6,
)


@given(filters)
def test_what_passes_is_never_left_out(filter):
    parts = narrowed(filter, SMALL, [0, 1, 2])
    for row in ROWS.filter(filter).to_pylist():
        part = parts[row["partition"]]
        first, stop = part.offsets
        assert first is None or first <= row["offset"]
        assert stop is None or row["offset"] < stop
        for name, (since, until) in (("written_at", part.written), ("timestamp", part.stamped)):
            at = datetime_ns(row[name])
            assert since is None or since <= at
            assert until is None or at < until
        assert part.keys is None or row["key"] in part.keys


def test_much_is_left_out_where_it_can_be():
    """Or the test above would hold for a function that leaves out nothing."""
    both = [
        ds.field("partition") == pa.scalar(1, pa.int32()),
        ds.field("offset") >= 5,
        ds.field("offset") < 9,
        ds.field("written_at") >= pa.scalar(BEGIN + timedelta(hours=6), TIME),
        ds.field("key").isin(["k1", "k2"]) | (ds.field("key") == 'quote"d'),
    ]
    ((number, part),) = narrowed(reduce(lambda a, b: a & b, both), SMALL, [0, 1, 2]).items()
    assert (number, part.offsets) == (1, (5, 9))
    assert sorted(part.keys) == ["k1", "k2", 'quote"d']
    assert part.written == (datetime_ns(BEGIN + timedelta(hours=6)), None)


def test_no_filter_leaves_out_nothing():
    assert {number: part.keys for number, part in narrowed(None, SMALL, [0, 4]).items()} == {0: None, 4: None}
