"""Archives: the table equals the log, row for row, in order per partition."""

import datetime
import os
import threading
from contextlib import contextmanager

import pytest
from deltalake import DeltaTable

import penstock
from penstock.testing import Clock
from tests.kit.archives import open_archive, storage
from tests.kit.pipelines import archive_module as module
from tests.kit.pipelines import archive_tasks_module as archive_tasks
from tests.kit.pipelines import executors_module as executors
from tests.kit.stores import claim
from tests.kit.topics import inside
from tests.lake.rows import check_files, of_log, of_table

# Everything a message can have.


def write_all_kinds(topic: penstock.Topic) -> None:
    topic.write_many([f"value {n}" for n in range(100)], keys=[f"k{n % 7}" for n in range(100)])
    for value in (None, b"", b"\x00\xff\n", "text"):
        topic.write(value, key="odd")
    topic.write(b"h", headers={"a": "text", "b": b"\xff"}, timestamp=-1)
    topic.write(b"old", timestamp=-(2**63) + 5)
    topic.write_many([b"a", None, b""], headers=[{"n": "1"}, None, {}])
    with topic.writer(producer_id="shop-1", group="g", codec="zstd") as writer:
        writer.write_many([b"z" * n for n in range(20)], seqnos=range(5, 25))
    with topic.writer(producer_id="shop-2", codec="gzip") as writer:
        writer.write(b"packed", seqno=3)


@pytest.mark.parametrize("partitions", [1, 3])
def test_table_equals_log_for_every_kind_of_message(store, run, table, partitions):
    topic = store.create_topic("orders", partitions=partitions)
    write_all_kinds(topic)
    summary = run()
    assert of_table(table) == of_log(topic)
    check_files(table)
    assert summary.rows == len(of_log(topic))
    assert summary.next == {n: inside(topic).log(n).bounds().end for n in range(partitions)}
    assert sum(summary.first.values()) == 0


def test_frames_packed_as_a_whole_and_repacked_segments(store, run, table):
    topic = store.create_topic("orders", compress="zstd", segment_bytes="64KiB")
    for n in range(300):
        topic.write(os.urandom(600), key=f"{n}")
    topic.vacuum()
    run()
    assert of_table(table) == of_log(topic)


def test_each_run_adds_what_is_new_and_a_run_without_news_does_nothing(store, run, table):
    topic = store.create_topic("orders", partitions=2)
    for round in range(3):
        topic.write_many([f"{round}-{n}" for n in range(50)])
        assert run().rows == 50
    version = DeltaTable(table).version()
    assert (run().rows, run().batches) == (0, 0)
    assert DeltaTable(table).version() == version
    assert of_table(table) == of_log(topic)


def test_an_empty_topic_makes_an_empty_table(store, run, table):
    store.create_topic("orders")
    assert run().rows == 0
    assert DeltaTable(table).count() == 0


def test_days_lie_in_files_of_their_own(tmp_path, run, table):
    clock = Clock(datetime.datetime(2026, 3, 1, 23, 59, 59, tzinfo=datetime.UTC))
    with penstock.open(tmp_path / "data", clock=clock) as store:
        topic = store.create_topic("orders")
        for _ in range(4):
            topic.write_many([b"x"] * 10)
            clock.advance("12h")
        run()
        assert of_table(table) == of_log(topic)
    check_files(table)
    days = [str(each.date) for each in open_archive(storage(table)).files()]
    assert days == ["2026-03-01", "2026-03-02", "2026-03-03"]


def test_partitions_added_later_are_archived_from_their_first_message(store, run, table):
    topic = store.create_topic("orders")
    topic.write_many([b"x"] * 10)
    run()
    topic.alter(partitions=3)
    topic.write_many([b"y"] * 30, keys=[f"{n}" for n in range(30)])
    run()
    run()
    assert of_table(table) == of_log(store.topic("orders"))


def test_rounds_are_limited_and_each_is_committed(store, run, table, monkeypatch):
    monkeypatch.setattr(module, "_ROUND_BYTES", 4096)
    topic = store.create_topic("orders", partitions=2)
    for _ in range(10):
        topic.write_many([os.urandom(100)] * 20)
    assert run(compact=False).batches > 3
    assert of_table(table) == of_log(topic)


# The consumer.


def test_consumer_follows_the_table_and_shows_the_lag(store, run):
    topic = store.create_topic("orders")
    topic.write_many([b"x"] * 10)
    run()
    topic.write_many([b"x"] * 3)
    (shown,) = topic.consumers()
    assert (shown.consumer, shown.lag) == ("archive-orders-orders", 3)
    assert store.pipeline("archive-orders-orders").lag == 3


