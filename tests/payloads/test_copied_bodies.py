"""Values outside the log are brought along by a copy, and stay with it when the source's own go."""

import pytest

import penstock
from penstock import Payloads
from penstock.spark.pipelines.compact import compact
from penstock.store.replay import replay
from tests.kit.bodies import copy_bodies_module as copy_bodies
from tests.kit.stores import replay_module
from tests.kit.topics import inside
from tests.payloads.kit import KIB, body, messages, objects, referred, values

#: Small ones share an object, large ones have one each.
SOURCE = Payloads(above=100, pack=4 * KIB)


@pytest.fixture
def source(store):
    topic = store.create_topic("a", payloads=SOURCE, retention="1h", segment_bytes=4096)
    topic.write_many(
        [body(300), b"small", None, body(5 * KIB), body(400), body(500)], keys=["a", "b", "c", "d", "e", "f"],
        headers=[{"n": str(n)} for n in range(6)],
    )  # fmt: skip
    with topic.writer(codec="gzip") as writer:
        writer.write(body(2 * KIB), key="packed")
    topic.write(body(200), key="a")
    return topic


def told(topic):
    """What a copy must have as the source has it."""
    return [(m.key, m.value, dict(m.headers), m.timestamp) for m in messages(topic)]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_replay_brings_bodies_to_where_the_sink_keeps_its_own(store, source, clock, partitions):
    sink = store.create_topic("b", payloads=Payloads(above=350, pack=4 * KIB), partitions=partitions)
    expected = told(source)
    done = replay(store, "a", "b")
    assert (done.messages, done.left) == (8, 0)
    assert done.bytes > 5 * KIB + 2 * KIB, "bodies count"
    assert sorted(told(sink)) == sorted(expected)
    assert [each.codec for each in messages(sink)].count("gzip") == [
        each.codec for each in messages(source)
    ].count("gzip")
    assert set(objects(sink)) == referred(sink)
    assert not referred(sink) & referred(source)
    clock.advance("2h")
    source.write(b"new")
    store.flush_housekeeping()
    source.delete_before("latest")
    assert objects(source) == []
    assert sorted(told(sink)) == sorted(expected), "the copy has its own"


def test_a_sink_without_payloads_takes_them_into_its_log(store, source):
    sink = store.create_topic("b")
    replay(store, "a", "b")
    assert told(sink) == told(source)
    assert referred(sink) == set()
    assert values(sink)[0] == values(source)[0]


def test_a_body_that_the_sink_does_not_take_is_refused_and_nothing_stays(store, source):
    tight = store.create_topic("tight", max_message_bytes=KIB)
    with pytest.raises(penstock.MessageTooLarge, match="payloads"):
        replay(store, "a", "tight")
    outside = store.create_topic("outside", payloads=Payloads(above=100, pack=0, max_body=KIB))
    with pytest.raises(penstock.MessageTooLarge, match="max_body"):
        replay(store, "a", "outside", name="second")
    picky = store.create_topic("picky", codecs=["raw"], payloads="files")
    with pytest.raises(penstock.InvalidOption, match="gzip"):
        replay(store, "a", "picky", name="third")
    for sink in (tight, outside, picky):
        assert (values(sink), objects(sink)) == ([], [])


def test_large_bodies_go_through_piece_by_piece_and_groups_stay_small(store, source, monkeypatch):
    monkeypatch.setattr(copy_bodies, "_FETCHED_BYTES", 450)
    monkeypatch.setattr(copy_bodies, "_GROUP_BYTES", 600)
    sink = store.create_topic("b", payloads=Payloads(above=50, pack=4 * KIB))
    replay(store, "a", "b")
    assert told(sink) == told(source)
    assert set(objects(sink)) == referred(sink)


def test_a_copy_that_is_not_committed_leaves_no_body(store, source, monkeypatch):
    sink = store.create_topic("b", payloads=SOURCE)
    monkeypatch.setattr(store._transactions, "commit", refuse)
    with pytest.raises(penstock.Unavailable):
        replay(store, "a", "b")
    assert (values(sink), objects(sink)) == ([], [])
    monkeypatch.undo()
    replay(store, "a", "b")
    assert told(sink) == told(source)
    assert set(objects(sink)) == referred(sink)


def refuse(*arguments, **options):
    raise penstock.Unavailable("not now", hint="later")


def test_bodies_fill_a_step(store, source, monkeypatch):
    monkeypatch.setattr(replay_module, "_STEP_BYTES", 1000)
    sink = store.create_topic("b", payloads=SOURCE)
    with monkeypatch.context() as patch:
        steps = []
        commit = store._transactions.commit
        patch.setattr(store._transactions, "commit", lambda *a, **o: (steps.append(1), commit(*a, **o))[1])
        replay(store, "a", "b")
    assert len(steps) > 1
    assert told(sink) == told(source)


def test_a_body_that_is_lost_is_said_and_the_replay_can_go_on(store, source):
    sink = store.create_topic("b", payloads=SOURCE)
    [place] = inside(source).bodies.stores().values()
    lost = next(m.reference.name for m in messages(source) if m.key == b"d")
    place.delete([lost])
    with pytest.raises(penstock.BodyMissing, match="copy into 'b'"):
        replay(store, "a", "b")
    assert (values(sink), objects(sink)) == ([], [])


def test_compact_brings_along_the_latest_of_each_key(store, source):
    sink = store.create_topic("b", payloads=SOURCE)
    done = compact(store, "a", "b", engine="python")
    latest = {m.key: m.value for m in messages(source)}
    assert {m.key: m.value for m in messages(sink)} == {k: v for k, v in latest.items() if v is not None}
    assert done.written == len(latest) - 1
    assert set(objects(sink)) == referred(sink)
