"""Durations, sizes, places and names: parsed in one place, refused with one error, never with a traceback."""

import string
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidOption, UsageError, WrongType
from tests.kit.values import (
    TIME_MAX_NS,
    TIME_MIN_NS,
    TopicOptions,
    consumer_name,
    datetime_ns,
    nanoseconds,
    seconds,
    size,
    spot,
    topic_changes,
    topic_name,
)

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
SIZES = {"": 1, "B": 1, "KB": 1000, "MB": 10**6, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "k": 1024}
anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers()),
    st.dictionaries(st.integers(), st.integers()), st.timedeltas(), st.datetimes(),
)  # fmt: skip


@given(st.integers(0, 10_000), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]))
def test_a_duration_is_its_number_times_its_unit(number, unit, space):
    assert seconds("linger", f"{number}{space}{unit}") == pytest.approx(number * UNITS[unit])


@given(st.timedeltas(timedelta(0), timedelta(days=9000)))
def test_a_timedelta_is_a_duration(duration):
    assert seconds("linger", duration) == duration.total_seconds()


@given(st.integers(0, 10**6), st.sampled_from(sorted(SIZES)))
def test_a_size_is_its_number_times_its_unit(number, unit):
    assert size("buffer", f"{number}{unit}") == number * SIZES[unit]


@given(anything)
def test_whatever_is_no_duration_is_refused_as_such(value):
    try:
        result = seconds("linger", value)
    except UsageError:
        return
    assert 0 <= result < 1e10


@given(anything)
def test_whatever_is_no_size_is_refused_as_such(value):
    try:
        result = size("buffer", value)
    except UsageError:
        return
    assert isinstance(result, int)
    assert result >= 0


@given(st.one_of(anything, st.sampled_from(["earliest", "latest", "last", "2h", "0", "12", "1d"])))
def test_whatever_is_no_place_is_refused_as_such(value):
    try:
        found = spot(value, 0, 10**18)
    except UsageError:
        return
    assert found.kind in ("earliest", "latest", "last", "offset", "time")
    if found.kind == "offset":
        assert 0 <= found.value < 2**63


@given(st.integers(0, 2**63 - 1), st.integers(0, 5))
def test_an_offset_is_a_place_as_a_number_as_text_and_per_partition(offset, partition):
    assert spot(offset, partition, 0) == spot(str(offset), partition, 0)
    assert spot({partition: offset}, partition, 0).value == offset
    assert spot({partition + 1: offset}, partition, 0).kind == "earliest"


@given(st.integers(0, 3600), st.sampled_from(["s", "min", "h"]))
def test_an_age_is_a_moment_before_now(number, unit):
    now = 1_700_000_000 * 10**9
    found = spot(f"{number}{unit}", 0, now)
    assert (found.kind, found.value) == ("time", now - number * UNITS[unit] * 10**9)


@given(st.datetimes(datetime(1678, 1, 1), datetime(2262, 1, 1)))
def test_a_datetime_keeps_its_microseconds(moment):
    aware = moment.replace(tzinfo=UTC)
    nanos = datetime_ns(aware)
    assert nanos % 1000 == 0
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanos // 1000) == aware
    assert spot(aware.isoformat(), 0, 0) == spot(aware, 0, 0)


@given(st.integers(-(2**70), 2**70))
def test_a_time_fits_into_64_bits_or_is_refused(moment):
    if TIME_MIN_NS <= moment <= TIME_MAX_NS:
        assert nanoseconds("timestamp", moment) == moment
    else:
        with pytest.raises(InvalidOption):
            nanoseconds("timestamp", moment)


@given(
    st.one_of(st.text(), anything, st.sampled_from(["../x", "", ".", "..", "a/b", "-x", "a" * 201, "a\n"]))
)
def test_a_name_is_plain_or_refused(name):
    plain = set(string.ascii_letters + string.digits + "._-")
    for check in (topic_name, consumer_name):
        try:
            assert check(name) == name
        except (InvalidOption, WrongType):
            continue
        assert set(name) <= plain
        assert 1 <= len(name) <= 200
        assert name[0] not in ".-"


@given(st.dictionaries(st.sampled_from(["partitions", "retention", "max_bytes", "sync", "colour"]), anything))
def test_options_of_a_topic_are_accepted_whole_or_refused_whole(spoken):
    try:
        options = TopicOptions(**topic_changes(spoken))
    except UsageError:
        return
    assert "colour" not in spoken
    assert TopicOptions(**options.as_dict()) == options
