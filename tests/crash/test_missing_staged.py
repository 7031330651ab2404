"""What a committed transaction staged, gone or damaged before anyone brought it in (S001-59…61)."""

import glob
import logging
import os
import signal
import subprocess
import sys

import pytest

import penstock
from tests.crash.processes import ROOT
from tests.crash.tracing import BootFiles
from tests.kit.stores import StoreVerifier

#: Messages of 100 kB: copied into the log, or made a segment of its own.
SIZES = {"copied": 4, "renamed": 200}
PROGRAM = """
import os, signal, sys, penstock
from tests.kit.logs import Appender
Appender.bring_in = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with penstock.open(sys.argv[1]) as store, store.transaction() as tx:
    for number in range(int(sys.argv[2])):
        tx.write("orders", b"%d" % number + bytes(100_000))
    tx.write("other", b"with them")
"""


@pytest.fixture(params=SIZES)
def staged(request, tmp_path):
    """A store whose transaction is committed and was not brought in; folder, file, messages in it."""
    with penstock.open(tmp_path) as store:
        for name in ("orders", "other"):
            store.create_topic(name).write(b"first")
    count = SIZES[request.param]
    ended = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), str(count)], cwd=ROOT, check=False)
    assert ended.returncode == -signal.SIGKILL
    (path,) = glob.glob(os.path.join(tmp_path, "topics/orders/parts/000000/*.staged"))
    return str(tmp_path), path, count


def damage(folder):
    return [found for found in StoreVerifier(folder).findings() if found.severity == "damage"]


def offsets(topic):
    with topic.reader(follow=False, on_gap="skip") as reader:
        return [message.offset for message in reader], [(gap.first, gap.stop) for gap in reader.gaps]


@pytest.mark.parametrize("boot", ["the same", "another"])
def test_a_missing_file_is_a_loss_that_stays_named_and_everything_else_goes_on(staged, boot, caplog):
    """Nobody says that the transaction was finished there; nothing keeps the store from opening."""
    folder, path, count = staged
    os.unlink(path)
    files = BootFiles(77) if boot == "another" else None
    (found,) = damage(folder)
    assert (found.path, found.topic, found.first, found.stop) == (path, "orders", 1, 1 + count)
    with caplog.at_level(logging.INFO), penstock.open(folder, files=files) as store:
        assert store.topic("other").get(1).value == b"with them"
        assert store.topic("orders").get(0).value == b"first"
        assert store.topic("orders").write(b"behind").offset == count + 1
    said = [record.getMessage() for record in caplog.records if "orders" in getattr(record, "path", "")]
    assert any(f"offsets 1 to {count} are lost" in each for each in said)
    assert not any(each.startswith(("finished", "brought in")) for each in said)
    for _ in range(2):
        with penstock.open(folder, files=files) as store:
            assert offsets(store.topic("orders")) == ([0, count + 1], [(1, count + 1)])
            with pytest.raises(penstock.Corrupt, match="lost"):
                store.topic("orders").get(1)
        (found,) = damage(folder)
        assert (found.first, found.stop) == (1, 1 + count)


def test_a_file_that_lost_its_end_costs_what_it_lost(staged):
    """Messages before the cut are brought in; those behind it are damaged, and stay named."""
    folder, path, count = staged
    os.truncate(path, os.path.getsize(path) // 2)
    assert min(found.first for found in damage(folder)) > 0
    with penstock.open(folder) as store:
        store.topic("orders").write(b"behind")
        there, gaps = offsets(store.topic("orders"))
    lost = {offset for first, stop in gaps for offset in range(first, stop)}
    assert len(lost) >= count // 2
    assert sorted({*there, *lost}) == list(range(count + 2))
    assert not lost & set(there)
    assert {offset for found in damage(folder) for offset in range(found.first, found.stop)} == lost


def test_a_damaged_header_of_a_file_costs_nothing(staged):
    folder, path, count = staged
    with open(path, "r+b") as file:
        file.write(bytes(16))
    with penstock.open(folder) as store:
        store.topic("orders").write(b"behind")
        assert offsets(store.topic("orders")) == (list(range(count + 2)), [])
    assert damage(folder) == []
