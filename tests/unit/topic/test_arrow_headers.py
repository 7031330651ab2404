"""Headers of an Arrow table go in as they lie there; what cannot is looked at row by row, to the same end."""

import pytest

import penstock
from penstock.log import arrow_input
from tests.require import module

pa = module("pyarrow")

BYTES, TEXT = pa.map_(pa.string(), pa.binary()), pa.map_(pa.string(), pa.string())
COUNT = 60


@pytest.fixture(params=[1, 3], ids=["one partition", "three partitions"])
def topic(tmp_path, request):
    with penstock.open(tmp_path / "store") as store:
        yield store.create_topic("orders", partitions=request.param, sync="os")


def table(headers, kind, begin=0):
    """A message for each of the headers, with the number of its row as its value."""
    count = len(headers)
    columns = {
        "value": pa.array([b"%d" % n for n in range(begin, begin + count)], pa.binary()),
        "key": pa.array([f"k{n % 7}" for n in range(count)]),
        "headers": headers if isinstance(headers, pa.Array) else pa.array(headers, kind),
    }
    return pa.table(columns)


def stored(topic):
    """The headers of all messages in the order of their rows."""
    found = {int(message.value): dict(message.headers) for message in topic.read(limit=10_000)}
    return [found[number] for number in sorted(found)]


ROWS = {
    "one each": [[("id", f"{n}")] for n in range(COUNT)],
    "some": [[("id", f"{n}"), ("source", "shop")] if n % 3 else None for n in range(COUNT)],
    "empty": [[] for _ in range(COUNT)],
    "none": [None] * COUNT,
    "other names": [[(f"n{k}", "ключ") for k in range(n % 5)] for n in range(COUNT)],
}


@pytest.mark.parametrize("kind", [BYTES, TEXT], ids=["bytes", "text"])
@pytest.mark.parametrize("name", ROWS)
def test_headers_of_a_table_are_those_of_its_rows(topic, monkeypatch, name, kind):
    monkeypatch.setattr(arrow_input.ArrowHeaders, "__iter__", None)  # nobody asks for a list of them
    given = table(ROWS[name], kind)
    topic.write_many(given.slice(0, 25))
    topic.write_many(given.slice(25))
    encoded = (lambda text: text) if kind == TEXT else str.encode
    assert stored(topic) == [{name: encoded(value) for name, value in row or ()} for row in ROWS[name]]


def test_headers_of_a_scan_go_back_in(topic):
    topic.write_many(table(ROWS["some"], BYTES))
    before = stored(topic)
    for batch in list(topic.scan().record_batches()):
        topic.write_many(
            batch.set_column(4, "value", pa.array([b"1000" + v.as_py() for v in batch["value"]]))
        )
    assert len(stored(topic)) == 2 * len(before)
    assert sorted(map(str, stored(topic))) == sorted(map(str, before * 2))


def test_a_name_that_comes_twice_counts_as_the_last(topic):
    entries = pa.array(
        [("a", b"1"), ("b", b"2"), ("a", b"3")], pa.struct([("key", pa.string()), ("value", pa.binary())])
    )
    headers = pa.MapArray.from_arrays(pa.array([0, 1, 3, 3], pa.int32()), entries.field(0), entries.field(1))
    twice = pa.MapArray.from_arrays(pa.array([0, 3, 3, 3], pa.int32()), entries.field(0), entries.field(1))
    assert arrow_input.headers(headers) is not None
    assert arrow_input.headers(twice) is None
    topic.write_many(table(twice, BYTES))
    assert stored(topic) == [{"a": b"3", "b": b"2"}, {}, {}]


def test_a_null_that_holds_something_holds_nothing(topic):
    names, values = pa.array(["a", "b", "c"]), pa.array([b"1", b"2", b"3"], pa.binary())
    whole = pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), names, values)
    holed = pa.Array.from_buffers(
        whole.type, 3, [pa.py_buffer(b"\x05"), whole.buffers()[1]], children=[whole.values]
    )
    assert holed.null_count == 1
    topic.write_many(table(holed, BYTES))
    assert stored(topic) == [{"a": b"1"}, {}, {"c": b"3"}]


def test_headers_that_may_not_be_are_named_and_nothing_is_stored(topic):
    with pytest.raises(penstock.MessageTooLarge, match="over the limit"):
        topic.write_many(table([[("a", b"x" * 40_000)], []], BYTES))
    with pytest.raises(penstock.WrongType):
        topic.write_many(table([[("a", None)], []], BYTES))
    with pytest.raises(penstock.WrongType):
        topic.write_many(table([[("a", 1)]], pa.map_(pa.string(), pa.int64())))
    assert list(topic.read()) == []


def test_large_headers_beside_small_ones_are_not_too_large_together(topic):
    rows = [[("a", b"x" * 30_000)], [(f"n{n}", b"") for n in range(100)]]
    topic.write_many(table(rows, BYTES))
    assert stored(topic) == [dict(row) for row in rows]


def test_a_writers_own_headers_are_added(topic):
    with topic.writer(headers={"host": "a"}) as writer:
        writer.write_many(table([[("id", b"1")], None], BYTES))
    assert stored(topic) == [{"host": "a", "id": b"1"}, {"host": "a"}]


def test_a_map_that_comes_as_a_list_of_pairs_is_a_map(topic):
    pairs = pa.struct([("key", pa.string()), ("value", pa.binary())])
    given = [[{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}], None, []]
    topic.write_many(table(given, pa.list_(pairs)))
    found = {message.value: dict(message.headers) for message in topic.read()}
    assert found == {b"0": {"a": b"1", "b": b"2"}, b"1": {}, b"2": {}}


@pytest.mark.parametrize("column", [["abc"], [5], [["a", "b"]]], ids=["text", "number", "list"])
def test_what_is_no_column_of_maps_is_refused(topic, column):
    with pytest.raises(penstock.WrongType, match="headers are a column of maps"):
        topic.write_many(pa.table({"value": ["a"], "headers": column}))
    assert topic.stats().messages == 0
