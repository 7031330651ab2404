"""Bad input: each kind has its own clear error, and nothing on disk changes by it."""

import errno
import os
import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

import penstock
from penstock import Files
from tests.kit.system import file_system, refuse_network_file_system

BAD_NAMES = [
    "../x",
    "..",
    ".",
    "a/b",
    "/etc",
    "",
    " ",
    "x" * 300,
    "x" * 201,
    "tab\there",
    "line\n",
    "nul\0",
    "bell\x07",
    "\ud800",
    "ok\udfff",
    ".hidden",
    "-flag",
    "naïve",
    "a b",
]
WRONG_NAMES = [None, 5, b"bytes", ["list"], True]


def contents(folder):
    """Every file below the folder, with what it holds."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(Path(folder).rglob("*"))
    }


@pytest.fixture
def topic(store):
    topic = store.create_topic("orders")
    topic.write_many([b"1", b"2", b"3"])
    return topic


@pytest.fixture
def unchanged(store, topic):
    """Fails the test when it changed anything in the store."""
    before = contents(store.path)
    yield
    assert contents(store.path) == before


# Names.


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.usefixtures("unchanged")
def test_a_bad_name_is_refused_wherever_one_is_given(store, topic, name):
    for call in (
        lambda: store.create_topic(name),
        lambda: store.create_topic(name, exists_ok=True),
        lambda: store.topic(name),
        lambda: store.drop_topic(name),
        lambda: topic.reader(consumer=name),
        lambda: topic.add_consumer(name),
        lambda: topic.seek_consumer(name, 0),
        lambda: topic.drop_consumer(name),
    ):
        with pytest.raises(penstock.InvalidOption, match="cannot be the name") as refused:
            call()
        str(refused.value).encode()  # an error can always be printed
        assert "letters, digits" in refused.value.hint


@pytest.mark.parametrize("name", WRONG_NAMES)
@pytest.mark.usefixtures("unchanged")
def test_a_name_that_is_no_text_is_a_wrong_type(store, topic, name):
    for call in (
        lambda: store.create_topic(name),
        lambda: store.topic(name),
        lambda: store.drop_topic(name),
        lambda: topic.add_consumer(name),
    ):
        with pytest.raises(penstock.WrongType, match="name is a str"):
            call()


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "x" * 200, "0", "_", "orders.dead"])
def test_a_plain_name_is_fine(store, name):
    assert store.create_topic(name).name == name


@pytest.mark.usefixtures("unchanged")
def test_an_unknown_topic_names_those_there_are(store):
    for call in (lambda: store.topic("order"), lambda: store.drop_topic("order")):
        with pytest.raises(penstock.UnknownTopic, match="no topic 'order'") as unknown:
            call()
        assert "orders" in unknown.value.hint
        assert isinstance(unknown.value, LookupError)


# What is written.

WRONG_MESSAGES = [
    ({"value": 5}, penstock.WrongType, "value"),
    ({"value": {"a": 1}}, penstock.WrongType, "value"),
    ({"value": ["x"]}, penstock.WrongType, "value"),
    ({"value": "\ud800"}, penstock.InvalidOption, "surrogate"),
    ({"value": b"x" * (2**20 + 1)}, penstock.MessageTooLarge, "1048576"),
    ({"value": b"v", "key": 5}, penstock.WrongType, "key"),
    ({"value": b"v", "key": "\ud800"}, penstock.InvalidOption, "surrogate"),
    ({"value": b"v", "key": b"k" * 4097}, penstock.MessageTooLarge, "4096"),
    ({"value": b"v", "headers": {1: "x"}}, penstock.WrongType, "name"),
    ({"value": b"v", "headers": {"x": 1}}, penstock.WrongType, "'x'"),
    ({"value": b"v", "headers": {"x": None}}, penstock.WrongType, "'x'"),
    ({"value": b"v", "headers": {"\ud800": "x"}}, penstock.InvalidOption, "surrogate"),
    ({"value": b"v", "headers": {"x": "\ud800"}}, penstock.InvalidOption, "surrogate"),
    ({"value": b"v", "headers": {"x": b"h" * 32768}}, penstock.MessageTooLarge, "32768"),
    ({"value": b"v", "headers": ["x"]}, penstock.WrongType, "headers"),
    ({"value": b"v", "headers": "x=1"}, penstock.WrongType, "headers"),
    ({"value": b"v", "timestamp": "now"}, penstock.WrongType, "timestamp"),
    ({"value": b"v", "timestamp": 1.5}, penstock.WrongType, "timestamp"),
    ({"value": b"v", "timestamp": True}, penstock.WrongType, "timestamp"),
    ({"value": b"v", "timestamp": 2**63}, penstock.InvalidOption, "2262"),
    ({"value": b"v", "timestamp": -(2**63) - 1}, penstock.InvalidOption, "1677"),
    ({"value": b"v", "timestamp": datetime(2263, 1, 1, tzinfo=UTC)}, penstock.InvalidOption, "2262"),
    ({"value": b"v", "partition": 1}, penstock.InvalidOption, "partition"),
    ({"value": b"v", "partition": -1}, penstock.InvalidOption, "partition"),
    ({"value": b"v", "partition": "0"}, penstock.WrongType, "partition"),
    ({"value": b"v", "partition": True}, penstock.WrongType, "partition"),
]


@pytest.mark.parametrize(("message", "error", "says"), WRONG_MESSAGES)
def test_a_message_that_cannot_be_stored_says_why(store, topic, message, error, says):
    before = contents(store.path)
    value, rest = message["value"], {name: given for name, given in message.items() if name != "value"}
    with pytest.raises(error, match=says):
        topic.write(value, **rest)
    plural = {name if name == "partition" else name.rstrip("s") + "s": [x] for name, x in rest.items()}
    if "partition" in plural:
        plural["partition"] = rest["partition"]
    with pytest.raises(error, match=says):
        topic.write_many([value], **plural)
    with topic.writer() as writer, pytest.raises(error, match=says):
        writer.write(value, **rest)
    assert contents(store.path) == before


WRONG_BATCHES = [
    (b"one value", {}, penstock.WrongType),
    ("one value", {}, penstock.WrongType),
    (5, {}, penstock.WrongType),
    (None, {}, penstock.WrongType),
    ({"a": 1}, {}, penstock.WrongType),
    ([b"1", b"2"], {"keys": [b"k"]}, penstock.InvalidOption),
    ([b"1"], {"keys": b"k"}, penstock.WrongType),
    ([b"1"], {"timestamps": [1, 2]}, penstock.InvalidOption),
    ([b"1"], {"timestamps": 5}, penstock.WrongType),
    ([b"1", 2], {}, penstock.WrongType),
    ([b"1", b"x" * (2**20 + 1)], {}, penstock.MessageTooLarge),
    ([b"1", b"2"], {"keys": [b"k", b"k" * 4097]}, penstock.MessageTooLarge),
]


@pytest.mark.parametrize(("values", "rest", "error"), WRONG_BATCHES)
@pytest.mark.usefixtures("unchanged")
def test_of_many_messages_all_or_none_are_written(topic, values, rest, error):
    with pytest.raises(error):
        topic.write_many(values, **rest)
    with topic.writer() as writer, pytest.raises(error):
        writer.write_many(values, **rest)


@pytest.mark.usefixtures("unchanged")
def test_a_batch_brings_its_own_keys(topic):
    with pytest.raises(penstock.InvalidOption, match="its own"):
        topic.write_many(topic.read(), keys=[b"k"] * 3)


def test_timestamps_at_the_edges_are_fine(topic):
    for moment in (0, -1, -(2**63), 2**63 - 1, datetime(1968, 12, 24, tzinfo=UTC)):
        topic.write(b"v", timestamp=moment)
    assert [m.timestamp for m in topic.read(start=3)][:4] == [0, -1, -(2**63), 2**63 - 1]


# What is read.

WRONG_READS = [
    (lambda t: t.get(-1), penstock.InvalidOption),
    (lambda t: t.get("1"), penstock.WrongType),
    (lambda t: t.get(True), penstock.WrongType),
    (lambda t: t.get(2**63), penstock.InvalidOption),
    (lambda t: t.get(3), penstock.OffsetAhead),
    (lambda t: t.get(0, partition=1), penstock.InvalidOption),
    (lambda t: t.get(0, partition=-1), penstock.InvalidOption),
    (lambda t: t.get(0, partition="0"), penstock.WrongType),
    (lambda t: t.read(start=-1), penstock.InvalidOption),
    (lambda t: t.read(stop=-1), penstock.InvalidOption),
    (lambda t: t.read(start=4), penstock.OffsetAhead),
    (lambda t: t.read(limit=0), penstock.InvalidOption),
    (lambda t: t.read(limit=-1), penstock.InvalidOption),
    (lambda t: t.read(limit="all"), penstock.WrongType),
    (lambda t: t.read(partition=1), penstock.InvalidOption),
    (lambda t: t.read(partition="0"), penstock.WrongType),
    (lambda t: t.scan(partition=1), penstock.InvalidOption),
    (lambda t: t.scan(partition="0"), penstock.WrongType),
    (lambda t: t.scan(start=-1), penstock.InvalidOption),
    (lambda t: t.reader(partitions=[1]), penstock.InvalidOption),
    (lambda t: t.reader(partitions=["0"]), penstock.WrongType),
    (lambda t: t.reader(partitions=[-1]), penstock.InvalidOption),
    (lambda t: t.reader(partitions=0), penstock.WrongType),
    (lambda t: t.reader(partitions=[]), penstock.InvalidOption),
    (lambda t: t.reader().receive_batch(max_messages="x"), penstock.WrongType),
    (lambda t: t.reader().receive_batch(max_bytes=-1), penstock.InvalidOption),
]


@pytest.mark.parametrize(("call", "error"), WRONG_READS)
@pytest.mark.usefixtures("unchanged")
def test_a_read_that_makes_no_sense_says_so(topic, call, error):
    with pytest.raises(error):
        call(topic)


# Options.

WRONG_OPTIONS = [
    ({"colour": "red"}, penstock.InvalidOption, "colour"),
    ({"retention_s": 5}, penstock.InvalidOption, "retention_s"),
    ({"partitions": 0}, penstock.InvalidOption, "partitions"),
    ({"partitions": -1}, penstock.InvalidOption, "partitions"),
    ({"partitions": 10_001}, penstock.InvalidOption, "partitions"),
    ({"partitions": "3"}, penstock.WrongType, "partitions"),
    ({"partitions": True}, penstock.WrongType, "partitions"),
    ({"partitions": None}, penstock.WrongType, "partitions"),
    ({"retention": "soon"}, penstock.InvalidOption, "retention"),
    ({"retention": -1}, penstock.InvalidOption, "retention"),
    ({"retention": b"1h"}, penstock.WrongType, "retention"),
    ({"retention": float("nan")}, penstock.InvalidOption, "retention"),
    ({"max_bytes": "much"}, penstock.InvalidOption, "max_bytes"),
    ({"max_bytes": -5}, penstock.InvalidOption, "max_bytes"),
    ({"max_bytes": 1.5}, penstock.WrongType, "max_bytes"),
    ({"segment_bytes": 1}, penstock.InvalidOption, "segment_bytes"),
    ({"segment_bytes": None}, penstock.WrongType, "segment_bytes"),
    ({"segment_age": None}, penstock.WrongType, "segment_age"),
    ({"max_message_bytes": "1GiB"}, penstock.InvalidOption, "max_message_bytes"),
    ({"sync": "later"}, penstock.InvalidOption, "sync"),
    ({"sync": None}, penstock.InvalidOption, "sync"),
    ({"partitioner": "magic"}, penstock.InvalidOption, "partitioner"),
    ({"compress": "brotli"}, penstock.InvalidOption, "compress"),
    ({"compress": True}, penstock.InvalidOption, "compress"),
    ({"codecs": "zstd"}, penstock.WrongType, "codecs"),
    ({"codecs": 4}, penstock.WrongType, "codecs"),
    ({"codecs": ["brotli"]}, penstock.InvalidOption, "brotli"),
    ({"codecs": [5]}, penstock.InvalidOption, "5"),
    ({"codecs": [20_000]}, penstock.InvalidOption, "20000"),
    ({"codecs": [None]}, penstock.WrongType, "NoneType"),
    ({"codecs": range(10_000, 10_101)}, penstock.InvalidOption, "101 codecs"),
    ({"index": "value"}, penstock.InvalidOption, "index"),
    ({"index": True}, penstock.InvalidOption, "index"),
    ({"payloads": "ftp://files"}, penstock.InvalidOption, "cannot lie there"),
    ({"payloads": "s3://user:secret@bucket"}, penstock.InvalidOption, "no credentials"),
    ({"payloads": 5}, penstock.WrongType, "Payloads"),
    ({"payloads": {"above": "lots"}}, penstock.InvalidOption, "not a size"),
    ({"payloads": {"pack": None}}, penstock.WrongType, "pack"),
    ({"payloads": {"max_body": 0}}, penstock.InvalidOption, "out of range"),
]


@pytest.mark.parametrize(("options", "error", "says"), WRONG_OPTIONS)
@pytest.mark.usefixtures("unchanged")
def test_an_option_that_makes_no_sense_is_named(store, topic, options, error, says):
    with pytest.raises(error, match=says):
        store.create_topic("new", **options)
    with pytest.raises(error, match=says):
        topic.alter(**options)


@pytest.mark.parametrize(
    "options",
    [{"important": "yes"}, {"availability_period": "soon"}, {"availability_period": -1}],
)
@pytest.mark.usefixtures("unchanged")
def test_a_consumers_option_that_makes_no_sense_is_refused(topic, options):
    with pytest.raises((penstock.InvalidOption, penstock.WrongType)):
        topic.add_consumer("c", **options)


# Folders.


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_is_none_is_refused(path):
    with pytest.raises(penstock.InvalidOption):
        penstock.open(path)


@pytest.mark.parametrize("path", [None, 5, b"bytes", ["list"]])
def test_a_path_of_the_wrong_type_is_refused(path):
    with pytest.raises((penstock.WrongType, penstock.InvalidOption)):
        penstock.open(path)


def stranger(folder):
    (folder / "holiday.jpg").write_bytes(b"jpg")


def no_database(folder):
    (folder / "state.db").write_bytes(b"this is no database, whatever its name says" * 100)


def empty_database(folder):
    (folder / "state.db").write_bytes(b"")


def other_database(folder):
    with sqlite3.connect(folder / "state.db") as connection:
        connection.execute("PRAGMA application_id = 1234")
        connection.execute("CREATE TABLE mine (x)")
    connection.close()


def nameless_database(folder):
    with sqlite3.connect(folder / "state.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("fill", [stranger, no_database, other_database, nameless_database])
def test_a_folder_that_is_not_a_store_is_left_alone(tmp_path, fill, read_only):
    folder = tmp_path / "mine"
    folder.mkdir()
    fill(folder)
    before = contents(folder)
    with pytest.raises(penstock.NotAStore) as refused:
        penstock.open(folder, read_only=read_only)
    assert str(folder) in str(refused.value)
    assert contents(folder) == before


def test_an_empty_database_is_what_a_crash_at_creation_leaves_and_becomes_a_store(tmp_path):
    empty_database(tmp_path)
    with penstock.open(tmp_path) as store:
        assert store.topics() == []


def test_a_file_is_no_store(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"mine")
    for options in ({}, {"read_only": True}):
        with pytest.raises(penstock.NotAStore, match="a file"):
            penstock.open(path, **options)
        with pytest.raises((penstock.NotAStore, penstock.ReadOnly)):
            penstock.open(path / "below", **options)
    assert path.read_bytes() == b"mine"


def test_a_store_of_a_newer_format_is_left_alone(tmp_path):
    penstock.open(tmp_path / "data").close()
    connection = sqlite3.connect(tmp_path / "data" / "state.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = contents(tmp_path / "data")
    for options in ({}, {"read_only": True}, {"exclusive": True}):
        with pytest.raises(penstock.UnknownFormat, match="format 99") as newer:
            penstock.open(tmp_path / "data", **options)
        assert "upgrade" in newer.value.hint
    after = contents(tmp_path / "data")
    assert after == before


class ReadOnlyDisk(Files):
    """A disk mounted read-only, or a folder that belongs to someone else."""

    def __init__(self, number):
        self._error = OSError(number, os.strerror(number))

    def _refuse(self, *args, **kwargs):
        raise self._error

    pwrite = pwritev = truncate = rename = unlink = make_dirs = remove_dir = allocate = sync_dir = _refuse

    def open(self, path, *, create=False, write=True, exclusive=False):
        if write or create:
            self._refuse()
        return super().open(path, create=create, write=write, exclusive=exclusive)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_folder_that_cannot_be_written_is_said_to_be_so(store, topic, tmp_path, number):
    disk = ReadOnlyDisk(number)
    before = contents(tmp_path)
    for folder in (tmp_path / "data", tmp_path / "new"):
        with pytest.raises(penstock.ReadOnly, match=str(folder)):
            penstock.open(folder, files=disk)
    assert contents(tmp_path) == before
    with penstock.open(tmp_path / "data", files=disk, read_only=True) as reading:
        assert len(reading.topic("orders").read()) == 3


class TurnsReadOnly(Files):
    """A disk that the kernel mounts read-only when it meets an error."""

    is_read_only = False

    def pwritev(self, fd, parts, at):
        if self.is_read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return super().pwritev(fd, parts, at)


def test_a_disk_that_turns_read_only_refuses_writes_and_keeps_what_it_has(tmp_path):
    disk = TurnsReadOnly()
    with penstock.open(tmp_path / "data", files=disk) as store:
        topic = store.create_topic("orders")
        topic.write(b"1")
        disk.is_read_only = True
        with pytest.raises(penstock.ReadOnly):
            topic.write(b"2")
        assert [m.value for m in topic.read()] == [b"1"]
        disk.is_read_only = False
        assert topic.write(b"2").offset == 1


# Network file systems.

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:44 / /made-up/nfs rw,relatime shared:2 - nfs4 server:/export rw
24 22 0:45 / /made-up/share\\040one rw - cifs //server/share rw
25 22 0:46 / /made-up/s3 rw - fuse.s3fs s3fs rw
26 22 0:47 / /made-up/stick rw - fuseblk /dev/sdb1 rw
27 23 8:2 / /made-up/nfs/local rw - xfs /dev/sdc1 rw
28 22 0:48 / /made-up/shm rw - tmpfs tmpfs rw
"""


