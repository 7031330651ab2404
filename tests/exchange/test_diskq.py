"""go-diskq folders in and out (S004-15…21): what is kept, what is noted, what is refused."""

import asyncio
import shutil
import struct
import sys
from array import array
from functools import partial
from itertools import accumulate
from random import Random

import pytest

import penstock
import penstock.aio
from penstock.errors import (
    AlreadyExists,
    ConflictError,
    Corrupt,
    DataError,
    InvalidOption,
    MessageTooLarge,
    UnknownFormat,
)
from tests.exchange.diskq_files import (
    Row,
    all_files,
    fixed,
    fnv1,
    read_partition,
    rows,
    varuint,
    write_folder,
    write_segment,
)
from tests.kit.stores import StoreVerifier
from tests.kit.values import Encoding, Misfit, decode, decode_columns, import_diskq


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path / "store") as opened:
        yield opened


def messages(topic, partition=0):
    found = topic.read(partition=partition, limit=10**6)
    return [(m.offset, Row(m.key, m.timestamp, m.value)) for m in found]


def placed(base, found):
    return list(enumerate(found, start=base))


# What is kept.


def test_a_partition_whose_first_segments_were_vacuumed_begins_where_it_began(store, tmp_path):
    first, third = rows(5), rows(4, begin=50)
    folder = write_folder(tmp_path / "d", [{100: first, 150: third}], settings={"partition_count": 1})
    topic = store.import_diskq(folder, topic="t")
    assert messages(topic) == placed(100, first) + placed(150, third)
    assert topic.stats().partitions[0].start == 100
    with topic.reader(follow=False) as reader:  # a gap on purpose is none that a reader complains of
        assert [m.offset for m in reader] == [100, 101, 102, 103, 104, 150, 151, 152, 153]
    assert topic.write(b"next", partition=0).offset == 154
    assert store.flush_housekeeping()  # an index that is not made yet would be noted
    found = list(StoreVerifier(store.path).findings())
    assert [(each.severity, each.first, each.stop) for each in found] == [("note", 105, 150)]
    topic.export_diskq(tmp_path / "again")
    assert read_partition(tmp_path / "again", 0)[:9] == messages(topic)[:9]


def test_gaps_and_all_survive_the_loss_of_the_records(tmp_path):
    """What A, S and D say is a cache: the gap is in the segment's own header."""
    folder = write_folder(tmp_path / "d", [{100: rows(5), 150: rows(4)}])
    with penstock.open(tmp_path / "store") as store:
        before = messages(store.import_diskq(folder, topic="t"))
    for name in ("append", "tail"):
        (tmp_path / "store" / "topics" / "t" / "parts" / "000000" / name).unlink()
    with penstock.open(tmp_path / "store") as store:
        topic = store.topic("t")
        assert messages(topic) == before
        assert topic.stats().partitions[0].start == 100


def test_the_topic_remembers_partitioner_and_bounds_so_later_messages_go_where_go_diskq_puts_them(
    store, tmp_path
):
    """B004-06, B004-07: FNV-1 modulo; a segment ends after the message that reaches its size."""
    settings = {"partition_count": 3, "segment_size_bytes": 200}
    parts = [
        {
            0: [],
        }
        for _ in range(3)
    ]
    for row in rows(30):
        parts[fnv1(row.key) % 3][0].append(row)
    folder = write_folder(tmp_path / "d", parts, settings=settings)  # larger than 200: bounds of another time
    topic = store.import_diskq(folder, topic="t")
    assert topic.options.partitioner == "diskq"
    later = rows(60, begin=30)
    for row in later:
        assert topic.write(row.data, key=row.key, timestamp=row.time).partition == fnv1(row.key) % 3
    topic.export_diskq(tmp_path / "out")
    expected = write_folder(tmp_path / "expected", parts, settings=settings)
    for number in range(3):
        as_go_diskq_writes(expected / "parts" / f"{number:06d}", later, number, 200)
    assert all_files(tmp_path / "out") == all_files(expected)


