"""History and live as one: wherever the cut falls, the rows are those of the whole log."""

import asyncio
import datetime
import pickle
import shutil
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock
from tests.kit.archives import (
    RAW_SCHEMA,
    ArchivedSpan,
    ArchiveOrigin,
    History,
    open_archive,
    open_or_create,
    storage,
    write,
)
from tests.kit.logs import purge
from tests.kit.slices import StreamQuery
from tests.lake.archived_topic import (
    MESSAGES,
    PARTITIONS,
    Kept,
    archive_to,
    compacted,
    slices,
    stream_query,
    streamed,
    table_of,
)
from tests.lake.kit import batch, target

# The cut at every position.


def test_rows_are_the_same_wherever_the_cut_falls(past):
    """Every pair of archived-up-to and trimmed-up-to that leaves no hole: batch, stream and scan."""
    for trimmed in range(MESSAGES + 1):
        past.trim(trimmed)
        for archived in range(trimmed, MESSAGES + 1):
            table = str(past.table(archived))
            assert table_of(slices(past.store, history=table)).equals(past.rows), (trimmed, archived)
            assert table_of(streamed(past.store, history=table)).equals(past.rows), (trimmed, archived)
            scan = past.topic.scan(history=table)
            assert list(scan.messages()) == past.messages, (trimmed, archived)
            if archived in (trimmed, MESSAGES):
                assert scan.to_arrow().equals(past.made.arrow), (trimmed, archived)


def test_a_hole_is_told_precisely_wherever_it_is(past):
    for trimmed, positions in {1: [0], 5: range(5), MESSAGES: [0, 2, 11]}.items():
        past.trim(trimmed)
        for archived in positions:
            table = str(past.table(archived))
            hole = (
                rf"'orders' partition 0, offsets {archived} to {trimmed - 1}; the first one left is {trimmed}"
            )
            if archived:
                for plan in (slices, streamed):
                    with pytest.raises(
                        penstock.OffsetTrimmed, match=f"table {table} does not have it: {hole}"
                    ):
                        plan(past.store, history=table)
                with pytest.raises(
                    penstock.OffsetTrimmed,
                    match=rf"offsets {archived} to {trimmed - 1} .*partition 0 are gone",
                ):
                    list(past.topic.scan(history=table))
            for plan in (slices, streamed):
                found = table_of(plan(past.store, history=table, failOnDataLoss="false"))
                left = pc.or_(
                    pc.less(past.rows["offset"], archived), pc.greater_equal(past.rows["offset"], trimmed)
                )
                assert found.equals(past.rows.filter(left))


def test_any_range_and_any_columns(past):
    past.trim(7)
    compacted(past.growing)
    table = str(past.growing)
    for start in range(MESSAGES + 1):
        for stop in range(start, MESSAGES + 1):
            places = {
                "startingOffsets": f'{{"orders": {{"0": {start}, "1": {start}, "2": {start}}}}}',
                "endingOffsets": f'{{"orders": {{"0": {stop}, "1": {stop}, "2": {stop}}}}}',
            }
            offsets = past.rows["offset"]
            inside = past.rows.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, stop)))
            assert table_of(slices(past.store, history=table, **places)).equals(inside)
            assert [
                each.offset
                for each in past.topic.scan(partition=1, start=start, stop=stop, history=table).messages()
            ] == list(range(start, stop))
    planned = slices(past.store, history=table, minPartitions="30")
    assert len(planned) >= 30
    for columns in (["topic"], ["value", "topic"], ["headers", "offset"], ["codec", "seqno", "written_at"]):
        found = table_of(planned, dict.fromkeys(columns, True))
        assert found.equals(past.rows.select(columns))
    names = ("written_at", "topic", "value")
    wanted = list(past.topic.scan(columns=names, start=7).record_batches())
    found = past.topic.scan(columns=names, start=0, history=table).to_arrow()
    assert found.schema == wanted[0].schema
    assert found.num_rows == len(past.messages)


def test_columns_that_may_not_be_null_keep_their_schema(past):
    past.trim(5)
    columns = {"offset": False, "topic": False, "timestamp": False, "codec": False, "key": True}
    found = table_of(slices(past.store, history=str(past.table(12))), columns)
    assert [field.nullable for field in found.schema] == [False, False, False, False, True]


def test_offsets_that_no_message_has_are_not_missed(store, table):
    topic = store.create_topic("orders")
    topic.write_many([b"x"] * 10)
    archive = open_or_create(storage(table), ArchiveOrigin(store.id, topic.id, "orders"), "raw", RAW_SCHEMA)
    place = target(archive.storage)
    archive.append([*write([batch([1, 2])], place), *write([batch([5, 6])], place)], {0: ArchivedSpan(0, 8)})
    topic.open_topic.log(0).trim(8)
    scan = topic.scan(history=table)
    assert [message.offset for message in scan.messages()] == [1, 2, 5, 6, 8, 9]
    for plan in (slices, streamed):
        assert table_of(plan(store, history=str(table)))["offset"].to_pylist() == [1, 2, 5, 6, 8, 9]
    with pytest.raises(penstock.OffsetTrimmed, match="offsets 0 to 0 of 'orders' partition 0 are gone"):
        list(topic.scan(start=0, history=table))