@pytest.fixture
def mounts(tmp_path):
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS)
    return str(path)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/made-up/nfs/data", "nfs4"),
        ("/made-up/nfs", "nfs4"),
        ("/made-up/share one/x", "cifs"),
        ("/made-up/s3/a", "fuse.s3fs"),
    ],
)
def test_a_network_file_system_is_refused(mounts, path, kind):
    with pytest.raises(penstock.InvalidOption, match="network file system") as refused:
        refuse_network_file_system(path, mounts)
    assert kind in str(refused.value)
    assert "local disk" in refused.value.hint


@pytest.mark.parametrize(
    "kind",
    [
        "nfs",
        "cifs",
        "smb3",
        "9p",
        "ceph",
        "glusterfs",
        "lustre",
        "beegfs",
        "gpfs",
        "afs",
        "virtiofs",
        "fuse.sshfs",
    ],
)
def test_every_network_file_system_is_refused_by_its_name(tmp_path, kind):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:44 / /made-up rw - {kind} server:/x rw\n"
    )
    with pytest.raises(penstock.InvalidOption, match="network file system"):
        refuse_network_file_system("/made-up/data", str(mounts))
    refuse_network_file_system("/srv/data", str(mounts))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/data", "ext4"),
        ("/made-up/nfs-like", "ext4"),
        ("/made-up/stick/data", "fuseblk"),
        ("/made-up/nfs/local/data", "xfs"),
        ("/made-up/shm/x", "tmpfs"),
    ],
)
def test_a_local_file_system_is_fine(mounts, path, kind):
    assert file_system(path, mounts) == kind
    refuse_network_file_system(path, mounts)


