"""SQL over topics: the rows are those that Python computes, and only what is asked for is read."""

import json
import sys
from collections import Counter
from datetime import UTC, datetime

import pytest

import penstock
from tests.require import require

require("duckdb")

COUNT = 600


def order(number):
    return {"id": number, "amount": number * 0.5, "who": f"c{number % 7}", "paid": number % 2 == 0}


@pytest.fixture
def orders(store):
    """Orders 0 to 599 under ten keys in three partitions."""
    topic = store.create_topic("orders", partitions=3, index="key")
    topic.write_many(
        [json.dumps(order(number)) for number in range(COUNT)],
        keys=[f"k{number % 10}" for number in range(COUNT)],
    )
    return topic


def rows(store, text):
    return store.sql(text).to_arrow().to_pylist()


def test_groups_and_sums_are_those_that_python_computes(store, orders):
    counted = Counter(f"c{number % 7}" for number in range(COUNT))
    found = rows(store, "select who, count(*) n, sum(amount) total from orders group by who")
    assert {row["who"]: row["n"] for row in found} == counted
    assert {row["who"]: row["total"] for row in found} == {
        who: sum(number * 0.5 for number in range(COUNT) if f"c{number % 7}" == who) for who in counted
    }


def test_the_messages_own_columns_are_there(store, clock):
    topic = store.create_topic("t")
    topic.write(b"\xff\x00", key=b"\xfe", headers={"trace": "x"}, timestamp=1_700_000_000_123_456_789)
    topic.write(None, key="gone")
    first, second = rows(store, 'select * from t order by "offset"')
    assert (first["key"], first["key_bytes"]) == ("\\xfe", b"\xfe")
    assert (first["value"], first["value_bytes"]) == ("\\xff\x00", b"\xff\x00")
    assert first["headers"] == [("trace", b"x")]
    assert first["timestamp"] == datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=123456)
    assert (second["value"], second["value_bytes"], second["key"]) == (None, None, "gone")


def test_only_the_columns_that_are_asked_for_are_read(store, orders):
    counting = store.sql("select count(*) n from orders")
    assert counting.to_arrow().to_pylist() == [{"n": COUNT}]
    assert [scan.columns for scan in counting.scans] == [("partition",)]
    keyed = store.sql("select key, max(written_at) from orders group by 1")
    keyed.to_arrow()
    assert [scan.columns for scan in keyed.scans] == [("key", "written_at")]


def test_only_the_partitions_and_offsets_that_are_asked_for_are_read(store, orders):
    ends = {part.partition: part.end for part in orders.stats().partitions}
    found = store.sql('select "offset" from orders where partition = 1 and "offset" between 10 and 19')
    assert sorted(row["offset"] for row in found.to_arrow().to_pylist()) == list(range(10, 20))
    assert [scan.ranges for scan in found.scans] == [{1: (10, 20)}]
    either = store.sql(
        'select count(*) n from orders where partition = 2 or (partition = 0 and "offset" < 5)'
    )
    assert either.to_arrow().to_pylist() == [{"n": ends[2] + 5}]
    assert either.scans[0].ranges == {0: (0, 5), 2: (0, ends[2])}


def test_only_the_times_that_are_asked_for_are_read(store, clock):
    topic = store.create_topic("t", segment_bytes=4096)
    moments = []
    for number in range(20):
        moments.append(clock.now_ns())
        topic.write_many([b"%d" % number * 500] * 4)
        clock.advance(3600)
    since, until = (datetime.fromtimestamp(moments[at] / 1e9, UTC).isoformat() for at in (12, 15))
    found = store.sql(f"select \"offset\" from t where written_at >= '{since}' and written_at < '{until}'")
    assert sorted(row["offset"] for row in found.to_arrow().to_pylist()) == list(range(48, 60))
    ((first, stop),) = found.scans[0].ranges.values()
    assert (first, stop) == (48, 60)


