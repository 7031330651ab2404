"""What a DataFrame's columns and a write's options mean: no Spark, no files."""

import pytest

from penstock.errors import InvalidOption
from tests.kit.sinks import Column, Shape, WriteOptions, parse, shape


def shape_of(ddl: str, *, topic_given: bool = True, key_column: str | None = None) -> Shape:
    columns = [Column(*part.split(" ", 1)) for part in ddl.split("; ")]
    return shape(columns, topic_given=topic_given, key_column=key_column)


def test_columns_are_found_by_name_in_any_order_and_case():
    assert shape_of("KEY string; Value binary; timestamp timestamp") == Shape(1, key=0, timestamp=2)
    assert shape_of("value string; partition int; headers map<string,string>") == Shape(
        0, partition=1, headers=2
    )


@pytest.mark.parametrize("text", ["binary", "string"])
def test_headers_come_as_a_map_or_as_kafkas_array(text):
    assert shape_of(f"value binary; headers map<string,{text}>").headers == 1
    assert shape_of(f"value binary; headers array<struct<key:string,value:{text}>>").headers == 1


def test_option_topic_wins_over_the_column():
    """As with Spark's Kafka sink: else a copy of a topic would be written back to where it was read."""
    assert shape_of("topic string; value binary").topic is None
    assert shape_of("topic string; value binary", topic_given=False).topic == 0


def test_what_was_read_from_a_topic_can_be_written_as_it_is():
    read = (
        "topic string; partition int; offset bigint; timestamp timestamp; key binary; value binary; "
        "headers map<string,binary>; written_at timestamp; producer_id string; group string; seqno bigint; "
        "codec string"
    )
    assert shape_of(read) == Shape(5, key=4, headers=6, partition=1, timestamp=3)


def test_without_value_the_row_is_the_value():
    assert shape_of("id bigint; key int; name string") == Shape(None)
    assert shape_of("id bigint; name string", key_column="NAME") == Shape(None, key=1)


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("value int", "'value' is int, not binary or string .*as JSON"),
        ("value binary; key bigint", r"'key' is bigint, not binary or string .*cast\('string'\)"),
        ("value binary; headers map<string,int>", "'headers' is map<string,int>"),
        ("value binary; partition bigint", r"'partition' is bigint, not int .*cast\('int'\)"),
        ("value binary; timestamp timestamp_ntz", r"'timestamp' is timestamp_ntz.*cast\('timestamp'\)"),
        ("value binary; colour string", "no 'colour' .*columns: value, key"),
        ("value binary; VALUE string", "two columns are named 'VALUE'"),
    ],
)
def test_columns_that_cannot_be_stored_are_named(ddl, told):
    with pytest.raises(InvalidOption, match=told):
        shape_of(ddl)


def test_topic_must_come_from_somewhere():
    with pytest.raises(InvalidOption, match="which topic"):
        shape_of("value binary", topic_given=False)
    with pytest.raises(InvalidOption, match="which topic"):
        shape_of("id bigint", topic_given=False)
    assert shape_of("id bigint; topic string", topic_given=False) == Shape(None, topic=1)
    with pytest.raises(InvalidOption, match="'topic' is int, not string"):
        shape_of("value binary; topic int", topic_given=False)


def test_key_column_is_for_json_and_must_be_there():
    with pytest.raises(InvalidOption, match="without a column `value`"):
        shape_of("value binary; id string", key_column="id")
    with pytest.raises(InvalidOption, match=r"keyColumn='x' is not a column .*id, name"):
        shape_of("id bigint; name string", key_column="x")
    with pytest.raises(InvalidOption, match="'id' is bigint, not binary or string"):
        shape_of("id bigint; name string", key_column="id")


def test_options_in_any_case():
    found = parse({"path": "/d", "TOPIC": "o", "txnappid": "a", "txnVersion": "7"}, streaming=False)
    assert found == WriteOptions("/d", "o", None, "a", 7)
    given = {"path": "/d", "checkpointLocation": "/c", "queryName": "q", "txnAppId": "a"}
    assert parse(given, streaming=True) == WriteOptions("/d", None, None, "a", None, checkpoint="/c")


@pytest.mark.parametrize(
    ("options", "streaming", "told"),
    [
        ({"path": "d", "topics": "o"}, False, "unknown option 'topics' .*did you mean topic"),
        ({"topic": "o"}, False, r"which store\? .*save"),
        ({"topic": "o"}, True, r"which store\? .*start"),
        ({"path": "d", "txnAppId": "a"}, False, "belong together"),
        ({"path": "d", "txnVersion": "1"}, False, "belong together"),
        ({"path": "d", "txnAppId": "a", "txnVersion": "-1"}, False, "txnVersion='-1'"),
        ({"path": "d", "txnAppId": "a", "txnVersion": "1"}, True, "txnVersion is for batch writes"),
        ({"path": "d", "txnAppId": "", "txnVersion": "1"}, False, "txnAppId"),
    ],
)
def test_wrong_options_are_named(options, streaming, told):
    with pytest.raises(InvalidOption, match=told):
        parse(options, streaming=streaming)