def test_a_system_without_mountinfo_is_trusted(tmp_path):
    refuse_network_file_system("/anywhere", str(tmp_path / "not there"))


# The clock.


def test_a_small_step_back_of_the_clock_is_not_noticed(topic, clock):
    before = clock.now_ns()
    clock.set(before - 1800 * 10**9)
    topic.write(b"4")
    assert topic.get(3).written_at == before
    assert topic.get(3).timestamp == before - 1800 * 10**9
    assert topic.stats().partitions[0].segments == 1


def test_a_large_step_back_of_the_clock_begins_a_new_segment_with_a_warning(store, topic, clock, caplog):
    before = clock.now_ns()
    clock.set(before - 5 * 3600 * 10**9)
    topic.write(b"4")
    assert "clock was set back" in caplog.text
    assert store.flush_housekeeping()
    assert topic.stats().partitions[0].segments == 2
    assert topic.get(3).written_at == before - 5 * 3600 * 10**9
    assert [m.value for m in topic.read()] == [b"1", b"2", b"3", b"4"]
    clock.advance("10m")
    topic.write(b"5")
    assert topic.stats().partitions[0].segments == 2
    topic.alter(retention="1h")
    assert topic.vacuum().messages == 0, "nothing is older than an hour, whichever clock was right"


def test_a_clock_that_stepped_back_does_not_disturb_a_seek_to_what_came_before_or_after(store, topic, clock):
    began = clock.now_ns()
    clock.advance("1h")
    topic.write(b"4")
    clock.set(began - 5 * 3600 * 10**9)
    topic.write(b"5")
    with topic.reader(start=datetime(2029, 12, 31, tzinfo=UTC), follow=False) as reader:
        assert len(list(reader)) == 5