@pytest.mark.parametrize(
    ("size", "own"), [(3000, False), (3000, True), (300, False)],
    ids=["the batch's time", "a time for each", "repacked"],
)  # fmt: skip
def test_frames_of_other_timestamps_are_not_read(store, clock, size, own):
    """By their headers, where these say it; nothing is left out where they do not."""
    topic = store.create_topic("t", segment_bytes=size * 80)
    begin = clock.now_ns()
    for _ in range(40):
        now = clock.now_ns()
        times = [now + place for place in range(10)] if own else None
        topic.write_many([b"x" * size] * 10, timestamps=times)
        clock.advance(3600)
    store.flush_housekeeping()
    since, until = (datetime.fromtimestamp(begin / 1e9 + hours * 3600, UTC).isoformat() for hours in (5, 8))
    found = store.sql(
        f"select \"offset\" from t where (timestamp >= '{since}' and timestamp < '{until}') "
        f"or (timestamp = '{since}' and key = 'none')"
    )
    assert sorted(row["offset"] for row in found.to_arrow().to_pylist()) == list(range(50, 80))
    (scan,) = found.scans
    if own or size < 1000:
        assert scan.messages == 400
    else:
        assert 30 <= scan.messages < 120, "those hours, and the active segment"


def test_a_clock_that_was_set_back_hides_nothing(store, clock):
    topic = store.create_topic("t")
    topic.write("a")
    later = clock.now_ns()
    clock.set(later + 10 * 3600 * 10**9)
    topic.write("b")
    clock.set(later + 3600 * 10**9)
    topic.write("c")
    until = datetime.fromtimestamp(later / 1e9 + 5 * 3600, UTC).isoformat()
    found = rows(store, f"select value from t where written_at < '{until}'")
    assert sorted(row["value"] for row in found) == ["a", "c"]


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("key = 'k3'", ("k3",)),
        ("key in ('k3', 'k5', 'none')", ("k3", "k5", "none")),
        ("key = 'k3' and partition >= 0", ("k3",)),
        ("key = 'k3' or key = 'k4'", ("k3", "k4")),
        ("key = 'k3' or key is null", None),
        ("key <> 'k3'", None),
        ("key >= 'k3'", None),
        ("key = 'k3' or id = 7", None),
    ],
)
def test_only_the_keys_that_are_asked_for_are_read(store, orders, condition, keys):
    found = store.sql(f"select id, key from orders where {condition}")
    wanted = {
        number
        for number in range(COUNT)
        for key in [f"k{number % 10}"]
        if {
            "key = 'k3'": key == "k3",
            "key in ('k3', 'k5', 'none')": key in ("k3", "k5"),
            "key = 'k3' and partition >= 0": key == "k3",
            "key = 'k3' or key = 'k4'": key in ("k3", "k4"),
            "key = 'k3' or key is null": key == "k3",
            "key <> 'k3'": key != "k3",
            "key >= 'k3'": key >= "k3",
            "key = 'k3' or id = 7": key == "k3" or number == 7,
        }[condition]
    }
    assert {row["id"] for row in found.to_arrow().to_pylist()} == wanted
    assert {scan.keys for scan in found.scans} == {keys}


def test_a_topic_without_an_index_is_read_whole_for_a_key(store):
    topic = store.create_topic("t")
    topic.write_many(["a", "b", "c"], keys=["x", "y", "x"])
    found = store.sql("select value from t where key = 'x'")
    assert sorted(row["value"] for row in found.to_arrow().to_pylist()) == ["a", "c"]
    assert found.scans[0].keys is None


