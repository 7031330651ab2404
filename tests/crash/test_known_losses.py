"""A known loss stays known (docs/RECOVERY.md): what was acknowledged and is gone is never taken for a gap.

Bytes vanish behind the back of everyone: a bad copy, a failing disk. Whatever still knows of them tells.
"""

import os
import shutil

import pytest

import penstock
from penstock.errors import Corrupt, NotDurable
from tests.crash.tracing import FIRST_BOOT, BootFiles
from tests.kit.frames import encode
from tests.kit.logs import lost_module as lost
from tests.kit.stores import StoreVerifier
from tests.kit.topics import inside

PARTITION = os.path.join("topics", "orders", "parts", "000000")
COUNT = 100
#: Bytes of one of these messages in a segment.
FRAME = 136
ALL = {offset: b"%d " % offset + b"x" * 60 for offset in range(COUNT)}


def opened(folder, boot):
    return penstock.open(folder, files=BootFiles(boot))


@pytest.fixture
def store(scratch):
    """The folder of a store whose one topic holds ALL in several segments."""
    folder = os.path.join(scratch, "store")
    with opened(folder, FIRST_BOOT) as store:
        topic = store.create_topic("orders", segment_bytes=4096)
        for value in ALL.values():
            topic.write(value)
        store.flush_housekeeping()
    return folder


def data_files(store):
    folder = os.path.join(store, PARTITION)
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".data")]


def base_of(path):
    return int(os.path.basename(path)[:20])


def strict(topic):
    """The offsets that a strict reader gets, and the range it stumbles over."""
    offsets = []
    try:
        with topic.reader(follow=False) as reader:
            offsets.extend(message.offset for message in reader)
    except Corrupt as error:
        return offsets, (error.first, error.stop)
    return offsets, None


def skipping(topic):
    with topic.reader(follow=False, on_gap="skip") as reader:
        return [message.offset for message in reader], [(gap.first, gap.stop) for gap in reader.gaps]


def damages(store, boot):
    found = StoreVerifier(store, files=BootFiles(boot)).findings()
    return [(each.first, each.stop) for each in found if each.severity == "damage" and each.first is not None]


def check_lost(store, first, stop, *, boots):
    """The range is lost for strict readers, a gap for others, damage for verify; after any opening."""
    left = [offset for offset in range(COUNT) if not first <= offset < stop]
    for boot in boots:
        with opened(store, boot) as opening:
            topic = opening.topic("orders")
            assert strict(topic) == ([offset for offset in left if offset < first], (first, stop))
            assert skipping(topic) == (left, [(first, stop)])
            with pytest.raises(Corrupt, match=r"lost|damaged"):
                topic.get(first)
            left.append(topic.write(b"more").offset)
            assert left[-1] >= COUNT
            assert strict(topic)[1] == (first, stop)
            assert skipping(topic)[1][0] == (first, stop)
        assert (first, stop) in damages(store, boot)


@pytest.mark.parametrize("gone", [1, 2], ids=["the last", "the last two"])
def test_segments_that_are_gone_from_the_end_stay_lost(store, gone):
    files = data_files(store)
    for path in files[-gone:]:
        os.unlink(path)
    check_lost(store, base_of(files[-gone]), COUNT, boots=[2, 2, 3, 4])


@pytest.mark.parametrize("cut", [0, 64, 64 + 3 * FRAME, 64 + 3 * FRAME + 30])
@pytest.mark.parametrize("zeros", [False, True], ids=["short", "zeros"])
def test_a_last_segment_that_lost_its_end_stays_short_of_it(store, cut, zeros):
    path = data_files(store)[-1]
    size = os.path.getsize(path)
    os.truncate(path, cut)
    if zeros:
        os.truncate(path, size)
    first = base_of(path) + max(cut - 64, 0) // FRAME
    check_lost(store, first, COUNT, boots=[2, 2, 3])


@pytest.mark.parametrize("cut", [None, 64, 64 + 3 * FRAME])
def test_who_may_only_read_is_told_before_anyone_has_recovered(store, cut):
    path = data_files(store)[-1]
    if cut is None:
        os.unlink(path)
    else:
        os.truncate(path, cut)
    first = base_of(path) + max((cut or 0) - 64, 0) // FRAME
    with penstock.open(store, read_only=True, files=BootFiles(2)) as opening:
        offsets, missing = strict(opening.topic("orders"))
        assert offsets == list(range(first))
        assert missing is not None
        assert missing[0] == first
        assert skipping(opening.topic("orders")) == (offsets, [(first, COUNT)])
    assert not os.path.exists(os.path.join(store, PARTITION, lost.FILE))


