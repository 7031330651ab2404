"""A backup taken while others write is a store of one moment; restored, it goes on from there."""

import shutil
import subprocess
import sys

import pytest

import penstock
from tests.kit.stores import StoreVerifier, backup, backups, restore
from tests.s3 import s3_server


def damage(path):
    return [finding for finding in StoreVerifier(path).findings() if finding.severity == "damage"]


def numbers(store, topic="orders"):
    with store.topic(topic).reader(follow=False) as reader:
        return [int(message.value) for message in reader]


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store"


def filled(place, count=500, begin=0, **options):
    with penstock.open(place) as store:
        topic = store.create_topic("orders", segment_bytes="16KiB", exists_ok=True, **options)
        for first in range(begin, count, 50):
            topic.write_many([b"%06d" % i for i in range(first, first + 50)])
        with topic.reader(consumer="billing", follow=False) as reader:
            reader.commit(reader.receive_batch(100))
        store.flush_housekeeping()


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_a_backup_is_a_store_with_messages_positions_and_options(place, tmp_path, sync):
    filled(place, sync=sync, retention="9d")
    backup(place, tmp_path / "copy")
    report = restore(tmp_path / "copy", tmp_path / "back")
    assert report.files >= 5
    assert damage(tmp_path / "back") == []
    with penstock.open(tmp_path / "back") as store:
        topic = store.topic("orders")
        assert topic.options.retention_s == 9 * 86400
        assert numbers(store) == list(range(500))
        with topic.reader(consumer="billing", follow=False) as reader:
            assert reader.receive().offset == 100
        assert topic.write(b"500").offset == 500


def test_what_is_written_after_a_backup_is_not_in_it_and_the_store_goes_on(place, tmp_path):
    filled(place)
    backup(place, tmp_path / "copy")
    with penstock.open(place) as store:
        store.topic("orders").write(b"500")
        store.topic("orders").vacuum()
    restore(tmp_path / "copy", tmp_path / "back")
    with penstock.open(tmp_path / "back") as store:
        assert numbers(store) == list(range(500))
    with penstock.open(place) as store:
        assert numbers(store) == list(range(501))


def test_a_restored_store_shares_nothing_with_its_backup(place, tmp_path):
    filled(place)
    backup(place, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "back")
    with penstock.open(tmp_path / "back") as store:
        store.topic("orders").write_many([b"%d" % i for i in range(500, 900)])
    restore(tmp_path / "copy", tmp_path / "again")
    with penstock.open(tmp_path / "again") as store:
        assert numbers(store) == list(range(500))


def test_the_second_backup_copies_only_what_is_new(place, tmp_path):
    filled(place, 2000)
    first = backup(place, tmp_path / "copy")
    with penstock.open(place) as store:
        store.topic("orders").write_many([b"%06d" % i for i in range(2000, 2100)])
    second = backup(place, tmp_path / "copy")
    assert second.kept > 3
    assert second.bytes < first.bytes
    restore(tmp_path / "copy", tmp_path / "back")
    with penstock.open(tmp_path / "back") as store:
        assert numbers(store) == list(range(2100))


def test_each_backup_can_be_restored_until_it_is_pruned(place, tmp_path):
    filled(place, 2000)
    first = backup(place, tmp_path / "copy").name
    with penstock.open(place) as store:
        store.topic("orders").delete_before(1500)
    second = backup(place, tmp_path / "copy").name
    assert backups(tmp_path / "copy") == [first, second]
    for name, start in ((first, 0), (second, 1500)):
        restore(tmp_path / "copy", tmp_path / name, name=name)
        with penstock.open(tmp_path / name) as store:
            assert numbers(store)[0] == start
    before = sum(path.stat().st_size for path in (tmp_path / "copy").rglob("*") if path.is_file())
    third = backup(place, tmp_path / "copy", keep=1)
    assert third.removed == 2
    assert backups(tmp_path / "copy") == [third.name]
    after = sum(path.stat().st_size for path in (tmp_path / "copy").rglob("*") if path.is_file())
    assert after < before
    restore(tmp_path / "copy", tmp_path / "back")
    with penstock.open(tmp_path / "back") as store:
        assert numbers(store)[0] == 1500
    with pytest.raises(penstock.errors.InvalidOption, match="there is no backup"):
        restore(tmp_path / "copy", tmp_path / "none", name=first)


