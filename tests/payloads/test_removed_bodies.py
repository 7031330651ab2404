"""Bodies go after their messages; what a process that was killed left is taken up by the next."""

import time

import pytest

import penstock
from penstock import Payloads, Reference
from tests.kit import fork_server
from tests.kit.bodies import GRACE_NS, FoundBody, losses, orphans, references_between, unpack
from tests.kit.system import NANOSECONDS, CommandClock
from tests.kit.topics import inside
from tests.payloads.kit import KIB, body, objects, referred, values

BODIES = [body(100 * KIB) for _ in range(4)]


@pytest.fixture
def address(place):
    return place if place.startswith("s3://") else "files"


def killed(store: str, moment: str) -> None:
    """Run a process that kills itself at that moment."""
    done = fork_server.run(["-m", "tests.payloads.killed_process", str(store), moment])
    assert done.returncode == -9, done.stderr.decode()


def test_bodies_go_with_their_messages(store, clock, address):
    topic = store.create_topic("images", payloads=Payloads(place=address, pack=0), retention="1h")
    topic.write_many(BODIES[:2])
    clock.advance(3000)
    topic.write_many([b"small", *BODIES[2:]])
    clock.advance(1000)
    report = topic.vacuum()
    assert (report.messages, report.bodies, report.bodies_left) == (2, 2, 0)
    assert values(topic) == [b"small", *BODIES[2:]]
    assert set(objects(topic)) == referred(topic)
    clock.advance(3600)
    assert topic.vacuum().bodies == 2
    assert objects(topic) == []
    assert topic.vacuum().bodies == 0


def test_a_pack_goes_with_the_last_of_its_messages(store, clock):
    """Where a batch's messages are trimmed one by one, by consumers that hold the rest."""
    topic = store.create_topic("images", payloads=Payloads(above="1KiB"), retention="1h")
    topic.add_consumer("slow", important=True)
    sent = [BODIES[0], b"between", BODIES[1], b"small", BODIES[2]]
    topic.write_many(sent)
    topic.write(BODIES[3])
    clock.advance(7200)
    gone = []
    for position in range(1, 7):
        topic.seek_consumer("slow", position)
        gone.append(topic.vacuum().bodies)
        assert values(topic) == [*sent, BODIES[3]][position:]
    assert gone == [0, 0, 0, 0, 1, 1]
    assert objects(topic) == []


def test_a_pack_whose_last_message_was_a_duplicate_goes_too(store, clock):
    topic = store.create_topic("images", payloads=Payloads(above="1KiB"), retention="1h", partitions=1)
    topic.add_consumer("slow", important=True)
    with topic.writer(producer_id="p", linger="10s") as writer:
        writer.write_many(BODIES[:2], seqnos=[1, 2])
    with topic.writer(producer_id="p", linger="10s") as writer:
        writer.write_many(BODIES[:3], seqnos=[1, 2, 3])  # of this pack, only the last is stored
    assert len(objects(topic)) == 2
    clock.advance(7200)
    gone = []
    for position in (1, 2, 3):
        topic.seek_consumer("slow", position)
        gone.append(topic.vacuum().bodies)
    assert gone == [0, 1, 1]
    assert objects(topic) == []


def test_repacked_segments_keep_their_references(store, clock):
    topic = store.create_topic(
        "images", payloads=Payloads(above="1KiB"), segment_bytes="4KiB", retention="1h"
    )
    for number in range(60):
        topic.write(BODIES[number % 4] if number % 2 else b"x" * 100, headers={"n": str(number)})
    topic.vacuum()
    assert topic.stats().partitions[0].segments > 1
    assert values(topic) == [BODIES[n % 4] if n % 2 else b"x" * 100 for n in range(60)]
    assert set(objects(topic)) == referred(topic)
    clock.advance(7200)
    assert topic.vacuum().bodies == 30
    assert objects(topic) == []


def test_dropping_a_topic_deletes_its_bodies_and_no_others(store, address):
    topic = store.create_topic("images", payloads=address)
    other = store.create_topic("other", payloads=address)
    for each in (topic, other):
        each.write_many(BODIES)
        each.write(b"x", name="y" * 900)
    gone = inside(topic).bodies._present()
    store.drop_topic("images")
    assert list(gone.list()) == []
    assert values(other) == [*BODIES, b"x"]


