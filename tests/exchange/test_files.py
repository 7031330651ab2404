"""Files in and out: lines of JSON, CSV, Parquet and Arrow."""

import json

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

import penstock
from penstock.errors import AlreadyExists, InvalidOption
from tests.kit.values import (
    CsvRows,
    ExportRange,
    FieldChoice,
    JsonLines,
    export_file,
    import_lines,
    import_table,
)

WHOLE = FieldChoice(messages=True)
EVERYTHING = FieldChoice()


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path / "store") as opened:
        yield opened


def rows(topic):
    return [(m.key, m.value) for m in topic.read(limit=10**6)]


def everything(topic):
    return [(m.partition, m.key, m.value, m.timestamp, dict(m.headers)) for m in topic.read(limit=10**6)]


def lines(topic, path, choice=EVERYTHING, **options):
    return import_lines(topic, str(path), JsonLines(str(path), choice), **options)


def csv(topic, path, choice=EVERYTHING, delimiter=","):
    return import_lines(topic, str(path), CsvRows(str(path), choice, delimiter))


def awkward(topic):
    """Messages that a text format might not give back."""
    topic.write(b"plain", key="k", timestamp=5, headers={"a": "text", "b": b"\xff"})
    topic.write(b"\xff\x00", key=b"\xfe", timestamp=-7)
    topic.write(b"", key=b"", timestamp=2**62)
    topic.write(None, key="gone", timestamp=1)
    topic.write('two\nlines, "quoted"\r\n\0 ü'.encode(), timestamp=2)
    with topic.writer(codec="gzip") as writer:
        writer.write(b"packed" * 100, key='say "k",', timestamp=3)


# JSON lines.


def test_a_line_is_a_value_and_a_field_its_key_and_its_time(store, tmp_path):
    path = tmp_path / "orders.jsonl"
    path.write_bytes(
        b'{"id": 7, "who": "anna", "at": "2026-01-31T12:00:00Z", "n": {"x": [1]}}\n\n'
        b'{"id":8,"who":null,"at":5}'
    )
    topic = store.create_topic("t")
    done = lines(topic, path, FieldChoice(key="who", time="at"))
    assert (done.messages, done.skipped) == (2, 0)
    first, second = topic.read()
    assert first.value == b'{"id": 7, "who": "anna", "at": "2026-01-31T12:00:00Z", "n": {"x": [1]}}'
    assert (first.key, first.timestamp) == (b"anna", 1769860800 * 10**9)
    assert (second.key, second.timestamp) == (None, 5)
    fields = store.create_topic("fields")
    lines(fields, path, FieldChoice(key="id", value="who", time="at", time_unit="ms"))
    assert rows(fields) == [(b"7", b"anna"), (b"8", None)]
    assert fields.read()[1].timestamp == 5_000_000


def test_s001_47_a_file_sent_again_is_skipped_and_a_changed_one_is_another(store, tmp_path):
    path = tmp_path / "f.jsonl"
    path.write_text("".join(f'{{"n":{n}}}\n' for n in range(100)))
    for partitions in (1, 3):
        topic = store.create_topic(f"t{partitions}", partitions=partitions)
        choice = FieldChoice(key="n")
        assert lines(topic, path, choice).messages == 100
        assert lines(topic, path, choice).messages == 0
        assert len(rows(topic)) == 100
    path.write_text('{"n":1}\n')
    assert lines(store.topic("t1"), path, FieldChoice(key="n")).messages == 1


@pytest.mark.parametrize(
    ("content", "choice", "says"),
    [
        (b'{"a":1}\n{"a":\n', FieldChoice(), "line 2 is not JSON"),
        (b'{"a":1}\n\n\xff\n', FieldChoice(), "line 3 is not JSON"),
        (b'{"a":1}\n{"b":1}\n', FieldChoice(key="a"), "line 2 has no field 'a'.*it has 'b'"),
        (b'{"a":1}\n[1]\n', FieldChoice(key="a"), "line 2 is no object"),
        (b'{"a":1}\n{"a":"soon"}\n', FieldChoice(time="a"), "line 2: 'soon' is not a time"),
        (b'{"value":"x"}\n{"a":"x"}\n', WHOLE, "line 2 is no message"),
        (b'{"value":"x"}\n{"value":{}}\n', WHOLE, "line 2: value is text or null"),
        (b'{"value":"x"}\n{"value":"%","value_encoding":"base64"}\n', WHOLE, "line 2: not base64"),
    ],
)
def test_a_bad_line_is_named_and_those_before_it_are_stored(store, tmp_path, content, choice, says):
    path = tmp_path / "f.jsonl"
    path.write_bytes(content)
    topic = store.create_topic("t")
    with pytest.raises(InvalidOption, match=f"f.jsonl {says}") as caught:
        lines(topic, path, choice)
    assert len(rows(topic)) == 1
    assert caught.value.__notes__ == ["1 messages were stored before that"]


