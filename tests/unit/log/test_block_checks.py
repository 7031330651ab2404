"""Blocks of a sealed segment: each is checked once, when it is read or before; damage is found either way."""

import os
import random
import threading
from array import array
from zlib import crc32

import pytest

import penstock
from penstock.errors import Corrupt
from penstock.log import block_checks
from penstock.log.block_checks import BlockChecks
from penstock.log.segment_index import BLOCK_BYTES, Index
from tests.kit.frames import frame_module
from tests.kit.logs import SEGMENT_HEADER_BYTES
from tests.kit.patience import wait_until
from tests.kit.topics import inside

BLOCKS = 12
#: The last block is not full.
SIZE = (BLOCKS - 1) * BLOCK_BYTES + 4321


@pytest.fixture(scope="module")
def sound():
    return random.Random(1).randbytes(SIZE)


@pytest.fixture
def data(sound):
    return bytearray(sound)


@pytest.fixture
def checks(data):
    index = Index(0, 0, 0, SIZE)
    index.blocks = array("I", [crc32(data[at : at + BLOCK_BYTES]) for at in range(0, SIZE, BLOCK_BYTES)])
    index.whole = crc32(data)
    return BlockChecks(memoryview(data), index, are_sound=False)


def sound_blocks(checks):
    places = [(at, min(at + BLOCK_BYTES, SIZE)) for at in range(0, SIZE, BLOCK_BYTES)]
    return [block for block, place in enumerate(places) if checks.are_sound(*place)]


def spoil(data, *blocks):
    for block in blocks:
        data[block * BLOCK_BYTES + 17] ^= 1


@pytest.mark.parametrize("begin", [0, BLOCK_BYTES, 3 * BLOCK_BYTES + 5])
def test_what_was_checked_ahead_is_not_looked_at_again(checks, data, begin):
    assert checks.check_ahead(begin)
    wait_until(lambda: not checks.check_ahead(begin), "the thread has ended")
    spoil(data, *range(BLOCKS))  # whoever looked now would see it
    assert sound_blocks(checks) == list(range(begin // BLOCK_BYTES, BLOCKS))


@pytest.mark.parametrize("begin", [None, 0, BLOCK_BYTES, 3 * BLOCK_BYTES])
@pytest.mark.parametrize("damaged", [0, 2, 7, BLOCKS - 1])
def test_a_damaged_block_is_found_and_costs_no_other(checks, data, begin, damaged):
    spoil(data, damaged)
    if begin is not None:
        checks.check_ahead(begin)
    assert sound_blocks(checks) == [block for block in range(BLOCKS) if block != damaged]


def test_bytes_over_several_blocks_are_sound_if_all_of_them_are(checks, data):
    spoil(data, 5)
    assert checks.are_sound(BLOCK_BYTES - 1, 5 * BLOCK_BYTES)
    assert not checks.are_sound(5 * BLOCK_BYTES - 1, 5 * BLOCK_BYTES + 1)
    assert not checks.are_sound(4 * BLOCK_BYTES, 7 * BLOCK_BYTES)


def test_little_is_not_worth_a_thread(checks):
    assert not checks.check_ahead(SIZE - 2 * BLOCK_BYTES)
    assert sound_blocks(checks) == list(range(BLOCKS))
    assert not checks.check_ahead(0)


def test_where_no_thread_can_be_had_blocks_are_checked_as_they_are_read(checks, data, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert not checks.check_ahead(0)
    spoil(data, 3)
    assert sound_blocks(checks) == [block for block in range(BLOCKS) if block != 3]


def test_with_zlib_alone_only_whole_segments_are_checked_ahead(checks, data, monkeypatch):
    monkeypatch.setattr(block_checks, "crc32_combine", None)
    assert not checks.check_ahead(BLOCK_BYTES)
    assert checks.check_ahead(0)
    wait_until(lambda: not checks.check_ahead(0), "the thread has ended")
    spoil(data, *range(BLOCKS))
    assert sound_blocks(checks) == list(range(BLOCKS))


def test_a_forked_child_does_not_wait_for_a_thread_that_it_has_not(checks, data):
    checks.check_ahead(0)
    child = os.fork()
    if child == 0:
        os._exit(0 if sound_blocks(checks) == list(range(BLOCKS)) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("segment", [0, 1, 2])
@pytest.mark.parametrize("batch", [100, 10_000])
def test_a_reader_that_goes_on_meets_damage_where_it_is(tmp_path, segment, batch):
    """Most of the segments are checked by a thread while what comes before is read."""
    with penstock.open(tmp_path) as store:
        topic = store.create_topic("orders", sync="os", segment_bytes="16MiB")
        for _ in range(60):
            topic.write_many([bytes(10_000)] * 100)
        log = inside(topic).log(0)
        damaged = spoil_frame(log.folder.segment_path(log.segments.bases()[segment]), 12)
    with penstock.open(tmp_path) as store, store.topic("orders").reader(follow=False) as reader:
        received = []
        with pytest.raises(Corrupt) as error:
            received.extend(lengths(reader, batch))
    assert sum(received) == damaged.base == error.value.first
    assert error.value.stop == damaged.stop


def lengths(reader, batch):
    while received := reader.receive_batch(batch):
        yield len(received)


def spoil_frame(path, number):
    """Change a byte of a frame's body; its header is returned."""
    with open(path, "r+b") as file:
        at, found = list(frame_module.walk(file.read(), SEGMENT_HEADER_BYTES))[number]
        file.seek(at + 5000)
        file.write(b"\1")
    return found.head
