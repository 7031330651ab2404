"""A topic copied into another: the same messages, in order, each once, however often it is run."""

from collections import defaultdict

import pytest

import penstock
from penstock.store.pipelines import PipelineRun, claim
from penstock.store.replay import is_open, plan_replay, replay
from penstock.testing import Clock

SECOND = 1_000_000_000


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path / "data") as opened:
        yield opened


def fill(topic, count=300, mark="v"):
    """Frames of every kind: many, single, packed, with a producer, tombstones."""
    topic.write_many(
        [f"{mark}{n}" for n in range(count)], keys=[f"k{n % 17}" for n in range(count)],
        timestamps=[1_700_000_000_000_000_001 + n for n in range(count)],
        headers=[{"n": str(n), "raw": b"\x00"} for n in range(count)],
    )  # fmt: skip
    for n in range(20):
        topic.write(None if n % 4 == 0 else f"{mark}single{n}", key=f"k{n}")
    with topic.writer(producer_id="shop", codec="gzip") as writer:
        for n in range(50):
            writer.write(f"{mark}packed{n}", key=f"k{n}")


def messages(topic, number=None):
    return [
        (m.partition, m.key, m.stored, m.value, dict(m.headers), m.timestamp, m.codec)
        for m in topic.scan(partition=number).messages()
    ]


def by_key(topic):
    found = defaultdict(list)
    for message in messages(topic):
        found[message[1]].append(message[2:])
    return found


def test_partitions_of_equal_number_are_copied_one_to_one(store):
    source, sink = store.create_topic("a", partitions=3), store.create_topic("b", partitions=3)
    fill(source)
    done = replay(store, "a", "b")
    assert messages(sink) == messages(source)
    assert (done.messages, done.left) == (370, 0)
    assert all(m.producer_id is None and m.seqno is None for m in sink.scan().messages())
    assert store.pipeline("replay-a").state == "ended"
    assert store.pipeline("replay-a").lag == 0


def test_otherwise_keys_choose_and_keep_their_order(store):
    source, sink = store.create_topic("a", partitions=2), store.create_topic("b", partitions=5)
    fill(source)
    replay(store, "a", "b")
    assert by_key(sink) == by_key(source)
    other = store.create_topic("c", partitions=5)
    for message in source.scan().messages():
        other.write(b"x", key=message.key)
    where = {m.key: m.partition for m in other.scan().messages()}
    assert {m.key: m.partition for m in sink.scan().messages()} == where


def test_run_again_it_copies_what_is_new(store):
    source, sink = store.create_topic("a", partitions=2), store.create_topic("b", partitions=2)
    fill(source)
    assert replay(store, "a", "b").messages == 370
    assert replay(store, "a", "b").messages == 0
    fill(source, mark="w")
    assert replay(store, "a", "b").messages == 370
    assert messages(sink) == messages(source)


def test_dropped_it_begins_anew_although_its_consumer_stayed(store):
    source, sink = store.create_topic("a"), store.create_topic("b")
    fill(source)
    replay(store, "a", "b")
    store.drop_pipeline("replay-a")
    assert replay(store, "a", "b").messages == 370
    assert [m[1:] for m in messages(sink)] == 2 * [m[1:] for m in messages(source)]


def test_sealed_repacked_segments_and_many_steps(store, monkeypatch):
    monkeypatch.setattr("penstock.store.replay._STEP_BYTES", 30_000)
    monkeypatch.setattr("penstock.store.replay._READ_BYTES", 10_000)
    source, sink = store.create_topic("a", segment_bytes="16KiB"), store.create_topic("b")
    for n in range(30):
        fill(source, 100, mark=str(n))
    store.flush_housekeeping()
    source.write(b"last")
    replay(store, "a", "b")
    assert messages(sink) == messages(source)
    assert store.pipeline("replay-a").run.batches > 5


def test_ranges_by_offset_and_by_time(tmp_path):
    clock = Clock(1_700_000_000 * SECOND)
    with penstock.open(tmp_path / "data", clock=clock) as store:
        source = store.create_topic("a", partitions=2)
        for n in range(60):
            source.write_many([f"{n}-0", f"{n}-1"], partition=n % 2)
            clock.advance(60)
        ranges = {
            "offsets": ({0: 7, 1: 50}, {0: 31}),
            "times": ("50m", "10m"),
            "nothing": ("latest", "latest"),
        }
        for name, (start, stop) in ranges.items():
            sink = store.create_topic(name, partitions=2)
            plan = plan_replay(store, "a", name, start=start, stop=stop)
            assert sink.stats().messages == 0
            done = replay(store, "a", name, start=start, stop=stop, name=name)
            copied = [m.value for m in sink.scan().messages()]
            wanted = [
                m.value
                for each in plan.partitions
                for m in source.read(partition=each.partition, start=each.start, stop=each.stop)
            ]
            assert copied == wanted
            assert done.messages == plan.messages == len(wanted)
            assert bool(plan.bytes) == bool(wanted)
        assert len(store.topic("offsets").read()) == 24 + 10
        assert len(store.topic("times").read()) == 80


def test_added_partitions_come_behind_those_their_keys_came_from(store):
    assert is_open(2, {0: 5, 1: 9}, {0: 5, 1: 100}, {2: {0: 10, 1: 9}})
    assert not is_open(2, {0: 4, 1: 9}, {0: 5, 1: 100}, {2: {0: 10, 1: 9}})
    source = store.create_topic("a")
    sink = store.create_topic("b", partitions=2)
    source.write_many([f"old{n}" for n in range(100)], keys=[f"k{n}" for n in range(100)])
    source.alter(partitions=3)
    source.write_many([f"new{n}" for n in range(100)], keys=[f"k{n}" for n in range(100)])
    replay(store, "a", "b", rate=1e6)
    assert by_key(sink) == by_key(source)