# Processes that are killed.


@pytest.mark.parametrize("moment", ["body_before_message", "bodies_before_commit", "half_a_body"])
def test_killed_between_body_and_message(tmp_path, moment):
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        topic = store.create_topic("images", payloads="files")
        topic.write(BODIES[0])
    killed(tmp_path / "data", moment)
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        topic = store.topic("images")
        assert values(topic) == [BODIES[0]]
        topic.write(BODIES[1])
        assert values(topic) == BODIES[:2]
        [bodies] = inside(topic).bodies.stores().values()
        found = list(bodies.list())
        later = time.time_ns() + GRACE_NS + 60 * NANOSECONDS
        lost = {each.name for each in orphans(found, referred(topic), later)}
        assert lost == {each.name for each in found} - referred(topic)
        assert len(lost) == (0 if moment == "half_a_body" else 1)
        assert list(orphans(found, referred(topic), time.time_ns())) == []  # it may be an upload under way


@pytest.mark.parametrize(
    "moment",
    ["list_before_trim", "messages_before_bodies", "some_bodies_deleted", "bodies_deleted_list_left"],
)
def test_killed_between_messages_and_bodies(tmp_path, moment):
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        topic = store.create_topic("images", payloads=Payloads(pack=0), retention="1d")
        topic.write_many(BODIES)
        topic.alter(retention="0s")
    killed(tmp_path / "data", moment)
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        topic = store.topic("images")
        is_trimmed = moment != "list_before_trim"
        topic.alter(retention="1h")  # or they would not be shown
        assert values(topic) == ([] if is_trimmed else BODIES)  # with all their bodies, or gone
        topic.write(BODIES[0])
        report = topic.vacuum()
        if is_trimmed:
            assert report.messages == 0
            left = {
                "messages_before_bodies": {4},
                "some_bodies_deleted": {2, 3},
                "bodies_deleted_list_left": {0},
            }
            assert report.bodies in left[moment]
            assert objects(topic) == list(referred(topic))
            assert values(topic) == [BODIES[0]]
        else:
            assert values(topic) == [*BODIES, BODIES[0]]
            assert set(objects(topic)) == referred(topic)


def test_killed_between_topic_and_bodies(tmp_path):
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        store.create_topic("images", payloads="files").write(BODIES[0])
    killed(tmp_path / "data", "topic_before_bodies")
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        assert store.topics() == []
        thread = store._dropped_bodies.resume(store._catalogue.is_gone)
        if thread is not None:
            thread.join(60)
        left = [path for path in (tmp_path / "data" / "payloads").rglob("*") if path.is_file()]
        assert left == []


# Orphans and losses.


def test_orphans_are_old_and_unknown():
    found = [FoundBody("a", 1, 0), FoundBody("b", 1, 0), FoundBody("c", 1, 100)]
    assert [each.name for each in orphans(found, {"a"}, GRACE_NS + 50)] == ["b"]
    assert [each.name for each in orphans(found, {"a"}, 101, grace_ns=0)] == ["b", "c"]


def test_losses_are_missing_or_short():
    def reference(name, start, size, place=1):
        return Reference(place, name, start, size, bytes(32))

    asked = [
        ("there", reference("a", 0, 10)),
        ("short", reference("a", 5, 10)),
        ("missing", reference("b", 0, 1)),
        ("elsewhere", reference("a", 0, 1, place=2)),
    ]
    assert [who for who, _ in losses(asked, {1: {"a": 10}})] == ["short", "missing", "elsewhere"]


def test_references_of_a_range(store):
    topic = store.create_topic("images", payloads=Payloads(above="1KiB"))
    topic.write_many([BODIES[0], b"x", None, BODIES[1]])
    topic.write(BODIES[2])
    log = inside(topic).log(0)
    assert [each.offset for each in references_between(log, 0, 5)] == [0, 3, 4]
    assert [each.offset for each in references_between(log, 1, 4)] == [3]
    first = next(iter(references_between(log, 0, 1))).reference
    assert unpack(first.packed()) == first == topic.get(0).reference