def test_a_lost_or_misplaced_consumer_changes_nothing(store, run, table):
    topic = store.create_topic("orders")
    topic.write_many([b"x"] * 10)
    run(consumer="mine")
    topic.seek_consumer("mine", 0)
    topic.write_many([b"y"] * 5)
    assert run(consumer="mine").rows == 5
    topic.drop_consumer("mine")
    topic.write_many([b"z"] * 5)
    assert run(consumer="mine").rows == 5
    assert of_table(table) == of_log(topic)
    assert topic.consumers()[0].lag == 0


def test_a_lost_table_is_archived_anew(store, run, table, tmp_path):
    topic = store.create_topic("orders")
    topic.write_many([b"x"] * 10)
    run()
    table.rename(tmp_path / "moved")
    assert run().rows == 10
    assert of_table(table) == of_log(topic)


# Retention.


def aged(tmp_path, run, **options):
    """A topic whose first half is archived, and whose second half is older than its retention."""
    clock = Clock()
    store = penstock.open(tmp_path / "data", clock=clock)
    topic = store.create_topic("orders", retention="1h", segment_bytes="4KiB")
    topic.write_many([b"x" * 500] * 20)
    run(**options)
    for _ in range(20):
        topic.write(b"y" * 500)
    clock.advance("2h")
    topic.write(b"new")
    return store, topic


def test_retention_waits_for_an_important_archive(tmp_path, run, table):
    store, topic = aged(tmp_path, run, important=True)
    with store:
        topic.vacuum()
        assert run().rows == 21
        assert [row["offset"] for row in of_table(table)] == list(range(41))
        topic.vacuum()
        assert topic.stats().messages < 41


def test_what_retention_took_first_is_an_error_or_a_gap_that_was_asked_for(tmp_path, run, table):
    store, topic = aged(tmp_path, run)
    with store:
        topic.vacuum()
        left = [row["offset"] for row in of_log(topic)]
        assert left[0] > 20
        with pytest.raises(penstock.OffsetTrimmed, match=r"on_gap"):
            run()
        assert [row["offset"] for row in of_table(table)] == list(range(20))
        run(on_gap="skip")
        assert [row["offset"] for row in of_table(table)] == [*range(20), *left]
        assert run().rows == 0


@pytest.mark.parametrize("important", [True, False])
def test_retention_during_a_run(tmp_path, run, table, monkeypatch, important):
    """Between planning and reading: an important archive is waited for, another one is told what is gone."""
    store, topic = aged(tmp_path, run, important=important)
    inner = executors.spread

    def late(spark, function, work):
        topic.vacuum()
        for left in os.listdir(inside(topic).log(0).folder.path):
            if left.endswith(".deleted"):  # as a minute later
                os.unlink(os.path.join(inside(topic).log(0).folder.path, left))
        return inner(spark, function, work)

    monkeypatch.setattr(executors, "spread", late)
    with store:
        if important:
            assert run().rows == 21
        else:
            with pytest.raises(penstock.OffsetTrimmed, match="retention removed"):
                run()
            assert [row["offset"] for row in of_table(table)] == list(range(20))
            run(on_gap="skip")
        assert {row["offset"] for row in of_log(topic)} <= {row["offset"] for row in of_table(table)}
        check_files(table)


# One at a time.


def test_a_second_archive_into_the_same_table_is_refused_whatever_its_name(store, run):
    store.create_topic("orders").write(b"x")
    entered, leave = threading.Event(), threading.Event()

    @contextmanager
    def held(_):
        entered.set()
        leave.wait(60)
        yield

    first = threading.Thread(target=run, kwargs={"watch": held})
    first.start()
    try:
        assert entered.wait(60)
        with pytest.raises(penstock.PipelineRunning, match=f"process {os.getpid()}"):
            run()
        with pytest.raises(penstock.ConflictError, match=f"being archived into .* {os.getpid()}"):
            run(name="another", consumer="another")
    finally:
        leave.set()
        first.join()
    run(name="another", consumer="another")


def test_a_name_stands_for_one_table(store, run, tmp_path):
    store.create_topic("orders").write(b"x")
    run(name="nightly")
    with pytest.raises(penstock.PipelineChanged, match="table"):
        run(name="nightly", into=tmp_path / "elsewhere")


def test_someone_who_archives_behind_our_back_is_noticed(store, run, table, monkeypatch):
    topic = store.create_topic("orders")
    topic.write_many([b"x"] * 10)
    inner = module._Loop._spread

    def slow(self, function, work):
        made = inner(self, function, work)
        if not self.__dict__.setdefault("overtaken", False):
            self.overtaken = True
            other = open_archive(storage(table))
            again = inner(self, function, work)
            other.append(again, {0: module.ArchivedSpan(0, 10)})
        return made

    monkeypatch.setattr(module._Loop, "_spread", slow)
    with pytest.raises(penstock.ConflictError, match="same moment"):
        run()
    monkeypatch.undo()
    assert of_table(table) == of_log(topic)


# What may go wrong.


def test_unknown_topic_and_store_are_told(store, run, tmp_path):
    with pytest.raises(penstock.UnknownTopic):
        run("nothing")
    with pytest.raises(penstock.NotAStore):
        module.archive(tmp_path / "none", "orders", tmp_path / "t")