def as_go_diskq_writes(folder, later, number, limit):
    """Append messages of a partition: the active segment goes on, and ends behind the one that fills it."""
    data = sorted(folder.glob("*.data"))[-1]
    base, size = int(data.stem), data.stat().st_size
    offset = base + data.with_suffix(".index").stat().st_size // 24
    for row in later:
        if fnv1(row.key) % 3 != number:
            continue
        path, record = folder / f"{base:020d}.data", fixed(row)
        for ending, more in (
            (".data", record),
            (".index", struct.pack("<QQQ", offset, size, len(record))),
            (".timeindex", struct.pack("<Qq", offset, row.time)),
        ):
            with path.with_suffix(ending).open("ab") as file:
                file.write(more)
        offset, size = offset + 1, size + len(record)
        if size >= limit:
            base, size = offset, 0
            write_segment(folder, base, [])


def test_groups_become_consumers_and_go_back(store, tmp_path):
    """B004-05: theirs is the last offset read, ours the next one to read."""
    groups = {"billing": {0: 3, 1: None}, "empty": {}, "audit": {1: 0}}
    folder = write_folder(tmp_path / "d", [{0: rows(5)}, {10: rows(5)}], groups=groups)
    topic = store.import_diskq(folder, topic="t")
    positions = {each.consumer: each.positions for each in topic.consumers()}
    assert positions == {"billing": {0: 4, 1: 10}, "empty": {0: 0, 1: 10}, "audit": {0: 0, 1: 1}}
    topic.export_diskq(tmp_path / "again")
    assert all_files(tmp_path / "again") == all_files(folder)
    with topic.reader(consumer="billing", follow=False) as reader:
        for message in reader:
            reader.commit(message)
    topic.export_diskq(tmp_path / "later")
    marks = {n: (tmp_path / "later/groups/billing" / f"{n:06d}").read_bytes() for n in (0, 1)}
    assert marks == {0: (4).to_bytes(8, "little"), 1: (14).to_bytes(8, "little")}


def test_a_group_that_marked_more_than_there_is_stands_at_the_end(store, tmp_path):
    folder = write_folder(tmp_path / "d", [{0: rows(5)}], groups={"g": {0: 99}})
    done = import_diskq(store, folder, "t")
    assert done.topic.consumers()[0].positions == {0: 5}
    assert "group 'g' marks offset 99" in done.notes[0]


@pytest.mark.parametrize("encode", [fixed, varuint])
def test_both_encodings_are_told_apart(store, tmp_path, encode):
    """B004-01, S004-21: by the sizes and times that the indexes name."""
    awkward = [
        Row(b"", 0, b""),
        Row(b"\x00" * 300, -1, b"\x05" * 5),
        Row(b"k", 2**62, bytes(300)),
        *rows(100),
    ]
    for name, first in (("a", awkward), ("b", awkward[1:]), ("c", awkward[2:])):
        folder = write_folder(tmp_path / name, [{0: first}], encode=encode)
        assert messages(store.import_diskq(folder, topic=name)) == placed(0, first)


def test_orphans_of_a_time_with_more_partitions_come_too(store, tmp_path):
    """B004-13."""
    folder = write_folder(tmp_path / "d", [{0: rows(2)}, {0: rows(3)}], settings={"partition_count": 1})
    done = import_diskq(store, folder, "t")
    assert len(messages(done.topic, 1)) == 3
    assert "partitions from 1 on are left from a time with more" in done.notes[0]
    done.topic.export_diskq(tmp_path / "again")
    assert all_files(tmp_path / "again") == all_files(folder)


def test_large_messages_and_their_limit(store, tmp_path):
    large = [Row(b"k", 1, bytes(3_000_000)), *rows(3)]
    topic = store.import_diskq(write_folder(tmp_path / "d", [{0: large}]), topic="t")
    assert messages(topic) == placed(0, large)
    huge = write_folder(tmp_path / "huge", [{0: [Row(b"k", 1, bytes(20_000_000)), *rows(3)]}])
    with pytest.raises(MessageTooLarge, match=r"a message of 20000001 bytes.*payloads"):
        store.import_diskq(huge, topic="huge")
    beside = store.import_diskq(huge, topic="huge", payloads="files")
    assert beside.read()[0].value == bytes(20_000_000)
    beside.export_diskq(tmp_path / "again")
    assert all_files(tmp_path / "again") == all_files(huge)


def test_a_topic_made_here_is_exported_with_uuid_keys_for_those_without(store, tmp_path):
    """B004-06: a message without a key has a UUID for one, which leads to its partition."""
    topic = store.create_topic("t", partitions=3, partitioner="diskq")
    for number in range(20):
        topic.write(b"x%d" % number)
    done = topic.export_diskq(tmp_path / "out")
    assert (done.messages, done.partitions, done.notes) == (20, 3, ())
    for partition in range(3):
        for _, row in read_partition(tmp_path / "out", partition):
            assert len(row.key) == 32
            assert row.key[12:13] == b"4"
            assert fnv1(row.key) % 3 == partition
    topic.export_diskq(tmp_path / "again")
    assert all_files(tmp_path / "again") == all_files(tmp_path / "out")


