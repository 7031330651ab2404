"""Arrow in, straight: whatever kind of column holds the strings, the messages are those of lists."""

import random

import pytest

import penstock
from tests.require import module

pa = module("pyarrow")

VALUES = [b"", b"one", b"two" * 40, None, b"\xff\x00", b"last", b"x" * 500] * 40
KEYS = [None, "k1", "", "ключ", "k1", "k2", "k" * 300] * 40
TIMES = [1_700_000_000_000_000_000 + 7 * n for n in range(len(VALUES))]


def sliced(column):
    """The column as a slice out of the middle of a larger one: its offsets do not begin at 0."""
    return pa.concat_arrays([column[5:9], column, column[:3]])[4 : 4 + len(column)]


def chunked(column):
    return pa.chunked_array([column[:100], column[100:100], column[100:]])


SHAPES = {"whole": lambda column: column, "sliced": sliced, "chunked": chunked}
KINDS = {
    "binary": pa.binary(), "large_binary": pa.large_binary(),
    **({"binary_view": pa.binary_view()} if hasattr(pa, "binary_view") else {}),
}  # fmt: skip
TEXTS = {
    "string": pa.string(), "large_string": pa.large_string(),
    **({"string_view": pa.string_view()} if hasattr(pa, "string_view") else {}),
}  # fmt: skip


@pytest.fixture(params=[1, 4], ids=["one partition", "four partitions"])
def topics(tmp_path, request):
    """Two topics alike: one is written from Arrow, one from lists."""
    with penstock.open(tmp_path / "store") as store:
        yield [store.create_topic(name, partitions=request.param, sync="os") for name in ("arrow", "lists")]


def contents(topic):
    return [
        (m.partition, m.offset, m.key, m.value, m.timestamp)
        for partition in range(topic.options.partitions)
        for m in topic.read(partition=partition, limit=10_000)
    ]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("kind", "text"), [*zip(KINDS, TEXTS, strict=False)])
def test_columns_of_every_kind(topics, shape, kind, text):
    arrow, lists = topics
    values = SHAPES[shape](pa.array(VALUES, pa.binary()).cast(KINDS[kind]))
    keys = SHAPES[shape](pa.array(KEYS, pa.string()).cast(TEXTS[text]))
    receipts = arrow.write_many(values, keys=keys, timestamps=TIMES)
    expected = lists.write_many(VALUES, keys=KEYS, timestamps=TIMES)
    assert list(receipts) == list(expected)
    found = contents(arrow)
    assert [row for row in found if row[2] is not None] == [r for r in contents(lists) if r[2] is not None]
    assert len(found) == len(VALUES)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_with_times_and_headers(topics, shape):
    arrow, lists = topics
    headers = [{"a": b"1"} if n % 3 else None for n in range(len(VALUES))]
    kind = pa.map_(pa.string(), pa.binary())
    table = pa.table(
        {
            "value": SHAPES[shape](pa.array(VALUES, pa.binary())),
            "key": SHAPES[shape](pa.array([key or "none" for key in KEYS])),
            "timestamp": SHAPES[shape](pa.array(TIMES, pa.timestamp("ns", tz="UTC"))),
            "headers": SHAPES[shape](pa.array([list(h.items()) if h else None for h in headers], kind)),
        }
    )
    arrow.write_many(table)
    lists.write_many(VALUES, keys=[key or "none" for key in KEYS], headers=headers, timestamps=TIMES)
    assert contents(arrow) == contents(lists)
    assert [dict(m.headers) for m in arrow.read(limit=10_000)] == [
        dict(m.headers) for m in lists.read(limit=10_000)
    ]


def test_no_value_becomes_an_object(topics, monkeypatch):
    """The values of a table go from buffer to buffer: nobody asks for a list of them."""
    from penstock.log import arrow_input

    arrow, _ = topics
    table = pa.table({"value": pa.array([b"v%d" % n for n in range(1000)], pa.binary())})
    monkeypatch.setattr(arrow_input.ArrowStrings, "__iter__", None)
    arrow.write_many(table)
    assert sorted(row[3] for row in contents(arrow)) == sorted(b"v%d" % n for n in range(1000))