def test_fields_of_json_are_columns_of_the_type_that_they_have(store):
    topic = store.create_topic("t")
    topic.write_many(
        [
            json.dumps({"id": 1, "price": 1, "ok": True, "name": "a", "tags": [1], "mixed": 1, "key": "own"}),
            json.dumps({"id": 2, "price": 2.5, "ok": False, "name": None, "tags": {"x": 1}, "mixed": "z"}),
            "no json",
            json.dumps([1, 2]),
        ]
    )
    types = {row["column_name"]: row["column_type"] for row in rows(store, "describe t")}
    assert {name: types[name] for name in ("id", "price", "ok", "name", "tags", "mixed", "value_key")} == {
        "id": "BIGINT", "price": "DOUBLE", "ok": "BOOLEAN", "name": "VARCHAR", "tags": "JSON",
        "mixed": "VARCHAR", "value_key": "VARCHAR",
    }  # fmt: skip
    found = rows(store, 'select id, price, ok, name, mixed, value_key from t order by "offset"')
    assert [tuple(row.values()) for row in found] == [
        (1, 1.0, True, "a", "1", "own"), (2, 2.5, False, None, "z", None),
        (None,) * 6, (None,) * 6,
    ]  # fmt: skip


def test_what_the_sample_did_not_show_is_null_in_its_column_and_whole_in_value(store):
    """5.7 would be 6 as a whole number, and that would be wrong in silence."""
    topic = store.create_topic("t")
    topic.write_many([json.dumps({"n": number}) for number in range(700)])
    topic.write_many([json.dumps({"n": 5.7}), json.dumps({"n": "text"})])
    topic.write_many([json.dumps({"n": number}) for number in range(700)])
    found = rows(store, 'select n, value from t where "offset" in (700, 701) order by "offset"')
    assert found == [{"n": None, "value": '{"n": 5.7}'}, {"n": None, "value": '{"n": "text"}'}]


def test_topics_are_joined_and_names_are_quoted(store, orders):
    people = store.create_topic("people.all")
    people.write_many([json.dumps({"who": f"c{number}", "city": f"city {number}"}) for number in range(7)])
    found = rows(
        store,
        'select p.city, count(*) n from orders o join "people.all" p using (who) '
        "where p.who = 'c3' group by 1",
    )
    assert found == [{"city": "city 3", "n": sum(number % 7 == 3 for number in range(COUNT))}]


def test_where_a_topic_ended_is_fixed_by_the_call(store, orders):
    result = store.sql("select count(*) n from orders")
    orders.write("later", key="k1")
    assert result.to_arrow().to_pylist() == [{"n": COUNT}]
    assert rows(store, "select count(*) n from orders") == [{"n": COUNT + 1}]


def test_values_come_unpacked_and_from_outside_the_log(store):
    topic = store.create_topic("t", payloads="files", codecs=["raw", "gzip"])
    large = json.dumps({"id": 1, "text": "x" * 100_000})
    topic.write(large)
    with topic.writer(codec="gzip") as writer:
        writer.write(json.dumps({"id": 2, "text": "y"}))
    found = rows(store, "select id, length(text) n from t order by id")
    assert found == [{"id": 1, "n": 100_000}, {"id": 2, "n": 1}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("selec 1", "syntax error"),
        ("select nothing from orders", "nothing"),
        ("select * from missing", "missing"),
        ("insert into orders values (1)", ""),
        ("select 1 +", "syntax error"),
        ("", "no statement"),
        (";;", "no statement"),
        ("select cast(value as integer) from orders", "Conversion"),
        ("create topic a b", "line 1, column 16"),
        ("create topic", "a topic's name"),
        ("create topic a with (min_active_partitions = )", "is expected here"),
        ("create topic a with (min_active_partitions = 'two')", "min_active_partitions"),
        ("create topic a with (min_active_partitions = 0)", "partitions"),
        ("create topic a with (nonsense = 1)", "unknown topic option 'nonsense'"),
        ("create topic a with (retention_period = 12)", "Interval('PT12H')"),
        ("create topic a with (retention_period = Interval('12 hours'))", "not an interval"),
        ("create topic a (consumer c, consumer c)", "there already"),
        ("create topic a (consumer c with (important = 1))", "TRUE or FALSE"),
        ("create topic a (consumer c with (read_from = Timestamp('yesterday')))", "not a moment"),
        ("create topic a with (index = 'key', index = 'key')", "twice"),
        ("create topic a with (supported_codecs = 'nope')", "nope"),
        ("alter topic orders", "SET, RESET, ADD CONSUMER"),
        ("alter topic orders drop consumer nobody", "no consumer 'nobody'"),
        ("alter topic orders set (retention_period = ?)", "not understood"),
        ("drop topic orders now", "the end of the statement"),
    ],
)
def test_sql_that_is_none_is_refused_and_changes_nothing(store, orders, text, said):
    with pytest.raises(penstock.InvalidSql) as refused:
        store.sql(text).to_arrow()
    assert said.lower() in str(refused.value).lower()
    assert [topic.name for topic in store.topics()] == ["orders"]


