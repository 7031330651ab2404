"""`StoreVerifier` and what waits: records, checksums, states and journals below `delay/`."""

import os
import signal

import pytest

import penstock
from penstock import Retry
from penstock.checksum import crc32
from penstock.delay import checksums
from penstock.store.verify import StoreVerifier


@pytest.fixture
def path(tmp_path, clock):
    """A store with retries of two messages, thirty delayed ones in three blocks, and a session."""
    path = tmp_path / "store"
    with penstock.open(path, clock=clock) as store:
        topic = store.create_topic("orders")
        topic.write_many([b"a", b"b"])
        with topic.reader(consumer="c") as reader:
            for message in reader.receive_batch():
                reader.retry(message, after="1m")
        with topic.writer(linger="1h") as writer:
            for number in range(30):
                writer.write(b"%02d" % number, delay="1h")
                if number % 10 == 9:
                    writer.flush()
        store.sessions.open("mail", data=b"x").store("1h")
    return path


def verified(path, topic=None):
    verifier = StoreVerifier(path, topic=topic)
    found = [(each.severity, os.path.relpath(each.path, path), each.byte) for each in verifier.findings()]
    return found, verifier.checked.waiting


def only(path, pattern):
    (found,) = path.glob(pattern)
    return found


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_sound_messages_are_counted_and_nothing_is_changed(path):
    before = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    assert verified(path) == ([], 33)
    assert verified(path, "orders") == ([], 2)
    assert {each: each.read_bytes() for each in path.rglob("*") if each.is_file()} == before


def test_a_flipped_bit_is_named_by_file_and_byte_and_its_neighbours_come(path, clock):
    data = only(path, "delay/publish/3600s/*.data")
    block = len(data.read_bytes()) // 3
    flip(data, block + 40)
    found, waiting = verified(path)
    assert found == [("damage", str(data.relative_to(path)), block)]
    assert waiting == 23
    clock.advance("1h")
    with penstock.open(path, clock=clock) as store:
        for _ in range(5):
            store.flush_housekeeping()
        topic = store.topic("orders")
        assert {m.value for m in topic.read()} >= {b"%02d" % n for n in range(30) if n // 10 != 1}
        assert len(topic.read()) == 22
    assert [each for each in verified(path)[0] if each[0] == "damage"] == []
    assert [each[0] for each in verified(path)[0]] == ["note"], "the bytes that were put aside"


def test_a_retry_that_is_damaged_names_its_topic(path):
    flip(only(path, "delay/retries/*/c/0/60s/*.data"), 30)
    (finding,) = StoreVerifier(path, topic="orders").findings()
    assert (finding.severity, finding.topic, finding.partition, finding.byte) == ("damage", "orders", 0, 0)


@pytest.mark.parametrize("ending", [".data", ".sums"])
def test_a_missing_file_is_damage_missing_checksums_a_note(path, ending):
    gone = only(path, f"delay/publish/3600s/*{ending}")
    gone.unlink()
    ((severity, name, byte),) = verified(path)[0]
    assert severity == ("damage" if ending == ".data" else "note")
    assert name.endswith(".data")
    assert byte is None


def test_a_damaged_entry_of_the_log_of_states_is_told_from_a_torn_one(path, clock):
    with penstock.open(path, clock=clock) as store:
        store.topic("orders").write(b"x", delay="2h")  # a second chain: a second entry
    log = path / "delay/publish/states.log"
    size = len(log.read_bytes())
    with log.open("ab") as file:
        file.write(b"\x20\0\0\0torn")
    assert verified(path)[0] == [("note", "delay/publish/states.log", size)]
    flip(log, 64 + 12)
    assert ("damage", "delay/publish/states.log", 64) in verified(path)[0]


def test_states_that_do_not_fit_together_are_damage(path):
    flip(path / "delay/publish/states.log", 20)
    assert verified(path)[0] == [("damage", "delay/publish/states.log", 0)]


def test_records_out_of_order_are_damage(path):
    """Their checksums are sound: only looking at the times finds it."""
    data, sidecar = only(path, "delay/publish/3600s/*.data"), only(path, "delay/publish/3600s/*.sums")
    content, entries = bytearray(data.read_bytes()), sidecar.read_bytes()
    entry = checksums.CURRENT.unpack(entries)
    content[:8] = (entry.due + 1).to_bytes(8, "little")  # the first record is due behind all others
    data.write_bytes(content)
    fixed = entry._replace(crc=crc32(bytes(content[: entry.end])))
    sidecar.write_bytes(checksums.CURRENT.pack(fixed) + entries[checksums.CURRENT.entry_bytes :])
    assert verified(path)[0][0] == ("damage", str(data.relative_to(path)), 0)


def test_a_damaged_journal_of_sessions_costs_only_its_entry(path, clock):
    pid = os.fork()
    if not pid:
        try:
            store = penstock.open(path, clock=clock)
            store.sessions.declare("mail", Retry(first="1s"))
            for number in range(3):
                store.sessions.open("mail", data=b"open %d" % number, durable=True)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    journal = only(path, "delay/sessions/mail/open/*.open")
    data = journal.read_bytes()
    at = data.index(b"open 1")
    flip(journal, at)
    ((severity, name, byte),) = verified(path)[0]
    assert (severity, name) == ("damage", str(journal.relative_to(path)))
    assert data.rindex(b"open 0") < byte < at
    with penstock.open(path, clock=clock) as store:
        found = [session.data for session in store.sessions.due("mail")]
    assert sorted(found) == [b"", b"open 0", b"open 2"], "of the damaged one what it was before"
    assert journal.with_name(journal.name + ".damaged").exists()
