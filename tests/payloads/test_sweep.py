"""The sweep in one process: it finds exactly what is there, and deletes only what nobody refers to."""

import json
import threading
import time
from datetime import UTC, datetime

import pytest

import penstock
from penstock import Payloads
from penstock.spark.pipelines.sweep import sweep
from penstock.testing import Clock
from tests.e2e.command import Command
from tests.kit import fork_server
from tests.kit.bodies import open_bodies
from tests.kit.system import CommandClock
from tests.payloads.kit import KIB, body, objects, referred, values
from tests.payloads.sweep_scene import (
    age,
    age_unfinished,
    bodies_of,
    check_found,
    check_kept,
    orphan_body,
    scene,
)


@pytest.fixture
def address(place):
    return place if place.startswith("s3://") else "files"


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path / "penstock-data", clock=CommandClock()) as opened:
        yield opened


def killed(store: str, moment: str, module: str = "killed_process") -> None:
    """Run a process that kills itself at that moment."""
    done = fork_server.run(["-m", f"tests.payloads.{module}", str(store), moment])
    assert done.returncode == -9, done.stderr.decode()


def test_it_tells_first_and_deletes_when_asked(store, address):
    there = scene(store, address)
    grace = "24h" if address == "files" else "0s"
    before = objects(there.topic)
    told = sweep(store, "images", grace=grace, engine="python")
    check_found(there, told)
    assert (told.applied, told.deleted) == (False, 0)
    assert objects(there.topic) == before
    done = sweep(store, "images", grace=grace, engine="python", apply=True)
    check_found(there, done)
    assert (done.applied, done.deleted, done.deleted_bytes) == (True, 3, 9 * KIB)
    check_kept(there)
    again = sweep(store, "images", grace=grace, engine="python", apply=True)
    assert (again.orphans, again.deleted, again.losses) == (0, 0, 1)
    assert store.pipeline("sweep-images").state == "ended"


def test_shares_hold_each_body_once(place):
    bodies = open_bodies(place)
    assert [each for share in bodies.shares() for each in bodies.list_share(share)] == []
    names = ["top", "a/b", "a/c/d", "b/%=x", "y" * 900, "a/" + "z" * 900]
    for name in names:
        bodies.put(name, b"12345")
    found = [each for share in bodies.shares() for each in bodies.list_share(share)]
    assert sorted(each.name for each in found) == sorted(names)
    assert sorted(found, key=str) == sorted(bodies.list(), key=str)
    assert len(bodies.shares()) == 4  # the top, a, b, and long names


def test_what_is_young_is_left_alone_wherever_it_lies(store, address):
    topic = store.create_topic("images", payloads=Payloads(place=address, above="1KiB"))
    name = orphan_body(topic)
    found = sweep(store, "images", engine="python", apply=True)
    assert (found.orphans, found.young, found.deleted) == (0, 1, 0)
    assert objects(topic) == [name]


def test_bodies_of_other_topics_stay(store, address):
    topics = [
        store.create_topic(name, payloads=Payloads(place=address, above="1KiB"))
        for name in ("images", "films")
    ]
    alone = [orphan_body(topic) for topic in topics]
    if address == "files":
        age(topics[0], alone[:1])
        age(topics[1], alone[1:])
    done = sweep(store, "images", grace="24h" if address == "files" else "0s", engine="python", apply=True)
    assert done.deleted == 1
    assert [objects(topic) for topic in topics] == [[], alone[1:]]


def test_earlier_places_are_swept_too(store, s3):
    topic = store.create_topic("images", payloads=Payloads(above="1KiB"))
    topic.write(body(2 * KIB))
    old = orphan_body(topic)
    age(topic, objects(topic))
    topic.alter(payloads=Payloads(place=s3.table("bodies"), above="1KiB"))
    topic.write(body(2 * KIB))
    new = orphan_body(topic)
    done = sweep(store, "images", engine="python", apply=True)
    assert [each.name for each in done.findings] == [old]
    assert (done.deleted, done.young) == (1, 1)
    assert new in objects(topic)
    assert [len(value) for value in values(topic)] == [2 * KIB] * 2


# Processes that are killed.


@pytest.mark.parametrize("moment", ["body_before_message", "bodies_before_commit", "half_a_body"])
def test_killed_between_body_and_message(tmp_path, moment):
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        topic = store.create_topic("images", payloads="files")
        topic.write(body(100 * KIB))
    killed(tmp_path / "data", moment)
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        topic = store.topic("images")
        young = sweep(store, "images", engine="python", apply=True)
        assert (young.orphans, young.unfinished, young.deleted) == (0, 0, 0)  # it may be under way
        age(topic, objects(topic))
        age_unfinished(topic)
        done = sweep(store, "images", engine="python", apply=True)
        is_half = moment == "half_a_body"
        assert (done.orphans, done.unfinished, done.deleted) == (not is_half, is_half, 1)
        assert done.losses == 0
        assert set(objects(topic)) == referred(topic)
        assert list(bodies_of(topic).unfinished()) == []
        assert len(values(topic)) == 1


@pytest.mark.parametrize("moment", ["messages_before_bodies", "some_bodies_deleted"])
def test_killed_between_messages_and_bodies(tmp_path, moment):
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        topic = store.create_topic("images", payloads=Payloads(pack=0), retention="1d")
        topic.write_many([body(100 * KIB) for _ in range(4)])
        topic.alter(retention="0s")
    killed(tmp_path / "data", moment)
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        topic = store.topic("images")
        topic.alter(retention="1d")
        topic.write(body(100 * KIB))
        left = set(objects(topic)) - referred(topic)
        assert len(left) >= 2
        age(topic, objects(topic))
        done = sweep(store, "images", engine="python", apply=True)
        assert (done.deleted, done.losses) == (len(left), 0)
        assert set(objects(topic)) == referred(topic)
        assert len(values(topic)) == 1