# Places.


def test_earliest_is_the_first_of_the_table(past):
    past.trim(8)
    table = str(past.table(10))
    assert past.topic.scan(start="earliest").ranges == [(n, 8, 12) for n in range(PARTITIONS)]
    assert past.topic.scan(history=table).ranges == [(n, 0, 12) for n in range(PARTITIONS)]
    assert past.topic.scan(start="latest", history=table).ranges[0] == (0, 12, 12)
    past.trim(12)
    assert past.topic.scan(start="last", history=past.table(12)).ranges[0] == (0, 11, 12)


def test_times_are_found_in_the_table_and_in_the_log_alike(past):
    moments = {each.written_at + more for each in past.messages for more in (-1, 0, 1)}
    before = {
        at: [each.offset for each in past.topic.scan(start=_moment(at)).messages()]
        for at in sorted(at // 1000 * 1000 for at in moments)[::5]
    }
    for trimmed in (1, 6, 11, 12):
        past.trim(trimmed)
        for at, offsets in before.items():
            scan = past.topic.scan(start=_moment(at), history=past.table(12))
            assert [each.offset for each in scan.messages()] == offsets


def _moment(at: int):
    return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(microseconds=at // 1000)


def test_timestamps_as_options_reach_into_the_table(past):
    last = max(each.written_at for each in past.messages) // 10**6 + 1000
    past.trim(12)
    table = str(past.table(12))
    assert table_of(slices(past.store, history=table, startingTimestamp="0")).equals(past.rows)
    assert slices(past.store, history=table, startingTimestamp=str(last)) == []


# The cut moves.


def test_a_batch_that_is_run_again_has_the_same_rows_though_the_cut_moved(past):
    """Retention, the archive and compaction go on between the replays of each batch of a stream."""
    query = stream_query(past.store, history=str(past.table(3)))
    ends = [query.initial()]
    while (end := query.latest(ends[-1], 7, None)) != ends[-1]:
        ends.append(end)
    first = replayed(query, ends)
    assert sum(each.num_rows for each in first) == len(past.messages)
    query.close()
    query = stream_query(past.store, history=str(past.growing))
    for move in (
        lambda: past.trim(2), lambda: past.trim(7), lambda: compacted(past.growing), lambda: past.trim(12),
        lambda: open_archive(storage(past.growing)).vacuum(0),
    ):  # fmt: skip
        move()
        restarted = stream_query(past.store, history=str(past.growing))
        assert replayed(restarted, ends) == first
        restarted.close()
        if not is_vacuumed(past.growing):
            assert replayed(query, ends) == first
    query.close()


def replayed(query: StreamQuery, ends: list[dict]) -> list[pa.Table]:
    """The rows of each batch."""
    return [table_of(query.planned(*pair)) for pair in pairwise(ends)]


def is_vacuumed(table) -> bool:
    """A query that runs all the while may still know of the files that were replaced."""
    return len(list(table.glob("*/*.parquet"))) == PARTITIONS


def test_a_query_goes_on_in_the_table_when_retention_overtakes_it(past):
    query = stream_query(past.store, history=str(past.growing))
    begin = query.initial()
    end = query.latest(begin, 6, None)
    past.trim(9)
    found = [table_of(query.planned(begin, end))]
    while (following := query.latest(end, 6, None)) != end:
        found.append(table_of(query.planned(end, following)))
        end = following
    query.close()
    everything = pa.concat_tables(found).sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert everything.combine_chunks().equals(past.rows.combine_chunks())


@pytest.mark.parametrize("limit", [1, 100, 3000])
def test_batches_are_limited_by_bytes_across_the_cut(past, limit):
    past.trim(6)
    query = stream_query(past.store, history=str(past.table(8)))
    end = query.initial()
    rows = 0
    while (following := query.latest(end, None, limit)) != end:
        rows += table_of(query.planned(end, following)).num_rows
        end = following
    query.close()
    assert rows == len(past.messages)


def test_available_now_ends_where_it_was_frozen_though_the_log_begins_behind(past):
    query = stream_query(past.store, history=str(past.growing))
    begin = query.initial()
    query.freeze()
    for number in range(PARTITIONS):
        past.topic.write_many([b"later"] * 5, partition=number)
    archive_to(past.store, past.topic, past.growing, 17)
    past.trim(15)
    assert table_of(query.planned(begin, query.latest(begin, None, None))).equals(past.rows)
    query.close()


def test_the_table_is_looked_at_again_when_what_is_known_does_not_reach_or_is_old(past):
    passed = [0.0]
    place = storage(past.growing)
    history = History(place, past.store.id, past.topic.id, elapsed=lambda: passed[0])
    assert history.held(0, 12).next == 12
    past.topic.write_many([b"more"] * 3, partition=0)
    archive = open_archive(place)
    archive.append([], {0: ArchivedSpan(12, 15)})
    assert history.held(0, 12).next == 12
    assert history.held(0, 13).next == 15
    archive.append([], {0: ArchivedSpan(15, 20)})
    passed[0] += 61
    assert history.known(0).next == 15
    assert history.held(0, 15).next == 20


# Between plan and read.


def vanish(past: Kept, upto: int) -> None:
    """Trim, and let the minute pass for which removed segments can still be read."""
    past.trim(upto)
    for number in range(PARTITIONS):
        purge(past.topic.open_topic.log(number).folder, now=True)


@pytest.mark.parametrize("least", ["1", "20"])
def test_segments_that_vanish_after_planning_are_taken_from_the_table(past, least):
    planned = slices(past.store, history=str(past.table(12)), minPartitions=least)
    assert not any(each.stop <= 12 and hasattr(each.pieces[0], "file") for each in planned)
    vanish(past, 12)
    assert table_of(pickle.loads(pickle.dumps(planned))).equals(past.rows)


def test_segments_that_vanish_before_they_are_archived_are_told(past):
    planned = slices(past.store, history=str(past.table(2)))
    vanish(past, 12)
    with pytest.raises(penstock.OffsetTrimmed, match="run the query again; it then takes from the table"):
        table_of(planned)
    assert table_of(slices(past.store, history=str(past.table(12)))).equals(past.rows)


def test_files_that_were_compacted_after_planning_stay_until_vacuum(past):
    past.trim(12)
    planned = slices(past.store, history=str(past.growing))
    compacted(past.growing)
    assert table_of(planned).equals(past.rows)
    open_archive(storage(past.growing)).vacuum(0)
    with pytest.raises(penstock.Unavailable, match=r"no longer in the table .*run it again"):
        table_of(planned)
    assert table_of(slices(past.store, history=str(past.growing))).equals(past.rows)


def test_a_table_that_is_deleted_meanwhile_is_told(past):
    query = stream_query(past.store, history=str(past.growing))
    begin = query.initial()
    end = query.latest(begin, None, None)
    past.trim(12)
    planned = query.planned(begin, end)
    scan = past.topic.scan(history=past.growing)
    shutil.rmtree(past.growing)
    with pytest.raises(penstock.NotATable, match=rf"\S+ does not see the table {past.growing}"):
        table_of(planned)
    with pytest.raises(penstock.NotATable):
        list(scan)
    query.close()
    with pytest.raises(penstock.NotATable, match=f"there is nothing at {past.growing}"):
        past.topic.scan(history=past.growing)


def test_a_scan_goes_on_in_the_table_when_retention_overtakes_it(past):
    scan = past.topic.scan(history=past.table(12))
    found = []
    for trimmed, received in enumerate(scan):
        found += received.messages()
        vanish(past, min(trimmed * 3, MESSAGES))
    assert found == past.messages
    assert list(scan.messages()) == past.messages


# Messages.


def test_messages_of_a_table_are_as_those_of_the_log(past):
    """Also pickled, written elsewhere, and typed; S001-10: the codec is told, the value unpacked."""
    past.trim(12)
    scan = past.topic.scan(history=past.table(12))
    found = list(scan.messages())
    assert [each.headers for each in found] == [each.headers for each in past.messages]
    assert {type(value) for each in found for value in each.headers.values()} == {str, bytes}
    assert {each.codec for each in found} == {"raw", "zstd"}
    assert [each.timestamp for each in found if each.timestamp < 0] == [-1_000_000_001, -1] * PARTITIONS
    assert pickle.loads(pickle.dumps(found)) == past.messages
    copy = past.store.create_topic("copy")
    copy.write_many(scan)
    assert [each.value for each in copy.scan().messages()] == [each.value for each in past.messages]
    texts = past.store.topic("orders", type=str).scan(history=past.table(12)).messages()
    assert [each.value for each in texts] == [
        None if each.value is None else each.value.decode() for each in past.messages
    ]


def test_the_async_scan_reads_history_too(past):
    past.trim(9)
    asyncio.run(_scan_async(past))


async def _scan_async(past: Kept) -> None:
    async with penstock.aio.open(past.store.path) as store:
        topic = await store.topic("orders")
        scan = await topic.scan(history=past.table(12))
        assert [message async for message in scan.messages()] == past.messages
        assert (await scan.to_arrow()).num_rows == len(past.messages)