def test_a_line_that_was_mended_is_taken_and_those_before_it_are_not_taken_twice(store, tmp_path):
    path = tmp_path / "f.jsonl"
    topic = store.create_topic("t")
    path.write_text('{"n":1}\nno\n{"n":3}\n')
    with pytest.raises(InvalidOption):
        lines(topic, path, producer="mine")
    path.write_text('{"n":1}\n22\n{"n":3}\n')
    lines(topic, path, producer="mine")
    assert [value for _, value in rows(topic)] == [b'{"n":1}', b"22", b'{"n":3}']


# CSV.


def test_csv_rows_become_json_or_a_column_of_them(store, tmp_path):
    path = tmp_path / "f.csv"
    path.write_bytes(b'\xef\xbb\xbfid,name,note\r\n1,anna,"two\nlines, and ""quotes"""\r\n2,,x\r\n')
    topic = store.create_topic("t")
    csv(topic, path, FieldChoice(key="id"))
    assert [(key, json.loads(value)) for key, value in rows(topic)] == [
        (b"1", {"id": "1", "name": "anna", "note": 'two\nlines, and "quotes"'}),
        (b"2", {"id": "2", "name": "", "note": "x"}),
    ]
    other = store.create_topic("other")
    csv(other, path, FieldChoice(value="note", key="name"))
    assert rows(other) == [(b"anna", b'two\nlines, and "quotes"'), (b"", b"x")]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"id,note\n1,x\n", "has no column 'name'.*it has 'id', 'note'"),
        (b"", "is empty"),
        (b"name,name\na,b\n", "names a column twice"),
        (b"name,note\na\n", "line 2 has 1 fields, and there are 2 columns"),
        (b"name,note\na,\xff\n", "line 2 is not UTF-8"),
        (b'name,note\na,"x\n', "is not CSV"),
    ],
)
def test_csv_that_is_none_or_lacks_the_column(store, tmp_path, content, says):
    path = tmp_path / "f.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidOption, match=says):
        csv(store.create_topic("t"), path, FieldChoice(key="name"))


def test_a_csv_file_sent_again_is_skipped(store, tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("a;b\n" + "".join(f'{n};"x\ny"\n' for n in range(50)))
    topic = store.create_topic("t")
    choice = FieldChoice(key="a", value="b")
    assert csv(topic, path, choice, ";").messages == 50
    assert csv(topic, path, choice, ";").messages == 0
    with pytest.raises(InvalidOption, match="not one character"):
        csv(topic, path, choice, ";;")


# Round trips.


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "arrow"])
def test_an_export_comes_back_as_it_was(store, tmp_path, kind):
    topic = store.create_topic("t", partitions=3)
    awkward(topic)
    path = str(tmp_path / f"t.{kind}")
    assert export_file(topic, path, kind) == 6
    again = store.create_topic("again")
    if kind in ("jsonl", "csv"):
        reader = JsonLines(path, WHOLE) if kind == "jsonl" else CsvRows(path, WHOLE)
        done = import_lines(again, path, reader)
    else:
        done = import_table(again, path, kind, WHOLE)
    assert done.messages == 6
    headers = {"a": "text", "b": b"\xff"} if kind in ("jsonl", "csv") else {"a": b"text", "b": b"\xff"}
    expected = [(0, *row[1:4], headers if row[4] else {}) for row in everything(topic)]
    assert sorted(everything(again), key=repr) == sorted(expected, key=repr)