def test_a_table_of_a_topic_that_was_dropped_is_refused(store, run):
    store.create_topic("orders").write(b"x")
    run()
    store.drop_topic("orders")
    store.create_topic("orders").write(b"y")
    with pytest.raises(penstock.ForeignArchive, match="an earlier one of that name"):
        run()


def test_an_unwritable_table_is_told_and_kept_with_the_pipeline(store, run, tmp_path):
    store.create_topic("orders").write(b"x")
    (tmp_path / "file").write_text("")
    with pytest.raises(penstock.ReadOnly, match="cannot be written to"):
        run(into=tmp_path / "file" / "t")
    (kept,) = store.pipelines()
    assert kept.state == "failed"
    assert "cannot be written to" in (kept.run.error or "")


def test_a_failing_task_leaves_no_files(store, run, table):
    topic = store.create_topic("orders", partitions=2)
    for number in (0, 1):
        topic.write_many([b"x" * 50] * 20, partition=number)
    damage(inside(topic).log(1))
    with pytest.raises(penstock.Corrupt, match="damaged"):
        run()
    assert list(table.glob("*/*.parquet")) == []
    assert of_table(table) == []


def damage(log, byte: int | None = None) -> None:
    """Change bytes of the last frame, or at a place of the last segment."""
    bounds = log.bounds()
    with open(log.folder.segment_path(bounds.segment), "r+b") as file:
        file.seek(bounds.byte - 40 if byte is None else byte)
        file.write(b"\xff" * 8)


def test_damage_is_passed_over_when_that_is_asked_for_and_leaves_a_gap(store, run, table):
    topic = store.create_topic("orders")
    ends = []
    for n in range(6):
        topic.write_many([f"{n}-{m}" * 10 for m in range(10)])
        ends.append(inside(topic).log(0).bounds().byte)
    for frame in (1, 4):
        damage(inside(topic).log(0), ends[frame] - 40)
    with pytest.raises(penstock.Corrupt, match="on_gap"):
        run()
    assert of_table(table) == []
    summary = run(on_gap="skip")
    sound = [*range(10), *range(20, 40), *range(50, 60)]
    assert [row["offset"] for row in of_table(table)] == sound
    assert (summary.rows, summary.next) == (40, {0: 60})
    check_files(table)
    topic.write(b"more")
    assert run().rows == 1


def test_a_host_that_does_not_see_the_table_does_not_make_one(tmp_path):
    with pytest.raises(penstock.NotATable, match=r"does not see the table .*under the same path"):
        archive_tasks.check_seen(storage(tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "options", [{"file_size": 0}, {"file_size": "big"}, {"on_gap": "ignore"}, {"every": "soon"}]
)
def test_wrong_options_are_refused_before_anything_is_made(store, run, table, options):
    store.create_topic("orders").write(b"x")
    with pytest.raises(penstock.InvalidOption):
        run(**options)
    assert not table.exists()


# Following, compaction, and the pipeline.


def test_follow_goes_on_until_it_is_asked_to_end(store, run, table):
    topic = store.create_topic("orders")
    topic.write_many([b"x"] * 10)
    rounds = []

    @contextmanager
    def following(running):
        def reported(facts):
            rounds.append(facts.rows)
            if len(rounds) < 3:
                topic.write_many([b"y"] * 5)
            else:
                running.stop()

        running.on_report = reported
        yield

    summary = run(follow=True, every="0s", watch=following)
    assert (rounds, summary.rows, summary.batches) == ([10, 15, 20], 20, 3)
    assert of_table(table) == of_log(topic)
    assert store.pipeline("archive-orders-orders").state == "ended"


def test_small_files_are_put_together_in_order(store, run, table):
    topic = store.create_topic("orders", partitions=2)
    compacted = 0
    for n in range(14):
        topic.write_many([f"{n}-{m}" for m in range(20)], keys=[f"{m}" for m in range(20)])
        compacted += run().compacted
    assert compacted > 6
    assert len(open_archive(storage(table)).files()) < 20
    assert of_table(table) == of_log(topic)
    check_files(table)


def test_what_compaction_replaced_is_vacuumed_when_it_is_old(store, run, table):
    topic = store.create_topic("orders")
    for n in range(12):
        topic.write_many([f"{n}-{m}" for m in range(20)])
        run()
    assert len(list(table.glob("*/*.parquet"))) > len(open_archive(storage(table)).files())
    removed = open_archive(storage(table)).vacuum(0)
    assert removed
    assert of_table(table) == of_log(topic)


def test_a_pipeline_of_another_kind_keeps_its_name(store, run):
    store.create_topic("orders").write(b"x")
    with claim(store, "nightly", kind="rollup", identity={}):
        pass
    with pytest.raises(penstock.PipelineChanged, match="rollup"):
        run(name="nightly")
