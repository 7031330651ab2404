"""`StoreVerifier`: what is damaged is named with file, byte and offsets, and nothing is touched."""

import hashlib
import os
import pathlib
import shutil
import sqlite3
import threading

import pytest

import penstock
from penstock.log.records import DURABLE_AT
from penstock.log.staging import PlacedPiece
from penstock.state.transactions import Part
from penstock.store.verify import StoreVerifier

VALUE = b"message %06d " * 8


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A closed store: topic `orders` with sealed segments of several frames, a consumer, and two more."""
    path = tmp_path_factory.mktemp("verify") / "store"
    with penstock.open(path) as store:
        topic = store.create_topic("orders", segment_bytes="128KiB")
        for first in range(0, 6000, 200):
            topic.write_many([VALUE % ((number,) * 8) for number in range(first, first + 200)])
        topic.add_consumer("billing", start=300)
        store.create_topic("empty")
        store.create_topic("other").write(b"x")
        topic.vacuum()
        assert store.flush_housekeeping()
    return path


@pytest.fixture
def path(template, tmp_path):
    return shutil.copytree(template, tmp_path / "store")


def part(path):
    return path / "topics" / "orders" / "parts" / "000000"


def segments(path):
    return sorted(part(path).glob("*.data"))


def verify(path, **options):
    verifier = StoreVerifier(path, **options)
    findings = list(verifier.findings())
    return (
        [finding for finding in findings if finding.severity == "damage"],
        [finding for finding in findings if finding.severity == "note"],
        verifier.checked,
    )


def flip(file, byte, mask=0x01):
    content = bytearray(file.read_bytes())
    content[byte] ^= mask
    file.write_bytes(content)


def listing(path):
    """Every file with its content and times, and every folder with its times."""
    return sorted(
        (str(each), each.stat().st_mtime_ns, each.stat().st_ino, _digest(each)) for each in path.rglob("*")
    )


def _digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def test_a_sound_store_has_no_findings_and_everything_is_counted(path):
    damage, notes, checked = verify(path)
    assert (damage, notes) == ([], [])
    assert (checked.topics, checked.partitions, checked.messages) == (3, 3, 6001)
    assert checked.segments == len(segments(path)) + 1 > 5
    assert checked.frames == 31
    assert checked.bytes > 6000 * len(VALUE)


def test_one_topic_can_be_checked_alone(path):
    assert verify(path, topic="empty")[2].messages == 0
    with pytest.raises(penstock.UnknownTopic):
        verify(path, topic="nope")


def test_nothing_is_created_or_altered(path):
    flip(segments(path)[1], 500)
    before = listing(path)
    verify(path)
    assert listing(path) == before


def test_a_flipped_bit_is_named_with_its_byte_and_only_its_own_offsets(path):
    segment = segments(path)[1]
    content = segment.read_bytes()
    first = int(segment.name[:20])
    target = first + 250
    flip(segment, content.index(VALUE % ((target,) * 8)))
    (damage,), notes, checked = verify(path)
    assert damage.path == str(segment)
    assert damage.what == "a damaged frame"
    assert (damage.topic, damage.partition) == ("orders", 0)
    assert damage.first <= target < damage.stop
    assert content[damage.byte : damage.byte + 4] == b"PSKF"
    assert checked.messages == 6001 - (damage.stop - damage.first)
    assert notes == []


def test_every_damaged_frame_of_a_segment_is_found_also_the_first_and_the_last(path):
    segment = segments(path)[0]
    stop = int(segments(path)[1].name[:20])
    content = segment.read_bytes()
    for number in (0, stop // 2, stop - 1):
        flip(segment, content.index(VALUE % ((number,) * 8)))
    damage, _, _ = verify(path)
    assert len(damage) == 3
    assert damage[0].first == 0
    assert damage[2].stop == stop
    assert all(finding.path == str(segment) for finding in damage)


def test_a_damaged_segment_header_is_damage(path):
    flip(segments(path)[0], 20)
    (damage,), _, _ = verify(path)
    assert (damage.byte, damage.what) == (0, "damaged segment header")


def test_a_file_cut_short_is_damage_since_its_index_knows_better(path):
    segment = segments(path)[0]
    os.truncate(segment, segment.stat().st_size - 3000)
    damage, _, _ = verify(path)
    assert damage[-1].path == str(segment)
    assert damage[-1].stop == int(segments(path)[1].name[:20])


def test_a_missing_first_or_last_segment_is_damage(path):
    first, *_, last = segments(path)
    following = int(segments(path)[1].name[:20])
    first.unlink()
    last.unlink()
    damage, _, _ = verify(path)
    found = {(finding.what, finding.first, finding.stop) for finding in damage}
    assert ("segments are missing at the start", 0, following) in found
    assert any(what == "the last segment is missing" for what, _, _ in found)


def test_a_segment_of_another_topic_is_damage(path):
    segment = segments(path)[0]
    (other,) = (path / "topics" / "other" / "parts" / "000000").glob("*.data")
    segment.write_bytes(other.read_bytes()[:64] + segment.read_bytes()[64:])
    damage, _, _ = verify(path)
    assert any(finding.what == "the segment belongs to another topic" for finding in damage)


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("how", ["flipped", "short", "missing"])
def test_a_bad_index_is_only_a_note(path, kind, how):
    file = segments(path)[0].with_suffix(kind)
    if how == "flipped":
        flip(file, 80)
    elif how == "short":
        os.truncate(file, 90)
    else:
        file.unlink()
    damage, (note,), _ = verify(path)
    assert damage == []
    assert note.path == str(segments(path)[0].with_suffix(".index"))
    assert "index" in note.what


@pytest.mark.parametrize("how", ["flipped", "short"])
def test_a_bad_key_index_is_only_a_note(path, how):
    with penstock.open(path) as store:
        store.topic("orders").alter(index="key")
        store.topic("orders").vacuum()
    file = segments(path)[0].with_suffix(".keyindex")
    assert verify(path)[:2] == ([], [])
    if how == "flipped":
        flip(file, file.stat().st_size - 1)
    else:
        os.truncate(file, 70)
    damage, (note,), _ = verify(path)
    assert damage == []
    assert note.path == str(file)
    assert "key index" in note.what


@pytest.mark.parametrize(("name", "byte"), [("append", 8), ("tail", 8), ("tail", DURABLE_AT + 8)])
def test_a_bad_record_is_only_a_note(path, name, byte):
    flip(part(path) / name, byte)
    damage, (note,), _ = verify(path)
    assert damage == []
    assert note.path == str(part(path) / name)


def test_a_torn_tail_behind_the_durable_end_is_only_a_note(path):
    segment = segments(path)[-1]
    content = segment.read_bytes()
    end = len(content.rstrip(b"\0"))
    end += -end % 8
    begin = content.index(b"PSKF")
    segment.write_bytes(content[:end] + content[begin : begin + 200])
    damage, (note,), _ = verify(path)
    assert damage == []
    assert "torn tail" in note.what
    assert (note.path, note.byte) == (str(segment), end)


def test_damage_before_the_durable_end_of_the_last_segment_is_damage(path):
    segment = segments(path)[-1]
    content = segment.read_bytes().rstrip(b"\0")
    flip(segment, len(content) - 20)
    (damage,), _, _ = verify(path)
    assert damage.path == str(segment)
    assert damage.stop == 6000


def test_zeros_where_the_durable_end_was_are_damage(path):
    segment = segments(path)[-1]
    size = segment.stat().st_size
    os.truncate(segment, 64)
    os.truncate(segment, size)
    (damage,), _, _ = verify(path)
    assert (damage.byte, damage.what, damage.stop) == (64, "frames are missing at the end", 6000)


def test_a_position_beyond_the_end_is_damage(path):
    with sqlite3.connect(path / "state.db") as connection:
        connection.execute("UPDATE positions SET position = 6001")
    connection.close()
    (damage,), _, _ = verify(path)
    assert damage.path == str(path / "state.db")
    assert "consumer 'billing' stands at 6001, beyond the end (6000)" in damage.what


@pytest.mark.parametrize("how", ["missing", "garbage", "torn"])
def test_without_a_readable_state_the_segments_are_checked_all_the_same(path, how):
    state = path / "state.db"
    if how == "missing":
        state.unlink()
    elif how == "garbage":
        state.write_bytes(b"not a database, not at all" * 100)
    else:
        content = state.read_bytes()
        state.write_bytes(content[:1024] + bytes(len(content) - 1024))
    flip(segments(path)[0], 200)
    damage, _, checked = verify(path)
    assert damage[0].path == str(state)
    assert damage[-1].path == str(segments(path)[0])
    assert checked.topics == 3


def test_folders_without_a_topic_and_topics_without_a_folder_are_notes(path):
    (path / "topics" / ".dropped-0123").mkdir()
    shutil.rmtree(path / "topics" / "empty")
    damage, notes, _ = verify(path)
    assert damage == []
    assert [os.path.relpath(note.path, path) for note in notes] == [
        "topics/empty/parts/000000",
        "topics/.dropped-0123",
    ]


def test_a_folder_that_is_no_store_is_refused(tmp_path):
    with pytest.raises(penstock.NotAStore):
        StoreVerifier(tmp_path)


def test_beside_a_writer_that_rolls_and_vacuums_nothing_is_reported(tmp_path):
    path = tmp_path / "store"
    with penstock.open(path) as store:
        topic = store.create_topic("orders", segment_bytes="16KiB", max_bytes="256KiB")
        done = threading.Event()

        def write():
            while not done.is_set():
                topic.write_many([b"x" * 100] * 50)
                with topic.reader(consumer="c", follow=False, on_gap="skip") as reader:
                    reader.commit(reader.receive_batch())

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(150):
                assert verify(path)[0] == []
        finally:
            done.set()
            writer.join()


def test_a_transaction_not_yet_brought_in_is_a_note_and_one_that_lost_its_file_is_damage(path):
    with penstock.open(path) as store:
        topic = store.create_topic("tx")
        topic.write(b"first")
        log = topic.open_topic.log(0)
        piece = PlacedPiece(7, 0, 1, 2, "07-0-0.staged", b"")
        part = Part(topic.id, 0, [piece])
        store._transactions.commit(7, None, [part], [], 0, check=lambda: None)
        staged = pathlib.Path(log.folder.name("07-0-0.staged"))
        staged.write_bytes(b"x")
        found = [f for f in StoreVerifier(path).findings() if f.topic == "tx"]
        assert [(f.severity, f.first, f.stop) for f in found] == [("note", 1, 3)]
        staged.unlink()
        found = [f for f in StoreVerifier(path).findings() if f.topic == "tx"]
        assert [(f.severity, f.path) for f in found] == [("damage", str(staged))]
        store._transactions.finish(7, [(topic.id, 0)])
