"""A place in a partition that moves forward as it reads."""

import pytest

from penstock.log.frame_encode import encode
from penstock.options import TopicOptions
from tests.kit.logs import lone_log


@pytest.fixture
def log(tmp_path):
    log = lone_log(str(tmp_path / "000000"), TopicOptions())
    log.append([encode([b"%d" % number for number in range(10)], created=1)])
    log.append([encode([b"x"], created=1)])
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


def test_no_message_is_read_when_none_is_asked_for(log):
    cursor = log.cursor(3)
    assert cursor.read(0, 100) == []
    assert cursor.offset == 3