def test_what_is_wrong_in_a_column_is_said_and_nothing_is_stored(topics):
    arrow, _ = topics
    with pytest.raises(penstock.MessageTooLarge):
        arrow.write_many(pa.array([b"a", b"x" * 3_000_000]))
    with pytest.raises(penstock.MessageTooLarge):
        arrow.write_many(pa.array([b"a"]), keys=pa.array([b"k" * 100_000]))
    with pytest.raises(penstock.WrongType):
        arrow.write_many(pa.array([1, 2]))
    with pytest.raises(penstock.InvalidOption, match="2 keys for 1"):
        arrow.write_many(pa.array([b"a"]), keys=pa.array(["k", "l"]))
    assert contents(arrow) == []
    arrow.write_many(pa.array([], pa.binary()))
    assert contents(arrow) == []


def test_large_columns_are_cut_into_frames(topics):
    arrow, lists = topics
    source = random.Random(3)
    values = [source.randbytes(source.randrange(3000)) for _ in range(3000)]
    keys = [f"k{n % 50}" for n in range(3000)]
    arrow.write_many(pa.table({"value": pa.array(values, pa.large_binary()), "key": keys}))
    lists.write_many(values, keys=keys)
    assert [row[:4] for row in contents(arrow)] == [row[:4] for row in contents(lists)]


# What cannot be taken is refused in our words; what other libraries call a table or a column is one.


@pytest.mark.parametrize(
    ("column", "error"),
    [
        (pa.array([1.5]), "not of double"),
        (pa.array([True]), "not of bool"),
        (pa.array(["soon"]), "column of string cannot be stored"),
        (pa.array([2**40], pa.timestamp("s")), "out of bounds"),
    ],
    ids=["float", "bool", "text", "too far"],
)
def test_timestamps_that_are_none_are_refused(topics, column, error):
    topic, _ = topics
    for write in (
        lambda: topic.write_many(pa.table({"value": ["a"], "timestamp": column})),
        lambda: topic.write_many(["a"], timestamps=column),
    ):
        with pytest.raises(penstock.UsageError, match=error):
            write()
    assert topic.stats().messages == 0


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_timestamps_keep_their_nanoseconds(topics, zone):
    topic, _ = topics
    moment = 1_600_000_000_000_000_123
    topic.write_many(["a"], timestamps=pa.array([moment], pa.timestamp("ns", tz=zone)))
    assert topic.read()[0].timestamp == moment


def test_a_timestamp_of_pandas_keeps_its_nanoseconds(topics):
    topic, _ = topics
    pd = module("pandas")
    moment = pd.Timestamp(1_600_000_000_000_000_123, tz="UTC")
    topic.write("a", timestamp=moment)
    topic.write_many(["b"], timestamps=pd.Series([moment]))
    assert {message.timestamp for message in topic.read()} == {1_600_000_000_000_000_123}
    local = pd.Timestamp("2020-01-01 12:00")
    topic.write("c", timestamp=local, key="k")
    assert local.to_pydatetime().astimezone() in [message.time for message in topic.read()]
    with pytest.raises(penstock.InvalidOption, match="NaT"):
        topic.write("d", timestamp=pd.NaT)


def test_a_frame_of_pandas_leaves_the_labels_of_its_rows_behind(topics):
    topic, _ = topics
    pd = module("pandas")
    frame = pd.DataFrame({"value": ["a", "b", "c"], "key": ["k", "l", "m"]})
    topic.write_many(frame[frame["value"] != "b"])
    assert sorted(message.text for message in topic.read()) == ["a", "c"]
    with pytest.raises(penstock.InvalidOption, match="id"):
        topic.write_many(frame.assign(id=["x", "y", "z"]).set_index("id"))


def test_a_series_of_polars_is_a_column(topics):
    topic, _ = topics
    pl = module("polars")
    topic.write_many(pl.Series(["a", None]), keys=pl.Series(["k", "k"]))
    assert [message.value for message in topic.read()] == [b"a", None]


def test_two_columns_of_one_name_are_refused(topics):
    topic, _ = topics
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["value", "value"])
    with pytest.raises(penstock.InvalidOption, match="two columns"):
        topic.write_many(table)