def test_bodies_delayed_and_retried_messages_come_along(place, tmp_path):
    with penstock.open(place) as store:
        topic = store.create_topic("orders", payloads="files")
        topic.write(b"1" * 100_000)
        topic.write(b"2", delay="1h")
        with topic.reader(consumer="billing", follow=False) as reader:
            reader.retry(reader.receive(), after="1h")
    backup(place, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "back")
    shutil.rmtree(place)
    findings = StoreVerifier(tmp_path / "back")
    assert [found for found in findings.findings() if found.severity == "damage"] == []
    assert findings.checked.waiting == 2
    with penstock.open(tmp_path / "back") as store:
        assert store.topic("orders").read()[0].value == b"1" * 100_000


WRITER = """
import sys, penstock
with penstock.open(sys.argv[1]) as store:
    topic = store.topic("orders")
    number = 0
    while True:
        with store.transaction() as tx:
            for _ in range(5):
                tx.write("orders", b"%d" % number, key=b"k%d" % (number % 7))
                number += 1
        topic.write(b"%d" % number, key=b"k%d" % (number % 7))
        number += 1
        print(number, flush=True)
"""


def test_a_backup_beside_a_writer_is_a_prefix_of_what_it_wrote(place, tmp_path):
    """Transactions, rolls and vacuum go on meanwhile; each backup holds a beginning of each partition."""
    with penstock.open(place) as store:
        store.create_topic("orders", partitions=2, segment_bytes="4KiB")
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(place)], stdout=subprocess.PIPE)
    try:
        for turn in range(4):
            writer.stdout.readline()
            backup(place, tmp_path / "copy")
            restore(tmp_path / "copy", tmp_path / f"back{turn}")
    finally:
        writer.kill()
        writer.communicate()
    for turn in range(4):
        assert damage(tmp_path / f"back{turn}") == []
        with penstock.open(tmp_path / f"back{turn}") as store, penstock.open(place) as original:
            for partition in range(2):
                copied = [m.value for m in store.topic("orders").read(partition=partition, limit=10**6)]
                written = [m.value for m in original.topic("orders").read(partition=partition, limit=10**6)]
                assert copied == written[: len(copied)]
                assert copied


@pytest.mark.parametrize("at", [1, 2, 4, 5])
def test_an_interrupted_backup_leaves_the_one_before(place, tmp_path, at):
    filled(place, 500)
    backup(place, tmp_path / "copy")
    filled(place, 1000, begin=500)

    class Stopped(Exception):
        pass

    names = []

    def stop(name):
        names.append(name)
        if len(names) == at:
            raise Stopped

    with pytest.raises(Stopped):
        backup(place, tmp_path / "copy", progress=stop)
    restore(tmp_path / "copy", tmp_path / "back")
    assert damage(tmp_path / "back") == []
    with penstock.open(tmp_path / "back") as store:
        assert numbers(store) == list(range(500))


def test_a_backup_in_a_bucket_is_restored_and_grows_by_what_is_new(place, tmp_path, monkeypatch):
    filled(place, 2000)
    with s3_server() as server:
        for name, value in server.options.items():
            monkeypatch.setenv(name, value)
        address = server.table("backup")
        first = backup(place, address)
        with penstock.open(place) as store:
            store.topic("orders").write(b"2000")
        second = backup(place, address)
        assert (second.kept > 3, second.bytes < first.bytes) == (True, True)
        restore(address, tmp_path / "back")
    assert damage(tmp_path / "back") == []
    with penstock.open(tmp_path / "back") as store:
        assert numbers(store) == list(range(2001))


def test_bad_places_are_refused_with_what_to_do(place, tmp_path):
    filled(place, 50)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("x")
    with pytest.raises(penstock.errors.InvalidOption, match="not a backup"):
        backup(place, tmp_path / "full")
    with pytest.raises(penstock.errors.InvalidOption, match="inside it"):
        backup(place, place / "copy")
    with pytest.raises(penstock.errors.NotAStore):
        backup(tmp_path / "nowhere", tmp_path / "copy")
    with pytest.raises(penstock.errors.NotAStore, match="no backup"):
        restore(tmp_path / "full", tmp_path / "back")
    backup(place, tmp_path / "copy")
    with pytest.raises(penstock.errors.AlreadyExists, match="not empty"):
        restore(tmp_path / "copy", tmp_path / "full")
