"""Flipped bits: damage is named with file and byte, its neighbours stay readable, nothing behind it is cut.

Also W004-07: bytes that are no frame do not make the rest unreadable, and an index that does not fit is
made again.
"""

import os
import random
from pathlib import Path

import pytest

import penstock
from penstock.errors import Corrupt
from tests.crash.tracing import FIRST_BOOT, BootFiles
from tests.kit.frames import frame_module as frame
from tests.kit.logs import SEGMENT_HEADER_BYTES, do_housekeeping, seal_segment
from tests.kit.logs import segment_index_module as segment_index
from tests.kit.stores import StoreVerifier
from tests.kit.topics import inside

VALUES = [b"message %d " % number + b"x" * 20 for number in range(30)]
PARTITION = os.path.join("topics", "orders", "parts", "000000")


def opened(folder, boot=FIRST_BOOT, **options):
    return penstock.open(folder, files=BootFiles(boot), **options)


def filled(folder, *, segment_bytes=1 << 20, seal=False, tidy=False):
    """A store whose one topic holds VALUES, a frame each; perhaps sealed, perhaps indexed and repacked."""
    with opened(folder) as store:
        topic = store.create_topic("orders", segment_bytes=segment_bytes)
        for value in VALUES:
            topic.write(value)
        if seal:
            seal_segment(inside(topic).log(0))
        if tidy:
            do_housekeeping(inside(topic).log(0))
    return os.path.join(folder, PARTITION, f"{0:020d}.data")


def frames_of(path):
    """(byte, frame) of everything in a data file."""
    with open(path, "rb") as file:
        return [(at, found) for at, found in frame.walk(file.read(), SEGMENT_HEADER_BYTES)]


def flip(path, byte, bit=0):
    with open(path, "r+b") as file:
        file.seek(byte)
        old = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([old ^ (1 << bit)]))


def read_skipping(store):
    """(offset → value) of what can be read, and the gaps that were passed over."""
    with store.topic("orders").reader(follow=False, on_gap="skip") as reader:
        return {message.offset: message.value for message in reader}, reader.gaps


def bytes_to_flip(path, seed):
    """One byte in every region of a frame in the middle: each header field, each part of the body.

    Not in the magic: without it the frame is hard to find, but what it says is sound.
    """
    at, found = frames_of(path)[12]
    header = range(at + 4, at + found.head.header_length)
    body = range(at + found.head.header_length, at + found.head.header_length + found.head.body_length)
    chance = random.Random(seed)
    print(f"seed {seed}")
    return [(at, byte) for byte in [*header[::4], *chance.sample(body, 6)]]


@pytest.mark.parametrize("boot", [FIRST_BOOT, FIRST_BOOT + 1], ids=["running", "restarted"])
@pytest.mark.parametrize("sealed", [False, True], ids=["active", "sealed"])
def test_a_flipped_bit_costs_one_frame_and_is_named(scratch, sealed, boot):
    path = filled(os.path.join(scratch, "pattern"), seal=sealed)
    for case, (at, byte) in enumerate(bytes_to_flip(path, seed=case_seed(sealed, boot))):
        folder = os.path.join(scratch, str(case))
        data = filled(folder, seal=sealed)
        flip(data, byte, bit=case % 8)
        with opened(folder, boot) as store:
            with pytest.raises(Corrupt) as caught:
                list(store.topic("orders").reader(follow=False))
            assert (caught.value.path, caught.value.byte) == (data, at)
            assert (caught.value.first, caught.value.stop, caught.value.partition) == (12, 13, 0)
            stored, gaps = read_skipping(store)
            assert stored == {offset: value for offset, value in enumerate(VALUES) if offset != 12}
            assert [(gap.first, gap.stop) for gap in gaps] == [(12, 13)]
            assert store.topic("orders").write(b"more").offset == len(VALUES)
            assert read_skipping(store)[0][len(VALUES)] == b"more"


def case_seed(sealed, boot):
    return 2 * sealed + boot


