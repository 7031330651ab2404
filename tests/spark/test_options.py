"""Options of the source, understood without Spark."""

import os

import pytest

from penstock import InvalidOption
from tests.kit.slices import parse, refuse_for_batch, refuse_for_stream
from tests.kit.slices import schema_module as schema
from tests.kit.values import EARLIEST, LATEST, Spot


def parsed(**options: str):
    return parse({"path": "/data", "topic": "orders", **options})


def test_defaults_are_everything_there_is_with_kafkas_columns():
    asked = parsed()
    assert asked.starting.of("orders", 3) == EARLIEST
    assert asked.ending.of("orders", 3) == LATEST
    assert asked.columns == ("topic", "partition", "offset", "timestamp", "key", "value")


def test_option_names_ignore_case_as_sparks_do():
    assert (
        parse({"PATH": "/data", "Topic": "orders", "STARTINGOFFSETS": "latest"}).starting.of("orders", 0)
        == LATEST
    )


def test_offsets_per_partition_in_kafkas_spelling():
    asked = parsed(startingOffsets='{"orders": {"0": 12, "1": -1, "2": -2}}', endingOffsets='{"orders": {}}')
    assert [asked.starting.of("orders", p) for p in range(4)] == [
        Spot("offset", 12),
        LATEST,
        EARLIEST,
        EARLIEST,
    ]
    assert asked.ending.of("orders", 0) == LATEST


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("yesterday", "not understood"),
        ("[1]", "wrong shape"),
        ('{"orders": 3}', "wrong shape"),
        ('{"payments": {"0": 1}}', "'payments'"),
        ('{"orders": {"zero": 1}}', "'zero'"),
        ('{"orders": {"0": -3}}', "-3"),
        ('{"orders": {"0": true}}', "True"),
        ('{"orders": {"0": "7"}}', "'7'"),
        ('{"orders": {"0": 9223372036854775808}}', "9223372036854775808"),
    ],
)
def test_bad_offsets_are_named(value, told):
    with pytest.raises(InvalidOption, match=told):
        parsed(startingOffsets=value)