def test_what_diskq_cannot_hold_is_named(store, tmp_path):
    topic = store.create_topic("t", partitions=2)
    topic.write(b"a", key="k", headers={"h": "1"})
    topic.write(None, key="k")
    topic.write(b"", key="k")
    notes = "\n".join(topic.export_diskq(tmp_path / "out").notes)
    assert "1 messages had headers" in notes
    assert "1 tombstones" in notes
    assert "2 messages have empty data" in notes
    assert "partitioner 'range'" in notes


def test_a_message_that_expired_inside_ends_a_segment(store, tmp_path):
    """diskq knows no gap inside of a segment."""
    folder = write_folder(tmp_path / "d", [{0: rows(10), 10: rows(10)}])
    topic = store.import_diskq(folder, topic="t")
    topic.delete_before({0: 4})
    topic.export_diskq(tmp_path / "out")
    names = sorted(path.stem for path in (tmp_path / "out/parts/000000").glob("*.data"))
    assert names == [f"{4:020d}", f"{10:020d}"]
    assert [offset for offset, _ in read_partition(tmp_path / "out", 0)] == list(range(4, 20))


# What a crash of a producer leaves.


def test_a_torn_tail_is_left_out_and_named(store, tmp_path):
    folder = write_folder(tmp_path / "d", [{0: rows(5)}])
    base = folder / "parts/000000" / f"{0:020d}"
    with base.with_suffix(".timeindex").open("ab") as file:
        file.write(struct.pack("<Qq", 5, 77))
    with base.with_suffix(".data").open("ab") as file:
        file.write(fixed(Row(b"k", 77, b"never acknowledged"))[:-4])
    with base.with_suffix(".index").open("ab") as file:
        file.write(b"\x05\0\0")
    done = import_diskq(store, folder, "t")
    assert messages(done.topic) == placed(0, rows(5))
    assert len(done.notes) == 3
    assert all("a torn tail" in note for note in done.notes)


def test_an_index_beyond_the_data_of_the_active_segment_is_a_torn_tail(store, tmp_path):
    folder = write_folder(tmp_path / "d", [{0: rows(5)}])
    data = folder / "parts/000000" / f"{0:020d}.data"
    data.write_bytes(data.read_bytes()[:-3])
    done = import_diskq(store, folder, "t")
    assert messages(done.topic) == placed(0, rows(4))
    assert "a torn tail: 1 messages are cut off" in done.notes[0]


def test_a_producer_that_went_on_behind_a_torn_message(store, tmp_path):
    """Its leftovers lie between two messages, and a second time of the same offset in the time index."""
    found = rows(6)
    folder = write_folder(tmp_path / "d", [{0: found[:3]}])
    base = folder / "parts/000000" / f"{0:020d}"
    data = base.with_suffix(".data").read_bytes() + b"half a mess"
    index, times = base.with_suffix(".index").read_bytes(), base.with_suffix(".timeindex").read_bytes()
    times += struct.pack("<Qq", 3, 5)
    for offset, row in placed(3, found[3:]):
        record = fixed(row)
        index += struct.pack("<QQQ", offset, len(data), len(record))
        times += struct.pack("<Qq", offset, row.time)
        data += record
    for ending, content in ((".data", data), (".index", index), (".timeindex", times)):
        base.with_suffix(ending).write_bytes(content)
    done = import_diskq(store, folder, "t")
    assert messages(done.topic) == placed(0, found)
    assert "11 bytes between messages are in no index" in "".join(done.notes)
    assert "1 entries are left from a crash" in "".join(done.notes)


# Bad input.


def test_a_folder_that_is_none_of_diskq_s(store, tmp_path):
    (tmp_path / "other").mkdir()
    for path in (tmp_path / "other", tmp_path / "missing"):
        with pytest.raises(InvalidOption, match="is not a diskq folder: it has no folder 'parts'"):
            store.import_diskq(path, topic="t")
    assert store.topics() == []


