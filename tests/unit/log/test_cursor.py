"""Reading a partition: a place that moves forward, places by time and by key."""

import shutil

import pytest

from penstock.errors import Corrupt
from penstock.keys import match
from penstock.log.producers import Pair
from penstock.options import TopicOptions
from tests.kit.frames import encode
from tests.kit.logs import log_without_store


@pytest.fixture
def log(tmp_path):
    log = log_without_store(str(tmp_path / "000000"), TopicOptions())
    log.appender.append([encode([b"%d" % number for number in range(10)], created=1)])
    log.appender.append([encode([b"x"], created=1)])
    log.sync_all()
    yield log
    log.close()


@pytest.mark.parametrize("sealed", [False, True], ids=["active", "sealed"])
@pytest.mark.parametrize("max_bytes", [0, -1, 1])
def test_one_message_is_read_however_few_bytes_are_asked_for(log, sealed, max_bytes):
    if sealed:
        log.appender.seal_active()
    cursor, offsets = log.cursor(0), []
    while rows := cursor.read(5, max_bytes):
        offsets += [message.offset for each in rows for message in each.messages()]
    assert offsets == list(range(11))


@pytest.mark.parametrize("far", [False, True])
def test_a_segment_without_messages_is_passed_over(tmp_path, far):
    log = log_without_store(str(tmp_path / "000000"), TopicOptions())
    log.appender.take_over(Pair("shop", ""))
    log.appender.leave_out(7)
    log.appender.append([encode([b"x"], created=1)])
    log.sync_all()
    rows = log.cursor(0, far=far).read(5, 100)
    assert [message.offset for each in rows for message in each.messages()] == [7]
    log.close()


def test_no_message_is_read_when_none_is_asked_for(log):
    cursor = log.cursor(3)
    assert cursor.read(0, 100) == []
    assert cursor.offset == 3


def test_a_repacked_file_in_the_place_of_the_active_segment_is_damage_for_all_who_look(tmp_path):
    """Restored under the wrong name: nobody may wait for ever for the segment that bounds speak of."""
    log = log_without_store(str(tmp_path / "a"), TopicOptions(index="key"))
    for _ in range(50):
        log.appender.append([encode([b"x"], [b"k"], created=1)])
    log.appender.seal_active()
    assert log.tidy()
    other = log_without_store(str(tmp_path / "b"), TopicOptions(index="key"))
    other.appender.append([encode([b"y"], [b"k"], created=1)])
    other.sync_all()
    shutil.copyfile(log.folder.segment_path(0), other.folder.segment_path(0))
    for look in (
        lambda: other.cursor(0).read(1, 1),
        lambda: other.offset_at(5),
        lambda: other.keys.oldest(match([b"k"]), 0, 1, 10),
        lambda: other.segments.message(0),
    ):
        with pytest.raises(Corrupt, match="missing"):
            look()
    for each in (log, other):
        each.close()