def test_an_error_points_at_its_place(store):
    with pytest.raises(penstock.InvalidSql) as refused:
        store.sql("select 1;\ncreate topic a with (\n  min_active_partitions = 2,\n  metering_mode = 'x')")
    assert (refused.value.line, refused.value.column) == (4, 3)
    assert "  metering_mode = 'x')\n    ^" in str(refused.value)
    with pytest.raises(penstock.InvalidSql) as refused:
        store.sql("select 1;\n\nselec 2")
    assert refused.value.line == 3


def test_damage_is_said_as_by_any_other_read(open_store, tmp_path):
    with open_store() as store:
        topic = store.create_topic("t")
        topic.write_many(["x" * 1000] * 100)
    (data,) = (tmp_path / "store" / "topics").rglob("*.data")
    bytes_ = bytearray(data.read_bytes())
    bytes_[50_000] ^= 1
    data.write_bytes(bytes_)
    store = open_store(read_only=True)
    with pytest.raises(penstock.Corrupt):
        store.sql("select max(value) from t").to_arrow()


def test_a_query_says_what_to_install(store, orders, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(penstock.MissingExtra) as missing:
        store.sql("select 1")
    assert 'pip install "penstock[sql]"' in str(missing.value)
    store.sql("create topic without_duckdb")
    assert "without_duckdb" in [topic.name for topic in store.topics()]


def test_rows_come_as_pandas_polars_and_an_arrow_stream(store, orders):
    require("pandas", "polars")
    result = store.sql("select id from orders where id < 3 order by 1")
    assert list(result.to_pandas()["id"]) == [0, 1, 2]
    assert result.to_polars()["id"].to_list() == [0, 1, 2]
    assert result.columns == ["id"]
    assert [batch.num_rows for batch in result.batches()] == [3]


def test_what_is_older_than_the_retention_is_not_there(open_store, clock):
    """Also where nobody may remove it."""
    topic = open_store(clock=clock).create_topic("t", retention="1h", index="key")
    topic.write("old", key="k")
    clock.advance("2h")
    topic.write("new", key="k")
    reading = open_store(read_only=True, clock=clock)
    assert rows(reading, "select value from t") == [{"value": "new"}]
    assert rows(reading, "select value from t where key = 'k'") == [{"value": "new"}]


def test_a_topic_that_was_split_is_read_whole(store):
    topic = store.create_topic("t", autopartitioning="up", index="key")
    topic.write_many([json.dumps({"n": number}) for number in range(50)], keys=[f"k{n}" for n in range(50)])
    low, high = topic.split(0)
    topic.write_many([json.dumps({"n": number}) for number in range(50)], keys=[f"k{n}" for n in range(50)])
    assert rows(store, "select count(*) c, count(distinct key) k, sum(n)::bigint s from t") == [
        {"c": 100, "k": 50, "s": 2 * sum(range(50))}
    ]
    assert rows(store, "select count(*) c from t where partition = 0") == [{"c": 50}]
    children = rows(store, f"select count(*) c from t where partition in ({low}, {high})")
    assert children == [{"c": 50}]
    assert rows(store, "select count(*) c from t where key = 'k7'") == [{"c": 2}]