# Crashes inside create and drop.


def leftover_folder(folder):
    """What a crash leaves inside `drop_topic`: the row is gone, the folder is there, with its mark."""
    shutil.copytree(folder / "topics" / "orders", folder / "topics" / "ghost")
    (folder / "topics" / "ghost" / "dropped").write_bytes(b"1\n")


def test_a_folder_without_a_topic_is_cleared_away_when_the_store_is_opened(store, topic, tmp_path, clock):
    store.close()
    leftover_folder(tmp_path / "data")
    with penstock.open(tmp_path / "data", clock=clock) as again:
        assert [each.name for each in again.topics()] == ["orders"]
        assert os.listdir(tmp_path / "data" / "topics") == ["orders"]
        assert len(again.topic("orders").read()) == 3
        assert again.create_topic("ghost").stats().messages == 0


def test_a_folder_left_behind_is_never_taken_for_a_new_topic(store, topic, tmp_path):
    leftover_folder(tmp_path / "data")
    ghost = store.create_topic("ghost")
    assert ghost.stats().messages == 0
    assert ghost.write(b"first").offset == 0


def test_a_read_only_store_leaves_leftovers_alone(store, topic, tmp_path):
    store.close()
    leftover_folder(tmp_path / "data")
    before = contents(tmp_path / "data")
    with penstock.open(tmp_path / "data", read_only=True) as reading:
        assert [each.name for each in reading.topics()] == ["orders"]
    assert contents(tmp_path / "data") == before


