"""YDB's words for topics and consumers, and what each is called here; those without a meaning here say why.

A word that YDB does not have is taken for one of our own options (`index = 'key'`, `write_quota = true`), and
is refused by them if it is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from penstock.errors import InvalidOption
from penstock.parse import MIB


class YdbWord(NamedTuple):
    """What a word of YDB's is called here, how its value is said, and what RESET makes of it."""

    option: str
    default: Any
    said: Callable[[str, Any], Any]


def _same(word: str, value: Any) -> Any:
    return value


def _whole_number(word: str, value: Any) -> int:
    if type(value) is not int or value < 0:
        raise InvalidOption(f"{word} takes a number, not {value!r}")
    return value


def _or_none(word: str, value: Any) -> int | None:
    """A number of which 0 means that there is none."""
    return _whole_number(word, value) or None


def _megabytes(word: str, value: Any) -> int | None:
    number = _or_none(word, value)
    return None if number is None else number * MIB


def _lasting(word: str, value: Any) -> timedelta:
    if not isinstance(value, timedelta):
        raise InvalidOption(
            f"{word} takes an interval, not {value!r}", hint="write it like Interval('PT12H')"
        )
    return value


def _truth(word: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(f"{word} takes TRUE or FALSE, not {value!r}")
    return value


def _codecs(word: str, value: Any) -> list[str]:
    if not isinstance(value, str):
        raise InvalidOption(f"{word} takes a text such as 'RAW, GZIP', not {value!r}")
    return [each.strip().lower() for each in value.split(",") if each.strip()]


def _read_from(word: str, value: Any) -> datetime | None:
    """A moment, or seconds since 1970, of which 0 is the beginning."""
    if isinstance(value, datetime):
        return value
    if type(value) is not int or value < 0:
        raise InvalidOption(f"{word} takes a moment, not {value!r}", hint="Timestamp('2026-01-31T12:00:00Z')")
    return datetime.fromtimestamp(value, UTC) if value else None


def _strategy(word: str, value: Any) -> str:
    if value == "scale_up_and_down":
        raise InvalidOption(f"{word}: partitions are split, never joined", hint="'scale_up'")
    modes = {"disabled": "disabled", "up": "up", "scale_up": "up", "paused": "paused"}
    found = modes.get(str(value).lower())
    if found is None:
        raise InvalidOption(f"{word} is 'disabled', 'scale_up' or 'paused', not {value!r}")
    return found


def _streaming(word: str, value: Any) -> None:
    if str(value).lower() != "streaming":
        raise InvalidOption(
            f'{word} = {value!r}: any consumer may be read as a queue, by reader(kind="queue")',
            hint="leave it out",
        )


TOPIC_WORDS: Mapping[str, YdbWord] = {
    "min_active_partitions": YdbWord("partitions", 1, _whole_number),
    "max_active_partitions": YdbWord("max_partitions", 64, _whole_number),
    "retention_period": YdbWord("retention", None, _lasting),
    "retention_storage_mb": YdbWord("max_bytes", None, _megabytes),
    "supported_codecs": YdbWord("codecs", None, _codecs),
    "partition_write_speed_bytes_per_second": YdbWord("partition_write_speed", MIB, _whole_number),
    "partition_write_burst_bytes": YdbWord("partition_write_burst", None, _or_none),
    "auto_partitioning_strategy": YdbWord("autopartitioning", "disabled", _strategy),
    "auto_partitioning_stabilization_window": YdbWord("stabilization_window", timedelta(minutes=5), _lasting),
    "auto_partitioning_up_utilization_percent": YdbWord("up_utilization_percent", 90, _whole_number),
}
CONSUMER_WORDS: Mapping[str, YdbWord] = {
    "important": YdbWord("important", False, _truth),
    "availability_period": YdbWord("availability_period", None, _lasting),
    "read_from": YdbWord("read_from", None, _read_from),
}
#: Words that change nothing when they say what is so anyway.
_AS_IT_IS: Mapping[str, Callable[[str, Any], None]] = {"type": _streaming}

#: Why a word of YDB's has no counterpart.
MEANINGLESS: Mapping[str, str] = {
    "auto_partitioning_down_utilization_percent": "partitions are split, never joined",
    "partition_count_limit": "max_active_partitions says how many there may be",
    "metering_mode": "nothing is billed here",
    "timestamp_type": "messages have both times: timestamp is the producer's, written_at the log's",
}
MEANINGLESS_OF_CONSUMERS: Mapping[str, str] = {
    "supported_codecs": "readers unpack every codec that is installed",
    "keep_messages_order": "it is said where messages are handled: reader.process(keep_order=True)",
    "default_processing_timeout": 'it is said by the reader: reader(kind="queue", lease="30s")',
    "max_processing_attempts": "it is said by the reader: reader(retry=Retry(attempts=3))",
    "dead_letter_policy": "what was tried too often goes to the topic's dead letters (docs/retries.md)",
    "dead_letter_queue": "dead letters of topic t are in t.dead (docs/retries.md)",
    "receive_message_delay": "messages are delayed by who writes them: write(delay=…)",
    "receive_message_wait_time": "it is said where messages are received: reader.receive(timeout=…)",
}


def topic_option(word: str, value: Any) -> dict[str, Any]:
    """A setting of a topic as `create_topic` and `alter` take it; raises `InvalidOption`, naming the word."""
    return _option(word, value, TOPIC_WORDS, MEANINGLESS)


def consumer_option(word: str, value: Any) -> dict[str, Any]:
    """A setting of a consumer as `add_consumer` takes it; raises `InvalidOption` that names the word."""
    if word in _AS_IT_IS:
        _AS_IT_IS[word](word, value)
        return {}
    return _option(word, value, CONSUMER_WORDS, MEANINGLESS_OF_CONSUMERS)


def reset_option(word: str, words: Mapping[str, YdbWord]) -> dict[str, Any]:
    """What RESET makes of an option."""
    known = words.get(word)
    if known is None:
        raise InvalidOption(f"{word} cannot be reset", hint=f"RESET takes {', '.join(words)}")
    return {known.option: known.default}


def _option(
    word: str, value: Any, words: Mapping[str, YdbWord], meaningless: Mapping[str, str]
) -> dict[str, Any]:
    if word in meaningless:
        raise InvalidOption(f"{word} has no meaning here: {meaningless[word]}", hint="leave it out")
    known = words.get(word)
    return {word: value} if known is None else {known.option: known.said(word, value)}