def test_a_partition_that_is_missing(store, tmp_path):
    folder = write_folder(
        tmp_path / "d", [{0: rows(1)}, {0: rows(1)}, {0: rows(1)}], settings={"partition_count": 3}
    )
    shutil.rmtree(folder / "parts/000001")
    with pytest.raises(DataError, match=r"partition 000001 is missing .*settings.json names 3"):
        store.import_diskq(folder, topic="t")
    (folder / "settings.json").unlink()
    with pytest.raises(DataError, match=r"partition 000001 is missing .*there are others up to 2"):
        store.import_diskq(folder, topic="t")
    assert store.topics() == []


@pytest.mark.parametrize(
    ("ending", "error", "says"),
    [
        ("data", Corrupt, "no data for 5 messages of the index"),
        ("index", Corrupt, "bytes of messages that the index does not name"),
        ("timeindex", Corrupt, "no times for 5 messages"),
    ],
)
def test_a_file_of_zero_bytes(store, tmp_path, ending, error, says):
    folder = write_folder(tmp_path / "d", [{0: rows(5)}])
    (folder / "parts/000000" / f"{0:020d}.{ending}").write_bytes(b"")
    with pytest.raises(error, match=says):
        store.import_diskq(folder, topic="t")
    assert store.topics() == []


def test_a_missing_file_a_strange_one_an_empty_partition(store, tmp_path):
    folder = write_folder(tmp_path / "d", [{0: rows(5)}])
    part = folder / "parts/000000"
    (part / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"notes.txt is no file of a segment"):
        store.import_diskq(folder, topic="t")
    (part / "notes.txt").unlink()
    (part / f"{0:020d}.timeindex").unlink()
    with pytest.raises(DataError, match=r"timeindex is missing"):
        store.import_diskq(folder, topic="t")
    for path in part.iterdir():
        path.unlink()
    with pytest.raises(DataError, match="is empty"):
        store.import_diskq(folder, topic="t")


def test_a_foreign_byte_order(store, tmp_path):
    folder = write_folder(tmp_path / "d", [{0: rows(5)}])
    index = folder / "parts/000000" / f"{0:020d}.index"
    numbers = struct.unpack("<15Q", index.read_bytes())
    index.write_bytes(struct.pack(">15Q", *numbers))
    with pytest.raises(UnknownFormat, match=r"index is big-endian"):
        store.import_diskq(folder, topic="t")


@pytest.mark.parametrize(
    ("ending", "at", "says"),
    [
        ("index", 24 * 3, "offset 203 out of turn"),
        ("index", 24 * 3 + 8, "begins inside the one before"),
        ("index", 24 * 3 + 16, "not as long as the index says|begins inside"),
        ("index", 24 * 3 + 22, "ends behind the data|begins inside|not as long"),
        ("data", 38 * 3 + 9, "not as long as the index says|a time that is not the message's own"),
        ("timeindex", 16 * 3 + 8, "a time that is not the message's own"),
    ],
)
def test_an_index_that_disagrees_with_the_data_is_named_with_file_and_byte(store, tmp_path, ending, at, says):
    folder = write_folder(tmp_path / "d", [{0: rows(200), 200: rows(9)}])
    path = folder / "parts/000000" / f"{200 if ending == 'index' and at == 72 else 0:020d}.{ending}"
    content = bytearray(path.read_bytes())
    content[at] ^= 1 if ending != "index" or at == 72 else 3
    path.write_bytes(content)
    says = says.replace("203", "202")
    with pytest.raises(Corrupt, match=says) as caught:
        store.import_diskq(folder, topic="t")
    assert str(path.with_suffix("")) in str(caught.value)


def test_segments_that_overlap_and_settings_that_are_none(store, tmp_path):
    folder = write_folder(tmp_path / "d", [{0: rows(5), 3: rows(5)}])
    with pytest.raises(DataError, match="names offsets up to 4, and the next segment begins at 3"):
        store.import_diskq(folder, topic="t")
    (folder / "settings.json").write_text("{")
    with pytest.raises(DataError, match=r"settings.json is not JSON"):
        store.import_diskq(folder, topic="t")
    (folder / "settings.json").write_text('{"partition_count": "many"}')
    with pytest.raises(DataError, match="does not hold go-diskq's settings"):
        store.import_diskq(folder, topic="t")


