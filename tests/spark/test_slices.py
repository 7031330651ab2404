"""Planned slices read back as an executor reads them, without Spark; `Topic.scan` is what they must equal."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from tests.kit.logs import SEGMENT_HEADER_BYTES, parse_head, purge
from tests.kit.slices import Slice, arrow_schema, divided, floored, parse, survey
from tests.kit.slices import batches_module as batches
from tests.kit.slices import schema_module as schema
from tests.kit.topics import inside

ALL = dict.fromkeys(schema.ALL, True)


def plan(store: penstock.Store, topic: str = "orders", **options: str) -> list[Slice]:
    return divided(survey(parse({"path": store.path, "topic": topic, **options})))


def table(slices: list[Slice], *columns: str) -> pa.Table:
    chosen = dict.fromkeys(columns, True) or ALL
    found = [batch for each in slices for batch in batches.read(each, chosen)]
    return pa.Table.from_batches(found, schema=arrow_schema(chosen))


def scanned(topic: penstock.Topic) -> pa.Table:
    """What a scan gives, in Spark's columns and types."""
    whole = topic.scan().to_arrow()
    for name in ("timestamp", "written_at"):
        times = whole[name].combine_chunks().view(pa.int64())
        whole = whole.set_column(whole.schema.get_field_index(name), name, floored(times))
    return whole.select(list(ALL)).cast(arrow_schema(ALL))


def sealed_segments(topic: penstock.Topic, partition: int = 0) -> list[int]:
    return inside(topic).log(partition).segments.bases()[:-1]


def fill(topic: penstock.Topic, count: int, *, first: int = 0) -> None:
    """Single-message frames of all shapes."""
    for number in range(first, first + count):
        topic.write(
            None if number % 11 == 3 else b"" if number % 11 == 5 else b"value %d" % number,
            key=None if number % 5 == 0 else b"" if number % 5 == 1 else f"key {number}",
            headers={"n": str(number), "raw": b"\xff"} if number % 7 == 2 else None,
            timestamp=number * 1001 - 2500 if number % 3 else None,
        )


@pytest.fixture
def topic(store):
    return store.create_topic("orders", segment_bytes="16KiB", sync="os")


def test_frames_of_every_shape_in_sealed_repacked_and_active_segments(store, topic):
    fill(topic, 200)
    topic.write_many([b"many %d" % i for i in range(3000)], keys=[f"k{i}" for i in range(3000)])
    fill(topic, 200, first=200)
    assert store.flush_housekeeping()
    fill(topic, 100, first=400)
    assert len(sealed_segments(topic)) > 3
    found = table(plan(store))
    assert found.num_rows == 3500
    assert found.equals(scanned(topic))


def test_active_segment_of_single_message_frames(store):
    topic = store.create_topic("orders", sync="os")
    fill(topic, 50)
    for number in range(12_000):
        topic.write(b"plain %d" % number, key="k" if number % 2 else None)
    assert sealed_segments(topic) == []
    slices = plan(store)
    assert table(slices).equals(scanned(topic))
    sizes = [batch.num_rows for each in slices for batch in batches.read(each, {"offset": False})]
    assert max(sizes) <= batches.ROWS_MOST
    assert len(sizes) <= 4


def test_singles_between_other_frames_come_in_order(store, topic):
    for number in range(60):
        topic.write(b"one %d" % number)
        topic.write_many([b"two", b"three"])
    assert table(plan(store)).equals(scanned(topic))


def test_small_frames_are_gathered_and_large_ones_sliced(store):
    topic = store.create_topic("orders", sync="os")
    for _ in range(200):
        topic.write_many([b"x" * 10] * 50)
    sizes = [batch.num_rows for each in plan(store) for batch in batches.read(each, ALL)]
    assert sum(sizes) == 10_000
    assert all(batches.ROWS_LEAST <= size <= batches.ROWS_MOST for size in sizes[:-1])


def test_large_values_close_a_batch_early(store):
    topic = store.create_topic("orders", sync="os")
    for _ in range(40):
        topic.write(b"x" * 900_000)
    sizes = [batch.num_rows for each in plan(store) for batch in batches.read(each, ALL)]
    assert sum(sizes) == 40
    assert max(sizes) <= 10


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (1, 2), (37, 321), (499, 500), (0, 500), (250, 250)])
def test_any_range_across_segments(store, topic, start, stop):
    fill(topic, 300)
    assert store.flush_housekeeping()
    topic.write_many([b"many %d" % i for i in range(200)])
    slices = plan(
        store,
        startingOffsets=f'{{"orders": {{"0": {start}}}}}',
        endingOffsets=f'{{"orders": {{"0": {stop}}}}}',
    )
    assert table(slices).equals(scanned(topic).slice(start, stop - start))


def test_slices_cut_anywhere_join_without_gap_or_overlap(store, topic):
    fill(topic, 150)
    assert store.flush_housekeeping()
    fill(topic, 150, first=150)
    (whole,) = plan(store)
    parts = [whole._replace(start=at, stop=min(at + 7, whole.stop)) for at in range(0, whole.stop, 7)]
    assert table(parts).equals(scanned(topic))


def test_only_chosen_columns_are_made(store, topic):
    fill(topic, 20)
    found = table(plan(store), "value", "offset")
    assert found.schema == arrow_schema({"value": True, "offset": True})
    assert found.equals(scanned(topic).select(["value", "offset"]))