def test_partitions_are_kept_if_asked(store, tmp_path):
    topic = store.create_topic("t", partitions=3)
    for n in range(30):
        topic.write(b"%d" % n, partition=n % 3)
    path = str(tmp_path / "t.jsonl")
    export_file(topic, path, "jsonl")
    again = store.create_topic("again", partitions=3)
    choice = FieldChoice(messages=True, partitions=True)
    for _ in range(2):
        import_lines(again, path, JsonLines(path, choice))
        assert everything(again) == everything(topic)


def test_values_alone_and_a_part_of_the_topic(store, tmp_path):
    topic = store.create_topic("t", partitions=2)
    for n in range(6):
        topic.write(b'{"n":\n%d}' % n, partition=n % 2)
    path = tmp_path / "v.jsonl"
    assert export_file(topic, str(path), "jsonl", wanted=ExportRange(1, {1: 1}), values=True) == 2
    assert path.read_text() == '{"n":3}\n{"n":5}\n'
    topic.write(b"no json")
    with pytest.raises(AlreadyExists):
        export_file(topic, str(path), "jsonl")
    with pytest.raises(InvalidOption, match="is not JSON"):
        export_file(topic, str(path), "jsonl", values=True, overwrite=True)
    assert path.read_text() == '{"n":3}\n{"n":5}\n'
    assert [each.name for each in tmp_path.iterdir() if "partial" in each.name] == []


# Columns.


def table():
    return pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int32()),
            "name": ["a", None, "c"],
            "at": pa.array([1, 2, 3], pa.timestamp("ms")),
            "body": [b"x", b"\xff", None],
            "nested": [{"x": 1}, {"x": 2}, None],
        }
    )


def write_table(path, kind, found):
    if kind == "parquet":
        parquet.write_table(found, path)
        return
    opener = ipc.new_file if kind == "arrow" else ipc.new_stream
    with opener(str(path), found.schema) as writer:
        writer.write_table(found, max_chunksize=2)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream"])
def test_columns_become_value_key_and_time(store, tmp_path, kind):
    path = tmp_path / "f"
    write_table(path, kind, table())
    kind = "parquet" if kind == "parquet" else "arrow"
    topic = store.create_topic("t")
    done = import_table(topic, str(path), kind, FieldChoice(value="body", key="id", time="at"))
    assert done.messages == 3
    assert [(m.key, m.value, m.timestamp) for m in topic.read()] == [
        (b"1", b"x", 1_000_000), (b"2", b"\xff", 2_000_000), (b"3", None, 3_000_000),
    ]  # fmt: skip
    assert import_table(topic, str(path), kind, FieldChoice(value="body", key="id", time="at")).messages == 0
    whole = store.create_topic("whole")
    import_table(whole, str(path), kind, FieldChoice(key="name"))
    assert json.loads(whole.read()[0].value)["nested"] == {"x": 1}
    nested = store.create_topic("nested")
    import_table(nested, str(path), kind, FieldChoice(value="nested", time="id", time_unit="s"))
    assert [(m.value, m.timestamp) for m in nested.read()][:2] == [
        (b'{"x":1}', 10**9),
        (b'{"x":2}', 2 * 10**9),
    ]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_tables_that_are_none_or_lack_a_column(store, tmp_path, kind):
    topic = store.create_topic("t")
    path = tmp_path / "f"
    write_table(path, kind, table())
    with pytest.raises(InvalidOption, match=r"has no column 'nope'.*it has 'id'"):
        import_table(topic, str(path), kind, FieldChoice(key="nope"))
    with pytest.raises(InvalidOption, match="holds no times"):
        import_table(topic, str(path), kind, FieldChoice(time="body"))
    path.write_bytes(b"")
    with pytest.raises(InvalidOption, match=f"is not a file of kind {kind}"):
        import_table(topic, str(path), kind, FieldChoice())
    with pytest.raises(InvalidOption, match="cannot be read"):
        import_table(topic, str(tmp_path / "missing"), kind, FieldChoice())


def test_choices_that_make_no_sense():
    for choice in (
        FieldChoice(time_unit="h"), FieldChoice(messages=True, key="k"), FieldChoice(partitions=True),
    ):  # fmt: skip
        with pytest.raises(InvalidOption):
            choice.check()