def test_s004_16_a_folder_with_an_owner_is_refused_until_it_is_said_to_be_dead(store, tmp_path):
    folder = write_folder(tmp_path / "d", [{0: rows(5)}])
    (folder / "owner").write_bytes(bytes(range(16)))
    with pytest.raises(ConflictError, match="producer 000102030405060708090a0b0c0d0e0f"):
        store.import_diskq(folder, topic="t")
    assert store.topics() == []
    assert len(messages(store.import_diskq(folder, topic="t", owned_ok=True))) == 5
    assert (folder / "owner").exists()


def test_a_topic_that_is_there_already(store, tmp_path):
    folder = write_folder(tmp_path / "d", [{0: rows(5)}])
    store.create_topic("t")
    with pytest.raises(AlreadyExists, match="topic 't' is there already"):
        store.import_diskq(folder, topic="t")
    store.import_diskq(folder, topic="u")
    with pytest.raises(AlreadyExists, match="topic 'u' is there already"):
        store.import_diskq(folder, topic="u")
    assert len(messages(store.topic("u"))) == 5


def test_options_and_names_that_cannot_be(store, tmp_path):
    folder = write_folder(tmp_path / "d", [{0: rows(5)}], groups={"not a name!": {0: 1}})
    with pytest.raises(InvalidOption, match="partitions is what the diskq folder says"):
        store.import_diskq(folder, topic="t", partitions=4)
    with pytest.raises(InvalidOption, match="consumer"):
        store.import_diskq(folder, topic="t")
    assert store.topics() == []
    long = write_folder(tmp_path / "long", [{0: [Row(b"k" * 5000, 1, b"d")]}])
    with pytest.raises(MessageTooLarge) as caught:
        store.import_diskq(long, topic="t")
    assert "import again to go on, or drop it" in caught.value.__notes__[0]


def test_an_export_goes_to_a_new_or_empty_folder_and_leaves_nothing_when_it_fails(store, tmp_path):
    topic = store.create_topic("t")
    topic.write(b"x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(AlreadyExists):
        topic.export_diskq(tmp_path / "full")
    with pytest.raises(InvalidOption, match="encoding 'other'"):
        topic.export_diskq(tmp_path / "out", encoding="other")
    (tmp_path / "empty").mkdir()
    topic.export_diskq(tmp_path / "empty")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "full", "store"]


def test_the_async_classes_do_the_same(tmp_path):
    folder = write_folder(tmp_path / "d", [{3: rows(5)}], groups={"g": {0: 4}})

    async def there_and_back():
        async with penstock.aio.open(tmp_path / "aio") as opened:
            topic = await opened.import_diskq(folder, topic="t")
            return await topic.export_diskq(tmp_path / "again")

    done = asyncio.run(there_and_back())
    assert (done.messages, done.groups) == (5, ("g",))
    assert all_files(tmp_path / "again") == all_files(folder)


@pytest.mark.parametrize("seed", range(5))
def test_by_columns_and_one_by_one_messages_are_the_same(seed):
    """With pyarrow messages are cut out by columns; without it, and in the other encoding, one by one."""
    random = Random(seed)
    found = [
        Row(random.randbytes(random.choice((0, 1, 9, 300))), random.randrange(-(2**63), 2**63),
            random.randbytes(random.choice((0, 1, 50, 5000))))
        for _ in range(200)
    ]  # fmt: skip
    encoded = [fixed(row) for row in found]
    sizes = array("Q", map(len, encoded))
    starts = array("Q", list(accumulate(sizes, initial=0))[:-1])
    data = b"".join(encoded)
    columns = decode_columns(data, starts, sizes)
    listed = decode(Encoding.FIXED, data, starts, sizes)
    assert (columns.keys.to_pylist(), list(columns.times), columns.values.to_pylist()) == tuple(listed)
    broken = random.randrange(200)
    for at in (starts[broken], starts[broken] + 4 + len(found[broken].key) + 8):
        damaged = bytearray(data)
        damaged[at] ^= 1
        for way in (decode_columns, partial(decode, Encoding.FIXED)):
            with pytest.raises(Misfit) as caught:
                way(bytes(damaged), starts, sizes)
            assert caught.value.place == broken
    sizes[broken] = 19
    with pytest.raises(Misfit):
        decode_columns(data, starts, sizes)


def test_without_pyarrow_an_import_is_the_same(store, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    folder = write_folder(tmp_path / "d", [{7: rows(500)}])
    topic = store.import_diskq(folder, topic="t")
    assert messages(topic) == placed(7, rows(500))
