"""A scan becomes a table of the library that the user has; what cannot be had is said."""

import sys

import pytest

import penstock
from tests.require import require


@pytest.fixture
def topic(tmp_path):
    with penstock.open(tmp_path) as store:
        topic = store.create_topic("orders", partitions=2)
        topic.write_many(
            [b"%d" % number for number in range(10)], keys=[f"k{number}" for number in range(10)]
        )
        yield topic


def test_a_scan_is_a_pandas_frame(topic):
    require("pandas")
    frame = topic.scan().to_pandas()
    assert sorted(frame["value"]) == [b"%d" % number for number in range(10)]


def test_a_scan_is_a_polars_frame(topic):
    require("polars")
    frame = topic.scan(columns=["key", "value"]).to_polars()
    assert frame.columns == ["key", "value"]
    assert frame.height == 10


def test_a_scan_is_a_relation_of_duckdb(topic):
    require("duckdb")
    relation = topic.scan().to_duckdb()
    assert relation.aggregate("count(*) AS n").fetchall() == [(10,)]


def test_a_library_that_is_not_there_is_named_with_what_installs_it(topic, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(penstock.errors.MissingExtra) as raised:
        topic.scan().to_polars()
    assert raised.value.hint == 'pip install "penstock[arrow]" polars'


@pytest.mark.parametrize("option", ["retention", "segment_age"])
@pytest.mark.parametrize("given", [7, 0.5])
def test_a_bare_number_is_no_retention(tmp_path, option, given):
    with penstock.open(tmp_path) as store:
        with pytest.raises(penstock.errors.InvalidOption, match="has no unit") as raised:
            store.create_topic("orders", **{option: given})
        assert f'"{given:g}d"' in raised.value.hint
        assert store.topics() == []
