"""A store from before partitions were rows: taken over without moving a key (S001-13, U09).

It was made with `plain` (three partitions, keys key-0 to key-39), and `altered`: two partitions, to which
producer `shop` wrote the same keys numbered 0 to 39, then a third one, then the keys once more.
"""

from __future__ import annotations

import sqlite3
import tarfile
from pathlib import Path

import pytest

import penstock
from tests.kit.topics import by_range, inside

KEYS = [f"key-{number}" for number in range(40)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).parent / "golden" / "store_format_5.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path / "store"


def places(topic: penstock.Topic) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for batch in topic.scan():
        for message in batch.messages():
            found.setdefault(message.key, []).append(message.partition)
    return found


def test_a_store_of_format_5_is_read_as_it_is(folder: Path):
    with penstock.open(folder, read_only=True) as store:
        assert places(store.topic("plain")) == {key.encode(): [by_range(key.encode(), 3)] for key in KEYS}
        assert inside(store.topic("altered")).topics.gates(store.topic("altered").id) == {2: {0: 20, 1: 20}}
    assert sqlite3.connect(folder / "state.db").execute("PRAGMA user_version").fetchone() == (5,)


def test_taking_a_store_over_moves_no_key(folder: Path):
    with penstock.open(folder) as store:
        for topic, count in ((store.topic("plain"), 3), (store.topic("altered"), 3)):
            receipts = topic.write_many([b"new"] * len(KEYS), keys=KEYS)
            found = [receipt.partition for receipt in receipts]
            assert found == [by_range(key.encode(), count) for key in KEYS]
    assert sqlite3.connect(folder / "state.db").execute("PRAGMA user_version").fetchone() == (6,)


def test_gates_and_facts_of_partitions_that_were_added_before_are_kept(folder: Path):
    with penstock.open(folder) as store:
        topic = store.topic("altered")
        with topic.writer(producer_id="shop") as writer:
            for number, key in enumerate(KEYS):
                if by_range(key.encode(), 3) == 2:  # what had moved to the added partition is found
                    writer.write(b"again", key=key, seqno=number)
        assert b"again" not in [message.value for batch in topic.scan() for message in batch.messages()]
        with topic.reader(consumer="billing", follow=False) as reader:
            order = [(message.key, message.value[:1]) for message in _committed(reader)]
        for key in KEYS:
            assert [value for each, value in order if each == key.encode()] == [b"v", b"w"], key


def _committed(reader):
    for message in reader:
        yield message
        reader.commit(message)
