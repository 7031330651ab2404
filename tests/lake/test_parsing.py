"""JSON values into columns: whatever a value is, its row stays its row."""

import datetime
import itertools
import json
import random

import pyarrow as pa
import pytest

from tests.kit.archives import NO_VALUE, RAW_SCHEMA, Parser, in_files, json_schema
from tests.lake.kit import batch

FIELDS = [pa.field("id", pa.int64()), pa.field("name", pa.string())]

#: Each with what becomes of it: the columns, or None where it is an error.
VALUES: list[tuple[bytes | None, tuple | None]] = [
    (b'{"id": 1, "name": "a"}', (1, "a")),
    (b'{"id":2}', (2, None)),
    (b"{}", (None, None)),
    (b'{"other": [1, {"deep": {}}]}', (None, None)),
    (b'  {"id": 3}\n', (3, None)),
    (b'{\n  "id": 4,\n  "name": "b"\n}', (4, "b")),
    (b'{"id": 5}\r\n', (5, None)),
    (b'{"name": "line\\nbreak"}', (None, "line\nbreak")),
    (b'{"name": "\xc3\xa9 \\u00e9"}', (None, "é é")),
    (b'{"name": "}\\n{"}', (None, "}\n{")),
    (b'{"name": null, "id": null}', (None, None)),
    (None, None),
    (b"", None),
    (b"  \n", None),
    (b"null", None),
    (b"17", None),
    (b'"text"', None),
    (b'[{"id": 1}]', None),
    (b"[]", None),
    (b'{"id": 1}{"id": 2}', None),
    (b'{"id": 1}\n{"id": 2}', None),
    (b'{"id": 1} {"id": 2} {"id": 3}', None),
    (b'{"id": 1', None),
    (b'{"a": {}', None),
    (b'{"a": {"b": {}', None),
    (b'{"name": "open }', None),
    (b'"id": 2}', None),
    (b"}", None),
    (b"{", None),
    (b'{"id": 1},', None),
    (b'{"id": 1} x', None),
    (b'{"name": "raw\nnewline"}', None),
    (b'{"name": "\xff"}', None),
    (b'{"\xff": 1}', None),
    (b'{"name": "\\ud800"}', None),
    (b'{"id": 1, "id": 2}', None),
    (b'{"id": 99999999999999999999}', None),
    (b'{"id": -9223372036854775809}', None),
    (b'{"id": 1.5}', None),
    (b'{"id": "1"}', None),
    (b'{"name": 5}', None),
    (b'{"name": {"first": "x"}}', None),
    (b'{"id": 01}', None),
    (b'{"id": 1,}', None),
    (b"\xef\xbb\xbf" + b'{"id": 1}', None),
    (b"not json", None),
]


def divided(values, fields=FIELDS):
    given = batch(range(len(values)))
    given = given.set_column(given.schema.get_field_index("value"), "value", pa.array(values, pa.binary()))
    return Parser(in_files(json_schema(fields))).divided(given)


def outcome(row: dict):
    return None if row["_error"] is not None else (row["id"], row["name"])


@pytest.mark.parametrize(("value", "expected"), VALUES)
def test_one_value_alone(value, expected):
    (row,) = divided([value]).to_pylist()
    assert outcome(row) == expected
    assert row["_raw"] == (value if expected is None else None)


def test_no_value_is_told_from_an_empty_object_and_an_empty_value():
    empty, nothing, blank = divided([b"{}", None, b""]).to_pylist()
    assert (empty["_error"], nothing["_error"], nothing["_raw"], blank["_raw"]) == (None, NO_VALUE, None, b"")


@pytest.mark.parametrize("seed", range(20))
def test_no_row_shifts_whatever_its_neighbours_are(seed):
    chance = random.Random(seed)
    chosen = chance.choices(VALUES, k=300)
    rows = divided([value for value, _ in chosen]).to_pylist()
    assert [row["offset"] for row in rows] == list(range(300))
    assert [outcome(row) for row in rows] == [expected for _, expected in chosen], f"seed {seed}"
    assert [row["_raw"] for row in rows] == [
        value if expected is None else None for value, expected in chosen
    ]


def test_two_neighbours_never_share_a_row():
    for pair in itertools.permutations([each for each in VALUES if each[0] and each[0][:1] == b"{"], 2):
        rows = divided([value for value, _ in pair]).to_pylist()
        assert [outcome(row) for row in rows] == [expected for _, expected in pair], pair


def test_other_columns_stay_as_they_were():
    given = batch(range(10))
    found = Parser(in_files(json_schema(FIELDS))).divided(given)
    kept = [name for name in in_files(RAW_SCHEMA).names if name not in ("value", "headers_text")]
    assert found.select(kept) == given.select(kept)
    assert found.schema == in_files(json_schema(FIELDS))


def test_no_rows():
    assert divided([]).num_rows == 0


def test_all_types():
    element = pa.struct([pa.field("day", pa.date32()), pa.field("n", pa.int16())])
    fields = [
        pa.field("flag", pa.bool_()), pa.field("tiny", pa.int8()), pa.field("real", pa.float64()),
        pa.field("price", pa.decimal128(10, 2)), pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("items", pa.list_(pa.field("element", element))),
    ]  # fmt: skip
    good = {
        "flag": True, "tiny": -128, "real": 1e300, "price": 1.25, "day": "2026-03-01",
        "at": "2026-03-01T12:00:00.123456+02:00", "items": [{"day": "2026-01-02", "n": 3}, None, {}],
    }  # fmt: skip
    bad = [
        {"tiny": 128},
        {"real": "x"},
        {"price": 1.234},
        {"day": "2026-02-30"},
        {"at": "noon"},
        {"items": 1},
    ]
    first, *rest = divided([json.dumps(each).encode() for each in [good, *bad]], fields).to_pylist()
    assert first["_error"] is None
    assert (first["tiny"], first["real"], str(first["price"])) == (-128, 1e300, "1.25")
    assert first["day"] == datetime.date(2026, 3, 1)
    assert first["at"] == datetime.datetime(2026, 3, 1, 10, 0, 0, 123456, tzinfo=datetime.UTC)
    assert first["items"] == [
        {"day": datetime.date(2026, 1, 2), "n": 3}, None, {"day": None, "n": None},
    ]  # fmt: skip
    assert [row["_error"] is not None for row in rest] == [True] * len(bad)


def test_nesting_without_end_is_an_error_or_ignored_and_nothing_dies():
    deep = b'{"other": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    rows = divided([b'{"id": 1}', deep, b'{"id": 2}']).to_pylist()
    assert [row["id"] for row in (rows[0], rows[2])] == [1, 2]