@pytest.mark.parametrize("boot", [FIRST_BOOT, FIRST_BOOT + 1], ids=["running", "restarted"])
@pytest.mark.parametrize("sealed", [False, True], ids=["active", "sealed"])
def test_a_flipped_bit_in_a_frames_magic_costs_at_most_that_frame(scratch, sealed, boot):
    folder = os.path.join(scratch, "store")
    data = filled(folder, seal=sealed)
    flip(data, frames_of(data)[12][0] + 1)
    with opened(folder, boot) as store:
        stored, gaps = read_skipping(store)
        assert stored.keys() | {12} == set(range(len(VALUES)))
        assert all(value == VALUES[offset] for offset, value in stored.items())
        assert (12 in stored) == (not gaps)
        assert store.topic("orders").write(b"more").offset == len(VALUES)


def test_padding_between_frames_is_not_data_and_costs_nothing(scratch):
    data = filled(os.path.join(scratch, "a"))
    at, found = frames_of(data)[12]
    padding = range(at + found.head.header_length + found.head.body_length, at + found.head.size)
    assert padding, "this test needs a frame that is padded"
    flip(data, padding[0])
    with opened(os.path.join(scratch, "a"), FIRST_BOOT + 1) as store:
        assert read_skipping(store) == (dict(enumerate(VALUES)), [])


