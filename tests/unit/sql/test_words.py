"""Each word of YDB's DDL is mapped to an option, or says why it has none (S001-29)."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.errors import InvalidOption
from penstock.parse import MIB
from penstock.sql import words

TOPIC = [
    ("min_active_partitions", 3, {"partitions": 3}),
    ("max_active_partitions", 8, {"max_partitions": 8}),
    ("retention_period", timedelta(hours=12), {"retention": timedelta(hours=12)}),
    ("retention_storage_mb", 2, {"max_bytes": 2 * MIB}),
    ("retention_storage_mb", 0, {"max_bytes": None}),
    ("supported_codecs", "RAW, Gzip", {"codecs": ["raw", "gzip"]}),
    ("partition_write_speed_bytes_per_second", 9000, {"partition_write_speed": 9000}),
    ("partition_write_burst_bytes", 100_500, {"partition_write_burst": 100_500}),
    ("partition_write_burst_bytes", 0, {"partition_write_burst": None}),
    ("auto_partitioning_strategy", "scale_up", {"autopartitioning": "up"}),
    ("auto_partitioning_strategy", "SCALE_UP", {"autopartitioning": "up"}),
    ("auto_partitioning_strategy", "up", {"autopartitioning": "up"}),
    ("auto_partitioning_strategy", "paused", {"autopartitioning": "paused"}),
    ("auto_partitioning_strategy", "disabled", {"autopartitioning": "disabled"}),
    (
        "auto_partitioning_stabilization_window",
        timedelta(minutes=1),
        {"stabilization_window": timedelta(minutes=1)},
    ),
    ("auto_partitioning_up_utilization_percent", 50, {"up_utilization_percent": 50}),
    ("write_quota", True, {"write_quota": True}),
    ("index", "key", {"index": "key"}),
]
CONSUMER = [
    ("important", True, {"important": True}),
    ("availability_period", timedelta(days=1), {"availability_period": timedelta(days=1)}),
    ("read_from", 0, {"read_from": None}),
    ("read_from", 100, {"read_from": datetime.fromtimestamp(100, UTC)}),
    ("read_from", datetime(2026, 1, 1, tzinfo=UTC), {"read_from": datetime(2026, 1, 1, tzinfo=UTC)}),
    ("type", "streaming", {}),
    ("read_speed", 1000, {"read_speed": 1000}),
]


@pytest.mark.parametrize(("word", "value", "option"), TOPIC)
def test_a_word_of_topics_is_an_option(word, value, option):
    assert words.topic_option(word, value) == option


@pytest.mark.parametrize(("word", "value", "option"), CONSUMER)
def test_a_word_of_consumers_is_an_option(word, value, option):
    assert words.consumer_option(word, value) == option


def test_every_word_of_the_tables_is_tried_here():
    assert set(words.TOPIC_WORDS) <= {word for word, _, _ in TOPIC}
    assert set(words.CONSUMER_WORDS) <= {word for word, _, _ in CONSUMER}


@pytest.mark.parametrize("word", words.MEANINGLESS)
def test_a_word_of_topics_without_a_meaning_says_why(word):
    with pytest.raises(InvalidOption, match=f"{word} has no meaning here: ..."):
        words.topic_option(word, 1)


@pytest.mark.parametrize("word", words.MEANINGLESS_OF_CONSUMERS)
def test_a_word_of_consumers_without_a_meaning_says_why(word):
    with pytest.raises(InvalidOption, match=f"{word} has no meaning here: ..."):
        words.consumer_option(word, 1)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("min_active_partitions", "2"), ("min_active_partitions", -1), ("min_active_partitions", True),
        ("retention_period", 12), ("supported_codecs", 1), ("retention_storage_mb", 1.5),
        ("auto_partitioning_strategy", "scale_up_and_down"), ("auto_partitioning_strategy", "sideways"),
    ],
)  # fmt: skip
def test_a_value_that_is_none_is_refused_by_name(word, value):
    with pytest.raises(InvalidOption, match=word):
        words.topic_option(word, value)


@pytest.mark.parametrize(
    ("word", "value"),
    [("important", 1), ("availability_period", "1d"), ("read_from", "x"), ("type", "shared")],
)
def test_a_consumers_value_that_is_none_is_refused_by_name(word, value):
    with pytest.raises(InvalidOption, match=word):
        words.consumer_option(word, value)


def test_reset_knows_the_defaults():
    assert words.reset_option("retention_period", words.TOPIC_WORDS) == {"retention": None}
    assert words.reset_option("important", words.CONSUMER_WORDS) == {"important": False}
    with pytest.raises(InvalidOption, match="nothing cannot be reset"):
        words.reset_option("nothing", words.TOPIC_WORDS)