def test_children_of_a_split_come_behind_their_parent(tmp_path):
    """S001-22; what was not copied of a parent that is gone is told."""
    assert not is_open(4, {0: 4, 1: 9, 4: 0}, {0: 5, 1: 9, 4: 9}, {1: {0: 5}, 4: {1: 9}})
    clock, keys = Clock(), [f"k{n}" for n in range(100)]
    with penstock.open(tmp_path / "data", clock=clock) as store:
        source = store.create_topic("a", retention="1h", autopartitioning="paused")
        sink = store.create_topic("b", partitions=2)
        for turn, parent in enumerate((0, 1, 2)):
            source.write_many([f"{turn}"] * len(keys), keys=keys)
            source.split(parent)
        source.write_many(["3"] * len(keys), keys=keys)
        replay(store, "a", "b", rate=1e6)
        assert by_key(sink) == by_key(source)
        assert {tuple(each[0] for each in found) for found in by_key(sink).values()} == {
            (b"0", b"1", b"2", b"3")
        }
        clock.advance("2h")
        assert source.vacuum().removed == (0, 1, 2)
        source.write_many(["4"] * len(keys), keys=keys)
        assert replay(store, "a", "b", rate=1e6).messages == len(keys)
        source.split(3)
        source.write_many(["5"] * len(keys), keys=keys)
        source.split(source.partitions()[-1].partition)
        clock.advance("2h")
        source.vacuum()
        with pytest.raises(penstock.OffsetTrimmed, match="and so is the partition"):
            replay(store, "a", "b", rate=1e6)


def test_a_rate_and_a_speed_lose_nothing(store):
    source = store.create_topic("a", partitions=2)
    fill(source)
    for name, pace in {"rate": {"rate": 5000.0}, "speed": {"speed": 1e6}}.items():
        sink = store.create_topic(name, partitions=2)
        assert replay(store, "a", name, name=name, **pace).messages == 370
        assert messages(sink) == messages(source)


def test_a_run_that_is_stopped_goes_on_later(store):
    source, sink = store.create_topic("a"), store.create_topic("b")
    fill(source)

    class StopAtOnce:
        def __init__(self, run: PipelineRun) -> None:
            run.on_report = lambda facts: run.stop()

        def __enter__(self): ...
        def __exit__(self, *error): ...

    first = replay(store, "a", "b", rate=2000.0, watch=StopAtOnce)
    assert 0 < first.messages < 370
    assert first.messages + first.left == 370
    second = replay(store, "a", "b")
    assert first.messages + second.messages == 370
    assert messages(sink) == messages(source)


def test_what_cannot_be_is_refused_before_anything_is_copied(store):
    source = store.create_topic("a", partitions=2)
    store.create_topic("b")
    store.create_topic("small", max_message_bytes=4)
    store.create_topic("packed", codecs=["zstd"])
    source.write(b"0123456789", key="k")
    for wrong, options in (
        ("into itself", {"sink": "a"}),
        ("no topic 'c'", {"sink": "c"}),
        ("rate or a speed", {"sink": "b", "rate": 1.0, "speed": 1.0}),
        ("rate=-1.0 is not above 0", {"sink": "b", "rate": -1.0}),
        ("not a place", {"sink": "b", "start": "yesterday"}),
        ("beyond the end", {"sink": "b", "start": 99}),
        ("over the limit of 4", {"sink": "small"}),
        ("does not allow codec raw", {"sink": "packed", "name": "other"}),
    ):
        with pytest.raises(penstock.PenstockError, match=wrong):
            replay(store, "a", **options)
    assert [topic.stats().messages for topic in store.topics()] == [1, 0, 0, 0]
    assert {each.name for each in store.pipelines()} == {"replay-a", "other"}
    with pytest.raises(penstock.PipelineChanged, match="sink 'small', not 'b'"):
        replay(store, "a", "b")


def test_codecs_that_the_sink_allows_are_copied_as_they_are(store):
    source, sink = store.create_topic("a"), store.create_topic("b", codecs=["gzip"])
    with source.writer(codec="gzip") as writer:
        writer.write(b"x" * 100)
    replay(store, "a", "b")
    assert messages(sink) == messages(source)


def test_a_name_is_run_once_at_a_time(store):
    store.create_topic("a"), store.create_topic("b")
    with claim(store, "replay-a", kind="replay", identity={}):
        with pytest.raises(penstock.PipelineRunning):
            replay(store, "a", "b")


def test_what_retention_took_first_is_said(tmp_path):
    clock = Clock(1_700_000_000 * SECOND)
    with penstock.open(tmp_path / "data", clock=clock) as store:
        source = store.create_topic("a", retention="1h", segment_bytes="16KiB")
        store.create_topic("b")
        source.write_many([b"x" * 1000] * 30)
        replay(store, "a", "b", stop=5)
        clock.advance(7200)
        source.write_many([b"y" * 1000] * 30)
        source.vacuum()
        with pytest.raises(penstock.OffsetTrimmed, match="offset 5 of 'a' partition 0 is gone"):
            replay(store, "a", "b")
        with pytest.raises(penstock.OffsetTrimmed, match="offset 5 of 'a' partition 0 is gone"):
            replay(store, "a", "b", start=5, name="again")