@pytest.mark.parametrize("boot", [FIRST_BOOT, FIRST_BOOT + 1], ids=["running", "restarted"])
@pytest.mark.parametrize("repacked", [False, True])
def test_a_flipped_bit_in_an_indexed_segment_costs_one_frame(scratch, repacked, boot):
    folder = os.path.join(scratch, "store")
    data = filled(folder, seal=True, tidy=repacked)
    if not repacked:
        with opened(folder) as store:  # the index alone, as for a segment of large frames
            log = inside(store.topic("orders")).log(0)
            segment_index.save(log.folder, log.segments.sealed(0).index)
    frames = frames_of(data)
    at, found = frames[len(frames) // 2]
    flip(data, at + found.head.header_length + 20)
    lost = range(found.head.base, found.head.stop)
    with opened(folder, boot) as store:
        with pytest.raises(Corrupt) as caught:
            list(store.topic("orders").reader(follow=False))
        assert (caught.value.path, caught.value.byte) == (data, at)
        stored, gaps = read_skipping(store)
        assert stored == {offset: value for offset, value in enumerate(VALUES) if offset not in lost}
        assert [(gap.first, gap.stop) for gap in gaps] == [(lost.start, lost.stop)]


@pytest.mark.parametrize("byte", range(0, SEGMENT_HEADER_BYTES, 5))
@pytest.mark.parametrize("sealed", [False, True], ids=["active", "sealed"])
@pytest.mark.parametrize("boot", [FIRST_BOOT, FIRST_BOOT + 1], ids=["running", "restarted"])
def test_a_flipped_bit_in_a_segments_header_costs_no_message(scratch, sealed, boot, byte):
    folder = os.path.join(scratch, "store")
    data = filled(folder, seal=sealed)
    flip(data, byte)
    with opened(folder, boot) as store:
        assert read_skipping(store) == (dict(enumerate(VALUES)), [])
        assert store.topic("orders").write(b"more").offset == len(VALUES)
        assert read_skipping(store)[0] == dict(enumerate([*VALUES, b"more"]))
    damage = [finding for finding in StoreVerifier(folder).findings() if finding.severity == "damage"]
    assert [(finding.path, finding.byte) for finding in damage] == [(data, 0)]


@pytest.mark.parametrize("boot", [FIRST_BOOT, FIRST_BOOT + 1], ids=["running", "restarted"])
def test_a_lost_first_sector_costs_only_what_it_held(scratch, boot):
    folder = os.path.join(scratch, "store")
    data = filled(folder)
    lost = {found.head.base for at, found in frames_of(data) if at < 512}
    with open(data, "r+b") as file:
        file.write(bytes(512))
    with opened(folder, boot) as store:
        assert store.topic("orders").write(b"more").offset == len(VALUES)
        stored, gaps = read_skipping(store)
        assert stored == {o: v for o, v in enumerate([*VALUES, b"more"]) if o not in lost}
        assert [(gap.first, gap.stop) for gap in gaps] == [(0, len(lost))]


def test_acknowledged_frames_behind_a_flip_are_kept_even_without_any_record(scratch):
    """D is gone with the `tail` file: the frames themselves say (`synced`) that they were durable."""
    folder = os.path.join(scratch, "store")
    data = filled(folder)
    at = frames_of(data)[12][0]
    flip(data, at + 70)
    for record in ("append", "tail"):
        os.unlink(os.path.join(folder, PARTITION, record))
    with opened(folder, FIRST_BOOT + 1) as store:
        stored, _ = read_skipping(store)
        assert stored == {offset: value for offset, value in enumerate(VALUES) if offset != 12}
        assert store.topic("orders").write(b"more").offset >= len(VALUES)


@pytest.mark.parametrize("boot", [FIRST_BOOT, FIRST_BOOT + 1], ids=["running", "restarted"])
def test_damage_in_the_last_frame_can_be_passed_over_too(scratch, boot):
    folder = os.path.join(scratch, "store")
    data = filled(folder)
    at = frames_of(data)[-1][0]
    flip(data, at + 70)
    with opened(folder, boot) as store:
        stored, gaps = read_skipping(store)
        assert stored == dict(enumerate(VALUES[:-1]))
        assert [(gap.first, gap.stop) for gap in gaps] == [(len(VALUES) - 1, len(VALUES))]
        assert store.topic("orders").write(b"more").offset == len(VALUES)
        assert read_skipping(store)[0][len(VALUES)] == b"more"


@pytest.mark.parametrize("record", ["append", "tail"])
def test_a_flipped_bit_in_a_record_costs_nothing(scratch, record):
    for byte in range(0, 64 if record == "append" else 128, 3):
        folder = os.path.join(scratch, str(byte))
        filled(folder)
        flip(os.path.join(folder, PARTITION, record), byte)
        with opened(folder) as store:
            assert store.topic("orders").write(b"more").offset == len(VALUES)
            assert read_skipping(store) == (dict(enumerate([*VALUES, b"more"])), [])


def test_a_frame_of_an_older_file_in_preallocated_space_is_no_frame(scratch):
    """Each segment has its own salt: bytes of another one, in the right place, with the right offset."""
    folder, other = os.path.join(scratch, "store"), os.path.join(scratch, "other")
    data = filled(folder)
    with opened(other) as store:
        topic = store.create_topic("orders")
        for value in [*VALUES, b"a stranger"]:
            topic.write(value)
    stranger = os.path.join(other, PARTITION, f"{0:020d}.data")
    at, found = frames_of(stranger)[-1]
    with open(stranger, "rb") as file:
        file.seek(at)
        stale = file.read(found.head.size)
    for boot in (FIRST_BOOT, FIRST_BOOT + 1):
        with open(data, "r+b") as file:
            file.seek(at)
            file.write(stale)
        with opened(folder, boot) as store:
            assert read_skipping(store) == (dict(enumerate(VALUES)), [])
    with opened(folder, FIRST_BOOT + 1) as store:
        assert store.topic("orders").write(b"more").offset == len(VALUES)
        assert read_skipping(store)[0] == dict(enumerate([*VALUES, b"more"]))


def test_a_segment_that_another_one_lies_in_the_place_of_is_named_also_when_read_by_time(scratch):
    """Put back under the wrong name, it is repacked and not the end: reading by time looked for ever."""
    folder = os.path.join(scratch, "store")
    with penstock.open(folder) as store:
        topic = store.create_topic("t", partitions=2, segment_bytes=4096)
        for _ in range(100):
            topic.write(b"x" * 60, partition=0)
        topic.write(b"y", partition=1)
        store.flush_housekeeping(10)
    parts = Path(folder, "topics", "t", "parts")
    other = min((parts / "000000").glob("*.data"))
    (segment,) = (parts / "000001").glob("*.data")
    segment.write_bytes(other.read_bytes())
    with penstock.open(folder) as store:
        for start in ("earliest", "1h"):
            with pytest.raises(penstock.Corrupt):
                store.topic("t").read(partition=1, start=start)