def test_a_missing_last_segment_of_a_running_machine_is_lost_and_writers_go_on(store):
    path = data_files(store)[-1]
    os.unlink(path)
    with opened(store, FIRST_BOOT) as opening:
        assert opening.topic("orders").write(b"more").offset == COUNT
        assert strict(opening.topic("orders"))[1] == (base_of(path), COUNT)
    assert (base_of(path), COUNT) in damages(store, FIRST_BOOT)


def test_who_waits_for_what_is_lost_is_not_told_that_it_went_well(store):
    """Its frames went with the file, and recovery begins behind their offsets: D passes them."""
    with opened(store, FIRST_BOOT) as here, opened(store, FIRST_BOOT) as there:
        log = inside(here.topic("orders")).log(0)
        appended = log.appender.append([encode([b"not yet durable"], created=1)])
        os.unlink(data_files(store)[-1])
        assert there.topic("orders").write(b"more").offset == COUNT + 1
        assert log.folder.read_durable().end > appended.next
        with pytest.raises(NotDurable):
            log.syncer.sync(appended.next, appended.cuts)


def test_a_partition_without_any_segment_left_is_lost_as_a_whole(store):
    for path in data_files(store):
        os.unlink(path)
    with opened(store, 2) as opening:
        topic = opening.topic("orders")
        assert topic.write(b"more").offset == COUNT
        assert strict(topic) == ([], (0, COUNT))
        assert skipping(topic) == ([COUNT], [(0, COUNT)])
    assert (0, COUNT) in damages(store, 2)


def test_a_committed_position_knows_of_a_loss_when_no_record_does(store):
    """A consumer has read it, so it was durable."""
    with opened(store, FIRST_BOOT) as opening:
        with opening.topic("orders").reader(consumer="audit", follow=False) as reader:
            for message in reader:
                reader.commit(message)
    path = data_files(store)[-1]
    os.unlink(path)
    for record in ("append", "tail"):
        os.unlink(os.path.join(store, PARTITION, record))
    with opened(store, 2) as opening:
        assert strict(opening.topic("orders"))[1] == (base_of(path), COUNT)


def test_a_checkpoint_knows_of_a_loss_when_no_record_does(store):
    """An index or a checkpoint of a segment proves that there was one, and everything before it."""
    with opened(store, FIRST_BOOT) as opening:
        log = inside(opening.topic("orders")).log(0)
        with log.folder.housekeeping():
            log.tidy()
    last, before = data_files(store)[-1], data_files(store)[-2]
    for path in (last, before):
        os.unlink(path)
    for record in ("append", "tail"):
        os.unlink(os.path.join(store, PARTITION, record))
    with opened(store, 2) as opening:
        assert strict(opening.topic("orders"))[1] == (base_of(before), base_of(last))


def test_offsets_that_were_never_acknowledged_are_no_loss(scratch):
    """A power cut takes what a sync="os" topic had not synced; offsets set aside are not given again."""
    folder = os.path.join(scratch, "store")
    with opened(folder, FIRST_BOOT) as store:
        topic = store.create_topic("orders", sync="os")
        for _ in range(5):
            topic.write(b"kept")
        inside(topic).log(0).sync_all()
        shutil.copytree(folder, os.path.join(scratch, "image"))
    folder = os.path.join(scratch, "image")
    with opened(folder, 2) as store:
        topic = store.topic("orders")
        later = topic.write(b"later").offset
        assert later > 5
        assert strict(topic) == ([0, 1, 2, 3, 4, later], None)
        assert skipping(topic) == ([0, 1, 2, 3, 4, later], [])
    assert damages(folder, 2) == []
    assert not os.path.exists(os.path.join(folder, PARTITION, lost.FILE))


def test_a_damaged_list_of_losses_makes_every_gap_a_loss(store):
    path = data_files(store)[-1]
    os.unlink(path)
    with opened(store, 2) as opening:
        opening.topic("orders").write(b"more")
    listed = os.path.join(store, PARTITION, lost.FILE)
    with open(listed, "r+b") as file:
        file.seek(30)
        file.write(b"\xff")
    with opened(store, 3) as opening:
        assert strict(opening.topic("orders"))[1] == (base_of(path), COUNT)
        assert skipping(opening.topic("orders"))[1] == [(base_of(path), COUNT)]
    found = [each for each in StoreVerifier(store, files=BootFiles(3)).findings() if each.path == listed]
    assert [each.severity for each in found] == ["damage"]