def test_columns_are_chosen_in_the_order_given():
    assert parsed(columns="value, offset").columns == ("value", "offset")
    assert parsed(columns="*").columns == schema.ALL
    assert parsed(includeHeaders="true").columns == (*schema.DEFAULT, "headers")
    assert parsed(columns="value", includeHeaders="TRUE").columns == ("value", "headers")
    assert parsed(columns="headers", includeHeaders="true").columns == ("headers",)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"columns": "offset,colour"}, "'colour'"),
        ({"columns": ""}, "no column ''"),
        ({"columns": "offset,offset"}, "named twice"),
        ({"includeHeaders": "maybe"}, "includeHeaders='maybe'"),
        ({"startingOffset": "latest"}, r"unknown option 'startingoffset' \(did you mean startingOffsets"),
        ({"colour": "red"}, "unknown option 'colour'"),
        ({"subscribe": "a,b"}, "topic and subscribe are given"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "startingOffsets and startingTimestamp"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp has 'yesterday'"),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "endingOffsetsByTimestamp has -1 for part"),
        ({"endingOffsetsByTimestamp": "latest"}, "endingOffsetsByTimestamp='latest' is not understood"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0'"),
        ({"maxBytesPerTrigger": "lots"}, "maxBytesPerTrigger='lots'"),
        ({"minPartitions": "1.5"}, "minPartitions='1.5'"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss='no'"),
        ({"consumer": "../x"}, "cannot be the name of a consumer"),
        ({"important": "true"}, "important without a consumer"),
        ({"onDecodeError": "ignore"}, "onDecodeError='ignore'"),
        ({"view": "tables"}, "view='tables'"),
        ({"topic": "../x"}, "cannot be the name"),
        ({"path": ""}, "which store"),
        ({"path": ":memory:"}, "in memory"),
        ({"path": "s3://bucket/data"}, "not a folder"),
    ],
)
def test_bad_options_are_named(options, told):
    with pytest.raises(InvalidOption, match=told):
        parsed(**options)


def test_topic_is_required():
    with pytest.raises(InvalidOption, match="which topic"):
        parse({"path": "/data"})


def test_topics_by_list_and_by_pattern():
    listed = parse({"path": "/data", "subscribe": "orders, payments"}).topics
    assert listed.among(["other"]) == ("orders", "payments")
    matched = parse({"path": "/data", "subscribePattern": "pay.*|orders"}).topics
    assert matched.among(["payments", "prepay", "orders", "orders2"]) == ("orders", "payments")
    assert parse({"path": "/data", "view": "consumers"}).topics.among(["a"]) == ("a",)
    for wrong in ("a,,b", "a,a", "a b"):
        with pytest.raises(InvalidOption):
            parse({"path": "/data", "subscribe": wrong})
    with pytest.raises(InvalidOption, match="not a pattern"):
        parse({"path": "/data", "subscribePattern": "("})


def test_offsets_of_several_topics():
    each = '{"orders": {"0": 3}, "payments": {"1": -1}}'
    asked = parse({"path": "/data", "subscribe": "orders,payments", "startingOffsets": each})
    assert asked.starting.of("orders", 0) == Spot("offset", 3)
    assert asked.starting.of("payments", 0) == EARLIEST
    assert asked.starting.of("payments", 1) == LATEST


def test_times_are_milliseconds_as_kafkas():
    assert parsed(startingTimestamp="1700000000000").starting.of("orders", 5) == Spot("time", 17 * 10**17)
    asked = parsed(endingOffsetsByTimestamp='{"orders": {"1": 1700000000000}}').ending
    assert [asked.of("orders", p) for p in (0, 1)] == [LATEST, Spot("time", 17 * 10**17)]


def test_limits_and_switches():
    asked = parsed(
        maxOffsetsPerTrigger="1000", maxBytesPerTrigger="64MiB", minPartitions="8", failOnDataLoss="false",
        consumer="billing", important="true", onDecodeError="NULL",
    )  # fmt: skip
    assert (asked.max_rows, asked.max_bytes, asked.min_partitions) == (1000, 64 * 2**20, 8)
    assert (asked.fail_on_data_loss, asked.consumer, asked.important) == (False, "billing", True)
    assert asked.on_decode_error == "null"


def test_options_of_the_other_kind_of_read_are_refused():
    with pytest.raises(InvalidOption, match=r"consumer is for streams: spark\.readStream"):
        refuse_for_batch(parsed(consumer="billing"))
    with pytest.raises(InvalidOption, match=r"endingOffsets is for batch reads: spark\.read"):
        refuse_for_stream(parsed(endingOffsets="latest"))


def test_store_is_an_absolute_path_whatever_folder_an_executor_runs_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parsed(path="data").store == os.path.join(tmp_path, "data")
    assert parsed(path="file:///a%20b/data").store == "/a b/data"
    assert parsed(path="file:/a/data").store == "/a/data"


def test_schema_given_by_the_user_must_have_the_topics_types():
    assert schema.check_types([("offset", "bigint", False), ("key", "binary", True)]) == ("offset", "key")
    with pytest.raises(InvalidOption, match="'offset' is bigint, not int"):
        schema.check_types([("offset", "int", True)])
    with pytest.raises(InvalidOption, match="'value' may be null"):
        schema.check_types([("value", "binary", False)])
    with pytest.raises(InvalidOption, match="no column is chosen"):
        schema.check_types([])


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("minOffsetsPerTrigger", "processingTime"), ("kafka.bootstrap.servers", "load"),
        ("assign", "partition = 3"), ("kafka.security.protocol", "mean nothing here"),
        ("groupIdPrefix", "consumer"), ("colums", "columns"),
        ("maxTriggerDelay", "processingTime"), ("startingOfsets", "startingOffsets"),
        ("endingTimestmp", "endingTimestamp"),
    ],
)  # fmt: skip
def test_unknown_options_are_told_what_to_use_and_never_the_opposite(option, told):
    """18.10."""
    with pytest.raises(InvalidOption) as raised:
        parse({"path": "data", "topic": "orders", option: "5"})
    assert told in raised.value.hint
    if option == "minOffsetsPerTrigger":
        assert "maxOffsets" not in raised.value.hint


@pytest.mark.parametrize(
    ("option", "opposite"),
    [
        ("minOffsets", "endingOffsets"), ("endOffsets", "startingOffsets"), ("untilTimestamp", "starting"),
        ("notImportant", "important"), ("ignoreDataLoss", "failOnDataLoss"), ("excludeHeaders", "include"),
        ("maxPartitions", "minPartitions"),
    ],
)  # fmt: skip
def test_a_hint_never_means_the_opposite(option, opposite):
    with pytest.raises(InvalidOption) as raised:
        parse({"path": "data", "topic": "orders", option: "5"})
    assert not raised.value.hint.startswith(f"did you mean {opposite}")
