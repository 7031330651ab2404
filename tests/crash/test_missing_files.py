"""Everything but `.data` is made again when it is missing, short or wrong (W004-07).

And when a whole segment is gone, that is said: nobody reads past it in silence (W004-06).
"""

import os
import random
import shutil

import pytest

import penstock
from penstock.errors import OutOfRange
from tests.crash.scenario import HandClock
from tests.crash.tracing import FIRST_BOOT, BootFiles
from tests.kit.logs import do_housekeeping, seal_segment
from tests.kit.logs import segment_index_module as segment_index
from tests.kit.topics import inside

PARTITION = os.path.join("topics", "orders", "parts", "000000")
SEGMENTS = [range(40), range(40, 80), range(80, 120)]
BASES = [segment.start for segment in SEGMENTS]
SECOND_NS = 1_000_000_000


def value(offset):
    return b"%d " % offset + b"y" * (offset % 50)


def opened(folder, boot=FIRST_BOOT):
    return penstock.open(folder, files=BootFiles(boot), clock=HandClock())


def filled(folder, **options):
    """Two sealed, tidied segments and an active one, a message a second."""
    clock = HandClock()
    with penstock.open(folder, files=BootFiles(FIRST_BOOT), clock=clock) as store:
        topic = store.create_topic("orders", **options)
        log = inside(topic).log(0)
        for segment in SEGMENTS:
            if segment.start:
                seal_segment(log)
            for offset in segment:
                clock.forward(SECOND_NS)
                topic.write(value(offset))
        do_housekeeping(log)
    return os.path.join(folder, PARTITION)


def everything(store):
    with store.topic("orders").reader(follow=False) as reader:
        return {message.offset: message.value for message in reader}


ALL = {offset: value(offset) for segment in SEGMENTS for offset in segment}


def missing(path):
    os.unlink(path)


def short(path):
    os.truncate(path, os.path.getsize(path) * 2 // 3)


def empty(path):
    os.truncate(path, 0)


def longer(path):
    with open(path, "ab") as file:
        file.write(b"more")


def flipped(path):
    with open(path, "r+b") as file:
        chance = random.Random(7)
        data = bytearray(file.read())
        data[chance.randrange(len(data))] ^= 16
        file.seek(0)
        file.write(data)


def of_another_segment(path):
    other = path.replace(f"{BASES[0]:020d}", f"{BASES[1]:020d}")
    shutil.copy(other, path)


def of_another_store(path):
    """The same names, offsets and sizes in another store: sound in itself, and not ours."""
    folder = os.path.join(os.path.dirname(path), "..", "..", "..", "..", "..", "other")
    clock = HandClock()
    with penstock.open(folder, files=BootFiles(FIRST_BOOT), clock=clock) as store:
        topic = store.create_topic("orders")
        for number in range(40):
            topic.write(b"of another store" * (2000 if number % 2 else 1))  # two frames when repacked
        seal_segment(inside(topic).log(0))
        do_housekeeping(inside(topic).log(0))
    shutil.copy(os.path.join(folder, PARTITION, os.path.basename(path)), path)


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "spoil", [missing, short, empty, longer, flipped, of_another_segment, of_another_store]
)
def test_an_index_that_does_not_fit_is_made_again(scratch, spoil, kind):
    folder = os.path.join(scratch, "store")
    partition = filled(folder)
    path = os.path.join(partition, f"{BASES[0]:020d}{kind}")
    with open(path, "rb") as file:
        right = file.read()
    spoil(path)
    with opened(folder) as store:
        topic = store.topic("orders")
        assert everything(store) == ALL
        assert topic.get(17).value == value(17)
        log = inside(topic).log(0)
        first_ns = topic.get(0).written_at
        assert [log.offset_at(first_ns + n * SECOND_NS) for n in (0, 1, 17, 39, 40)] == [0, 1, 17, 39, 40]
        do_housekeeping(log)
        assert segment_index.load(
            log.folder, BASES[0], log.segments.sealed(0).generation, log.segments.sealed(0).salt
        )
    with opened(folder) as store:
        assert everything(store) == ALL
    if spoil is not of_another_store:
        with open(path, "rb") as file:
            assert file.read() == right


def test_all_indexes_may_be_missing_at_once(scratch):
    folder = os.path.join(scratch, "store")
    partition = filled(folder)
    for name in os.listdir(partition):
        if name.endswith("index"):
            os.unlink(os.path.join(partition, name))
    with opened(folder) as store:
        assert everything(store) == ALL


@pytest.mark.parametrize("sync", ["disk", "os"])
@pytest.mark.parametrize("boot", [FIRST_BOOT, FIRST_BOOT + 1], ids=["running", "restarted"])
@pytest.mark.parametrize("spoil", [missing, short, empty, flipped])
@pytest.mark.parametrize("records", [("append",), ("tail",), ("append", "tail")])
def test_records_that_are_gone_or_wrong_are_made_again(scratch, records, spoil, boot, sync):
    folder = os.path.join(scratch, "store")
    partition = filled(folder, sync=sync)
    for record in records:
        spoil(os.path.join(partition, record))
    with opened(folder, boot) as store:
        topic = store.topic("orders")
        assert everything(store) == ALL
        assert topic.write(b"more").offset >= len(ALL)
        assert b"more" in everything(store).values()


def test_offsets_are_not_given_again_when_all_expired_and_every_record_is_gone(scratch):
    """W000-2, W002-1: the active segment's name keeps the high-water mark."""
    folder = os.path.join(scratch, "store")
    partition = filled(folder, retention="1h")
    clock = HandClock()
    clock.forward(7200 * SECOND_NS)
    with penstock.open(folder, files=BootFiles(FIRST_BOOT), clock=clock) as store:
        assert store.topic("orders").vacuum().messages == len(ALL)
        assert everything(store) == {}
    for record in ("append", "tail"):
        os.unlink(os.path.join(partition, record))
    with penstock.open(folder, files=BootFiles(FIRST_BOOT + 1), clock=clock) as store:
        assert everything(store) == {}
        assert store.topic("orders").write(b"more").offset == len(ALL)


@pytest.mark.parametrize("boot", [FIRST_BOOT, FIRST_BOOT + 1], ids=["running", "restarted"])
@pytest.mark.parametrize("gone", [0, 1])
def test_a_segment_that_is_gone_is_said(scratch, gone, boot):
    """Offsets that were left out on purpose are marked as such; others are missed."""
    folder = os.path.join(scratch, "store")
    partition = filled(folder)
    for name in os.listdir(partition):
        if name.startswith(f"{BASES[gone]:020d}"):
            os.unlink(os.path.join(partition, name))
    lost = SEGMENTS[gone]
    with opened(folder, boot) as store:
        with pytest.raises((OutOfRange, penstock.Corrupt)):
            everything(store)
        with store.topic("orders").reader(follow=False, on_gap="skip") as reader:
            stored = {message.offset: message.value for message in reader}
            assert stored == {offset: each for offset, each in ALL.items() if offset not in lost}
            assert [(gap.first, gap.stop) for gap in reader.gaps] == [(lost.start, lost.stop)]
        assert store.topic("orders").write(b"more").offset == len(ALL)


def test_an_active_segment_that_is_gone_is_said_at_once(scratch):
    folder = os.path.join(scratch, "store")
    partition = filled(folder)
    os.unlink(os.path.join(partition, f"{BASES[-1]:020d}.data"))
    with opened(folder) as store:
        topic = store.topic("orders")
        for look in (lambda: everything(store), lambda: topic.get(90)):
            with pytest.raises(penstock.Corrupt, match="missing"):
                look()