def test_a_topic_without_a_folder_is_what_a_crash_in_create_leaves_and_is_made_whole(store, tmp_path, clock):
    store.create_topic("orders", partitions=2)
    store.close()
    shutil.rmtree(tmp_path / "data" / "topics" / "orders")
    with penstock.open(tmp_path / "data", read_only=True) as reading:
        assert reading.topic("orders").stats().messages == 0
        assert len(reading.topic("orders").read()) == 0
    with penstock.open(tmp_path / "data", clock=clock) as again:
        orders = again.topic("orders")
        assert orders.options.partitions == 2
        assert orders.write(b"1", partition=1).offset == 0
        assert [m.value for m in orders.read()] == [b"1"]


def test_a_half_removed_topic_is_cleared_away(store, topic, tmp_path):
    """A crash inside the removal: the folder was renamed away already."""
    store.close()
    os.rename(tmp_path / "data" / "topics" / "orders", tmp_path / "data" / "topics" / ".dropped-0123")
    connection = sqlite3.connect(tmp_path / "data" / "state.db")
    with connection:
        connection.execute("DELETE FROM topics")
    connection.close()
    with penstock.open(tmp_path / "data") as again:
        assert again.topics() == []
        assert os.listdir(tmp_path / "data" / "topics") == []


def test_a_crash_between_the_positions_and_the_drop_leaves_the_topic_whole(store, topic, monkeypatch):
    """Everything is forgotten in one transaction, or nothing is."""
    topic.add_consumer("c")

    def crash(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(store._records, "drop", crash)
    with pytest.raises(KeyboardInterrupt):
        store.drop_topic("orders")
    monkeypatch.undo()
    store.close()
    with penstock.open(store.path) as again:
        assert again.consumers() == ["c"]
        assert [each.name for each in again.topics()] == ["orders"]


# Promises of issue 3: each refusal has an error of its own, and changes nothing on disk.


def test_a_seqno_that_goes_back_within_a_writer_is_refused(store, topic):
    with topic.writer(producer_id="p") as writer:
        writer.write(b"4", seqno=7)
        writer.flush()
        before = contents(store.path)
        with pytest.raises(penstock.InvalidOption, match="seqno 6 after 7") as refused:
            writer.write(b"5", seqno=6)
        assert "new writer" in refused.value.hint
        writer.flush()
        assert contents(store.path) == before
    assert [message.value for message in topic.read()] == [b"1", b"2", b"3", b"4"]


@pytest.mark.usefixtures("unchanged")
def test_ids_that_are_too_long_are_refused(topic):
    for options in ({"producer_id": "p" * 2049}, {"group": "g" * 2049}, {"producer_id": ""}):
        with pytest.raises(penstock.InvalidOption, match=r"2048|empty"):
            topic.writer(**options)


@pytest.mark.parametrize(
    ("codec", "error"),
    [("brotli", "brotli"), (9, "9"), (10_777, "10777"), (20_000, "20000")],
)
@pytest.mark.usefixtures("unchanged")
def test_an_unknown_codec_is_refused_when_the_writer_is_opened(topic, codec, error):
    with pytest.raises(penstock.PenstockError, match=error):
        topic.writer(codec=codec)


def test_a_message_of_another_reader_is_refused(store, topic):
    store.create_topic("others").write(b"x")
    with topic.reader(consumer="c") as reader, store.topic("others").reader(consumer="c") as other:
        reader.receive(timeout=5)
        theirs = other.receive(timeout=5)
        before = contents(store.path)
        with pytest.raises(penstock.InvalidOption, match="others"):
            reader.commit(theirs)
        with store.transaction() as tx, pytest.raises(penstock.InvalidOption, match="others"):
            reader.commit(theirs, tx=tx)
        assert contents(store.path) == before


@pytest.mark.usefixtures("unchanged")
def test_a_nested_transaction_is_refused_and_the_outer_one_goes_on(store, topic):
    with store.transaction() as outer:
        outer.write(topic, b"never stored")
        with pytest.raises(penstock.UsageError, match="nested") as refused:
            store.transaction()
        assert refused.value.hint
        outer.rollback()


def test_a_transaction_left_open_is_rolled_back_and_said_so(tmp_path, caplog):
    store = penstock.open(tmp_path / "left")
    store.create_topic("orders").write(b"1")
    tx = store.transaction()
    tx.write_many("orders", [b"x" * 1000] * 200)
    store.close()
    assert "left open" in caplog.text
    with pytest.raises(penstock.Closed, match="rolled back"):
        tx.commit()
    assert not list(tmp_path.rglob("*.staged"))
    with penstock.open(tmp_path / "left") as again:
        assert [message.value for message in again.topic("orders").read()] == [b"1"]


@pytest.mark.parametrize("name", ["../c", "a/b", "/etc/c", "c/..", ".."])
@pytest.mark.usefixtures("unchanged")
def test_a_consumers_name_that_is_a_path_is_refused(store, topic, name):
    for call in (
        lambda: topic.reader(consumer=name),
        lambda: store.reader(["orders"], consumer=name),
        lambda: topic.add_consumer(name),
        lambda: topic.kick_consumer(name),
        lambda: topic.alter_consumer(name, important=True),
    ):
        with pytest.raises(penstock.InvalidOption, match="cannot be the name"):
            call()