def test_a_sweep_that_is_killed_goes_on(tmp_path):
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        topic = store.create_topic("images", payloads=Payloads(above="1KiB"))
        topic.write_many([body(2 * KIB) for _ in range(3)])
        for _ in range(5):
            orphan_body(topic)
        age(topic, objects(topic))
    killed(tmp_path / "data", "some_deleted", "killed_sweep")
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        assert store.pipeline("sweep-images").state == "killed"
        topic = store.topic("images")
        left = set(objects(topic)) - referred(topic)
        assert len(left) == 3
        done = sweep(store, "images", engine="python", apply=True)
        assert (done.deleted, done.losses) == (3, 0)
        assert set(objects(topic)) == referred(topic)
        assert len(values(topic)) == 3


def test_an_upload_under_way_is_never_touched(store):
    """Writers and a transaction are at it while the sweep runs again and again, with everything else old."""
    topic = store.create_topic("images", payloads=Payloads(above="1KiB", pack=0))
    stop = threading.Event()
    written = []

    def write() -> None:
        while not stop.is_set():
            with store.transaction() as tx:
                tx.write("images", body(20 * KIB))
                time.sleep(0.01)
            topic.write(body(20 * KIB))
            written.append(2)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            done = sweep(store, "images", engine="python", apply=True, grace="1h")
            assert (done.deleted, done.losses) == (0, 0)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(values(topic)) == sum(written)
    assert set(objects(topic)) == referred(topic)


def test_what_the_lifetime_of_a_key_ended_keeps_its_body_until_it_goes(tmp_path):
    clock = Clock(datetime.now(UTC))
    with penstock.open(tmp_path / "data", clock=clock) as store:
        topic = store.create_topic(
            "images", index="key", key_retention={"a": "1h"}, retention="30d",
            payloads=Payloads(above="1KiB", pack=0),
        )  # fmt: skip
        for key in "abab":
            topic.write(body(2 * KIB), key=key)
        clock.advance("2h")
        assert len(values(topic)) == 2
        done = sweep(store, "images", grace="1h", engine="python", apply=True)
        assert (done.messages, done.orphans, done.losses) == (4, 0, 0)
        topic.alter(key_retention={})
        assert [len(value) for value in values(topic)] == [2 * KIB] * 4
        topic.alter(key_retention={"a": "1h"})
        clock.advance("31d")
        assert topic.vacuum().bodies == 4
        assert objects(topic) == []


# What it refuses, and how it is called.


def test_a_damaged_frame_ends_it_before_anything_goes(store, tmp_path):
    topic = store.create_topic("images", payloads=Payloads(above="1KiB", pack=0))
    for _ in range(3):
        topic.write(body(2 * KIB))
    age(topic, objects(topic))
    before = objects(topic)
    [segment] = (tmp_path / "penstock-data").rglob("0*.data")
    data = bytearray(segment.read_bytes())
    data[data.index(before[1].encode())] ^= 1
    segment.write_bytes(bytes(data))
    with penstock.open(store.path, clock=CommandClock()) as other:
        with pytest.raises(penstock.Corrupt):
            sweep(other, "images", engine="python", apply=True)
        assert other.pipeline("sweep-images").state == "failed"
    assert objects(topic) == before


def test_a_topic_without_bodies_and_bad_options_are_refused(store):
    store.create_topic("plain")
    with pytest.raises(penstock.InvalidOption, match="keeps no values outside"):
        sweep(store, "plain")
    store.create_topic("images", payloads="files")
    for options in ({"grace": "soon"}, {"grace": -1}, {"engine": "rust"}, {"most": -1}):
        with pytest.raises(penstock.InvalidOption):
            sweep(store, "images", **options)
    with pytest.raises(penstock.UnknownTopic):
        sweep(store, "none")


def test_the_command_tells_and_deletes(store, tmp_path):
    there = scene(store)
    command = Command(tmp_path)
    told = command.quick("pipeline", "sweep", "images")
    assert told.code == 3  # a message has lost its body
    for word in (*there.orphans, *there.loss[2:], there.partly_dead, "1:3"):
        assert word in told.out
    assert "--apply" in told.err
    done = command.quick("pipeline", "sweep", "images", "--apply", "--limit", "1", "--json")
    assert done.code == 3
    result = json.loads(done.out)["result"]
    assert (result["orphans"], result["deleted"], result["losses"], result["young"]) == (3, 3, 1, 1)
    assert [each["kind"] for each in result["findings"]] == ["orphan", "loss", "partly dead"]
    check_kept(there)
    assert command.quick("pipeline", "sweep", "none").code == 2


def test_the_command_of_streams(tmp_path):
    with penstock.open(tmp_path / "penstock-data", clock=CommandClock()) as store:
        stream = store.stream("stream")
        stream.publish("cats", body(100 * KIB))
        topic = store.topic("stream")
        alone = orphan_body(topic)
        age(topic, objects(topic))
    done = Command(tmp_path).quick_json("stream", "sweep", "--apply")
    assert (done["pipeline"], done["result"]["deleted"]) == ("sweep-stream", 1)
    assert [each["name"] for each in done["result"]["findings"]] == [alone]