def test_times_are_floored_to_microseconds_also_before_1970(store, topic):
    moments = [-(2**63), -1_000_001, -1000, -999, -1, 0, 1, 999, 1000, 2**63 - 1]
    topic.write_many([b"x"] * len(moments), timestamps=moments)
    for moment in moments:
        topic.write(b"x", timestamp=moment)
    found = table(plan(store), "timestamp")["timestamp"].combine_chunks().view(pa.int64()).to_pylist()
    assert found == [moment // 1000 for moment in moments] * 2


def test_arrow_schema_is_what_spark_will_compare_with(spark):
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import _parse_datatype_string

    declared = _parse_datatype_string(schema.ddl(tuple(schema.TYPES)))
    every = dict.fromkeys(schema.TYPES, True)
    assert arrow_schema(every).equals(to_arrow_schema(declared, timezone="UTC"))


# What happens between planning and reading.


def test_plan_is_a_snapshot(store, topic):
    fill(topic, 50)
    slices, before = plan(store), scanned(topic)
    fill(topic, 400, first=50)
    assert table(slices).equals(before)


def test_segment_sealed_and_repacked_after_planning(store, topic):
    fill(topic, 10)
    slices, before = plan(store), scanned(topic)
    fill(topic, 300, first=10)
    assert store.flush_housekeeping()
    with open(inside(topic).log(0).folder.segment_path(0), "rb") as file:
        assert parse_head(file.read(SEGMENT_HEADER_BYTES)).generation == 1
    assert table(slices).equals(before)


def test_segments_removed_after_planning_can_be_read_for_a_while(store, topic):
    fill(topic, 400)
    assert store.flush_housekeeping()
    slices, before = plan(store), scanned(topic)
    topic.alter(max_bytes=1)
    assert topic.vacuum().segments > 0
    assert table(slices).equals(before)
    assert table(plan(store)).equals(scanned(topic))
    purge(inside(topic).log(0).folder, now=True)
    with pytest.raises(penstock.OffsetTrimmed, match="while the query was running"):
        table(slices)


def test_topic_dropped_after_planning(store, topic):
    fill(topic, 10)
    slices = plan(store)
    store.drop_topic("orders")
    with pytest.raises(penstock.TopicReplaced, match="'orders' was dropped"):
        table(slices)
    fill(store.create_topic("orders"), 10)
    with pytest.raises(penstock.TopicReplaced, match="'orders' was dropped"):
        table(slices)


def test_executor_reads_segments_and_never_the_database(store, topic):
    fill(topic, 10)
    slices, before = plan(store), scanned(topic)
    hidden = Path(store.path, "state.db").rename(Path(store.path, "hidden.db"))
    try:
        assert table(slices).equals(before)
    finally:
        hidden.rename(Path(store.path, "state.db"))


def test_executor_that_does_not_see_the_folder_says_which_host_and_path(store, topic, tmp_path):
    fill(topic, 10)
    elsewhere = [
        each._replace(store=str(tmp_path / "no"), folder=str(tmp_path / "no" / "p")) for each in plan(store)
    ]
    with pytest.raises(penstock.NotAStore, match=f"{os.uname().nodename} does not see .*no"):
        table(elsewhere)


def test_executor_imports_nothing_that_opens_a_store():
    script = (
        "import sys, penstock.spark.source.source, penstock.spark.source.batches\n"
        "print(sorted(m for m in sys.modules if m == 'sqlite3' or m.startswith(("
        "'penstock.state', 'penstock.topic', 'penstock.consume', 'penstock.store'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def damage(topic: penstock.Topic, base: int, text: bytes, *, before: int) -> None:
    """Change the byte that lies so many bytes before `text`."""
    path = inside(topic).log(0).folder.segment_path(base)
    at = Path(path).read_bytes().index(text) - before
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(b"?")


@pytest.mark.parametrize("before", [0, 48], ids=["body", "header"])
@pytest.mark.parametrize("repacked", [False, True])
def test_damage_is_named_and_what_lies_behind_it_can_be_read(store, topic, repacked, before):
    for number in range(400):
        topic.write(b"value %d!" % number)
    if repacked:
        assert store.flush_housekeeping()
    base = sealed_segments(topic)[1] if repacked else inside(topic).log(0).segments.bases()[-1]
    victim = base + 3
    damage(topic, base, b"value %d!" % victim, before=before)
    with pytest.raises(penstock.Corrupt, match="a damaged frame") as caught:
        table(plan(store))
    assert caught.value.first <= victim < caught.value.stop
    behind = table(plan(store, startingOffsets=f'{{"orders": {{"0": {caught.value.stop}}}}}'), "offset")
    assert behind["offset"].to_pylist() == list(range(caught.value.stop, 400))
    before = table(plan(store, endingOffsets=f'{{"orders": {{"0": {caught.value.first}}}}}'), "offset")
    assert before["offset"].to_pylist() == list(range(caught.value.first))


def test_value_that_cannot_be_decoded_is_null_on_request(store, topic, caplog):
    """The others of its frame stay as they are."""
    topic.write_many([b"a", b"b", b"c"], keys=["1", "2", "3"])
    slices = plan(store)
    spoiled = {1}

    def value(self, real=batches._OfFrame.value):
        if spoiled & set(range(self._offset, self._offset + self._count)):
            raise penstock.UnknownFormat("a codec that nobody knows")
        return real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches._OfFrame, "value", value)
        with pytest.raises(penstock.UnknownFormat):
            list(batches.read(slices[0], {"key": True, "value": True}))
        found = pa.Table.from_batches(
            batches.read(slices[0], {"key": True, "value": True}, null_undecodable=True)
        )
    assert found.to_pydict() == {"key": [b"1", b"2", b"3"], "value": [b"a", None, b"c"]}
    assert "a codec that nobody knows" in caplog.text
