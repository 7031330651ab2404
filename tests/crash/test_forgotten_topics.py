"""A topic that `state.db` forgot is damage, not rubbish: its folder stays, is named, can be taken back."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

import penstock
from tests.kit.stores import StoreVerifier, apply_repair, plan_repair
from tests.kit.topics import inside


def filled(path, partitions=2, **options):
    with penstock.open(path) as store:
        topic = store.create_topic("orders", partitions=partitions, retention="9d", **options)
        topic.write_many([b"order %d" % i for i in range(100)], keys=[b"k%d" % i for i in range(100)])
        store.create_topic("other").write(b"x")
        topic.add_consumer("billing")
        return inside(topic).record.id, store.id


def forget(path, sql="DELETE FROM topics WHERE name = 'orders'"):
    """What a flipped bit in the WAL, or a WAL that was lost, does to the table."""
    with sqlite3.connect(os.path.join(path, "state.db")) as connection:
        connection.execute(sql)
    connection.close()


def values(path):
    with penstock.open(path) as store, store.topic("orders").reader(follow=False) as reader:
        return sorted(int(message.value.split()[1]) for message in reader)


def damage(path):
    return [finding for finding in StoreVerifier(path).findings() if finding.severity == "damage"]


def repair(path):
    plan = plan_repair(path)
    apply_repair(plan)
    return plan


def test_opening_a_store_keeps_the_folder_of_a_forgotten_topic(tmp_path):
    filled(tmp_path)
    forget(tmp_path)
    for _ in range(2):
        with penstock.open(tmp_path) as store:
            assert [topic.name for topic in store.topics()] == ["other"]
            assert any("orders" in each for each in store.check_state())
    (found,) = damage(tmp_path)
    assert found.path.endswith(os.path.join("topics", "orders"))
    assert "penstock repair" in found.what


def test_a_new_topic_does_not_take_the_place_of_a_forgotten_one(tmp_path):
    filled(tmp_path)
    forget(tmp_path)
    with penstock.open(tmp_path) as store:
        with pytest.raises(penstock.errors.ForgottenTopic, match=r"state\.db does not know") as raised:
            store.create_topic("orders")
        assert "penstock repair" in raised.value.hint
        assert [topic.name for topic in store.topics()] == ["other"]


def test_repair_takes_a_forgotten_topic_back_with_its_id_options_and_messages(tmp_path):
    topic_id, _ = filled(tmp_path)
    forget(tmp_path)
    (step,) = repair(tmp_path).steps
    assert "positions of its consumers" in step.lost
    with penstock.open(tmp_path) as store:
        topic = store.topic("orders")
        assert inside(topic).record.id == topic_id
        assert (topic.options.partitions, topic.options.retention_s) == (2, 9 * 86400)
        assert store.check_state() == []
    assert values(tmp_path) == list(range(100))
    assert damage(tmp_path) == []
    assert plan_repair(tmp_path).steps == ()


def test_planning_changes_nothing(tmp_path):
    filled(tmp_path)
    forget(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    plan_repair(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("how", ["missing", "garbage", "empty"])
def test_a_lost_state_db_is_rebuilt_as_the_same_store(tmp_path, how):
    topic_id, store_id = filled(tmp_path)
    path = tmp_path / "state.db"
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(os.urandom(8192) if how == "garbage" else b"\0" * 4096)
    plan = repair(tmp_path)
    assert plan.rebuild
    assert "positions of consumers" in plan.steps[0].lost
    kept = [each for each in tmp_path.iterdir() if ".damaged-" in each.name]
    assert bool(kept) == (how != "missing")
    with penstock.open(tmp_path) as store:
        assert store.id == store_id
        assert inside(store.topic("orders")).record.id == topic_id
        assert store.topic("orders").options.retention_s == 9 * 86400
    assert values(tmp_path) == list(range(100))
    assert damage(tmp_path) == []


def test_a_lost_id_of_the_store_is_said_and_found_again(tmp_path):
    _, store_id = filled(tmp_path)
    forget(tmp_path, "DELETE FROM meta WHERE name = 'store_id'")
    (found,) = damage(tmp_path)
    assert "penstock repair" in found.what
    with penstock.open(tmp_path) as store, pytest.raises(penstock.DataError, match="lost the store's id"):
        store.topic("orders")
    (step,) = repair(tmp_path).steps
    assert step.lost == ""
    with penstock.open(tmp_path) as store:
        assert store.id == store_id
        assert [consumer.consumer for consumer in store.topic("orders").consumers()] == ["billing"]
    assert values(tmp_path) == list(range(100))
    assert damage(tmp_path) == []


def test_partitions_that_state_db_forgot_come_back(tmp_path):
    filled(tmp_path, partitions=1)
    shutil.copy(tmp_path / "state.db", tmp_path / "before")
    with penstock.open(tmp_path) as store:
        store.topic("orders").alter(partitions=3)
        store.topic("orders").write_many(
            [b"order %d" % i for i in range(100, 160)], keys=[b"%d" % i for i in range(60)]
        )
    os.replace(tmp_path / "before", tmp_path / "state.db")
    (step,) = repair(tmp_path).steps
    assert "partitions that were added" in step.what
    assert values(tmp_path) == list(range(160))


def test_options_that_cannot_be_understood_are_an_error_of_ours_and_repaired(tmp_path):
    filled(tmp_path)
    forget(tmp_path, "UPDATE topics SET options = replace(options, '{', '[') WHERE name = 'orders'")
    with (
        penstock.open(tmp_path) as store,
        pytest.raises(penstock.errors.DataError, match="cannot be understood"),
    ):
        store.topic("orders")
    repair(tmp_path)
    assert values(tmp_path) == list(range(100))


def test_a_folder_of_an_older_version_without_identity_is_taken_back_by_its_segments(tmp_path):
    topic_id, _ = filled(tmp_path)
    forget(tmp_path)
    (tmp_path / "topics" / "orders" / "topic.json").unlink()
    (step,) = repair(tmp_path).steps
    assert "its options" in step.lost
    with penstock.open(tmp_path) as store:
        assert inside(store.topic("orders")).record.id == topic_id
    assert values(tmp_path) == list(range(100))


def test_a_damaged_identity_is_not_trusted_and_written_anew(tmp_path):
    filled(tmp_path)
    path = tmp_path / "topics" / "orders" / "topic.json"
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b'"partitions":2', b'"partitions":7'))
    with penstock.open(tmp_path) as store:
        assert store.topic("orders").options.partitions == 2
    assert path.read_bytes() == sound


def test_an_older_store_gets_identities_when_its_topics_are_opened(tmp_path):
    filled(tmp_path)
    path = tmp_path / "topics" / "orders" / "topic.json"
    path.unlink()
    with penstock.open(tmp_path, read_only=True) as store:
        store.topic("orders")
        assert not path.exists()
    with penstock.open(tmp_path) as store:
        store.topic("orders")
    assert json.loads(path.read_bytes().splitlines()[0])["name"] == "orders"


def test_a_drop_whose_process_died_before_the_folder_went_is_finished(tmp_path):
    """The mark is in the folder before the row goes; a row that is still there wins over the mark."""
    filled(tmp_path)
    (tmp_path / "topics" / "orders" / "dropped").write_bytes(b"1\n")
    with penstock.open(tmp_path) as store:
        assert store.topic("orders").stats().messages == 100
    assert not (tmp_path / "topics" / "orders" / "dropped").exists()
    (tmp_path / "topics" / "orders" / "dropped").write_bytes(b"1\n")
    forget(tmp_path)
    assert damage(tmp_path) == []
    penstock.open(tmp_path).close()
    assert os.listdir(tmp_path / "topics") == ["other"]


def test_many_processes_may_open_a_topic_at_once(tmp_path):
    """Each sees that the identity is there, and none is in another's way."""
    filled(tmp_path)
    path = tmp_path / "topics" / "orders" / "topic.json"
    program = (
        "import sys, penstock\nsys.stdin.read(1)\nwith penstock.open(sys.argv[1]) as s: s.topic('orders')"
    )
    for _ in range(3):
        path.unlink()
        openers = [
            subprocess.Popen(
                [sys.executable, "-W", "error", "-c", program, str(tmp_path)],
                stdin=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for _ in range(4)
        ]  # fmt: skip
        for opener in openers:
            opener.stdin.write(b"x")
            opener.stdin.flush()
        assert [opener.communicate()[1] for opener in openers] == [b""] * 4
        assert [each for each in os.listdir(path.parent) if "tmp" in each] == []
        assert path.exists()


def test_repair_refuses_while_another_process_has_the_store(tmp_path):
    filled(tmp_path)
    forget(tmp_path)
    plan = plan_repair(tmp_path)
    with (
        penstock.open(tmp_path),
        pytest.raises(penstock.errors.OwnedElsewhere, match="open in another process"),
    ):
        apply_repair(plan)
    apply_repair(plan)
    assert values(tmp_path) == list(range(100))


@pytest.mark.parametrize("identity", ["kept", "older", "gone"])
def test_the_logs_alone_tell_which_partitions_were_split(tmp_path, identity):
    """Rows are rebuilt from births and seals, and no key moves (U09)."""
    path = tmp_path / "store"
    told = path / "topics" / "orders" / "topic.json"
    keys = [b"k%d" % i for i in range(100)]
    with penstock.open(path) as store:
        topic = store.create_topic("orders", autopartitioning="paused")
        topic.write_many([b"1"] * 100, keys=keys)
        older = told.read_bytes()
        topic.split(0)
        topic.split(2, at=3 << 30)
        topic.alter(partitions=4)
        topic.write_many([b"2"] * 100, keys=keys)
        tree = inside(topic).tree
        places = [receipt.partition for receipt in topic.write_many([b"3"] * 100, keys=keys)]
    (path / "state.db").unlink()
    if identity == "older":
        told.write_bytes(older)
    elif identity == "gone":
        told.unlink()
    apply_repair(plan_repair(path))
    with penstock.open(path) as store:
        topic = store.topic("orders")
        assert inside(topic).tree == tree
        assert [receipt.partition for receipt in topic.write_many([b"4"] * 100, keys=keys)] == places
        with topic.reader(follow=False) as reader:
            found = {}
            for message in reader:
                found.setdefault(message.key, []).append(message.value)
        assert found == {key: [b"1", b"2", b"3", b"4"] for key in keys}
