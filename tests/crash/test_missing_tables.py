"""Tables of producers from when partitions were added, gone; what transactions staged, left over."""

import glob
import os
import subprocess
import sys

import pytest

import penstock
from tests.kit.logs import seal_segment
from tests.kit.stores import StoreVerifier
from tests.kit.topics import PARTITIONERS, inside


def moved_keys(before: int, after: int) -> list[bytes]:
    """Keys that go elsewhere when partitions are added."""
    choose = PARTITIONERS["kafka"]
    keys = [b"key-%d" % number for number in range(200)]
    return [key for key in keys if choose(key, before) != choose(key, after)][:10]


def send(topic, keys):
    with topic.writer(producer_id="shop", linger=60) as writer:
        for number, key in enumerate(keys):
            writer.write(str(number), key=key, seqno=number)
        writer.flush()
        return writer.written, writer.skipped


def grown(folder, **options):
    """A store whose producer wrote before a partition was added; the paths of the tables kept then."""
    with penstock.open(folder) as store:
        topic = store.create_topic("orders", partitions=2, partitioner="kafka", **options)
        assert send(topic, moved_keys(2, 3)) == (10, 0)
        topic.alter(partitions=3)
    return sorted(glob.glob(os.path.join(folder, "topics/orders/parts/*/*.gate.producers")))


def findings(folder):
    verifier = StoreVerifier(folder)
    return list(verifier.findings())


@pytest.mark.parametrize("is_repacked", [False, True])
def test_a_missing_table_of_a_gate_is_made_again_from_the_log(tmp_path, is_repacked):
    """S001-04: what was sent before partitions were added and comes again is a duplicate."""
    paths = grown(str(tmp_path))
    assert len(paths) == 2
    if is_repacked:
        with penstock.open(tmp_path) as store:
            topic = store.topic("orders")
            for number in range(2):
                topic.write(b"behind the gate", partition=number)
                seal_segment(inside(topic).log(number))
            topic.vacuum()
    for path in paths:
        os.unlink(path)
    told = [found for found in findings(str(tmp_path)) if "partitions were added" in found.what]
    assert len(told) == 2
    assert not any(found.severity == "damage" for found in told)
    with penstock.open(tmp_path) as store:
        assert send(store.topic("orders"), moved_keys(2, 3)) == (0, 10)
    assert all(map(os.path.exists, paths))
    assert not findings(str(tmp_path))


def test_a_missing_table_of_a_gate_that_nothing_tells_any_more_is_damage(tmp_path):
    paths = grown(str(tmp_path), segment_bytes=4096)
    with penstock.open(tmp_path) as store:
        topic = store.topic("orders")
        for _ in range(3):
            with topic.writer(producer_id="other") as writer:
                for partition in range(2):
                    writer.write(b"x", partition=partition)
            for number in range(2):
                seal_segment(inside(topic).log(number))
        topic.delete_before("latest")
        topic.vacuum()
    for path in paths:
        os.unlink(path)
    told = [found for found in findings(str(tmp_path)) if "partitions were added" in found.what]
    assert [found.severity for found in told] == ["damage", "damage"]


def test_what_a_killed_transaction_staged_is_named(tmp_path):
    """It stays for a day; until then it is said how much it is, and whose."""
    with penstock.open(tmp_path) as store:
        store.create_topic("orders")
    program = (
        "import os, signal, sys, penstock\n"
        "store = penstock.open(sys.argv[1])\n"
        "tx = store.transaction().__enter__()\n"
        "for _ in range(40): tx.write('orders', bytes(100_000))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=False)
    assert glob.glob(os.path.join(tmp_path, "topics/orders/parts/*/*.staged"))
    [told] = [found for found in findings(str(tmp_path)) if found.path.endswith(".staged")]
    assert (told.severity, told.topic) == ("note", "orders")
    assert "no transaction has committed" in told.what
    assert "bytes" in told.what
