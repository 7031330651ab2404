"""Which files a message waits in: a chain for each delay, made at first use and gone when it is empty."""

import os
import struct
from pathlib import Path

import pytest

from penstock.delay import chain as chain_module
from penstock.delay import file_reader
from penstock.delay import states as state_files
from penstock.delay.records import NewRecord, RecordColumns, uuid7
from penstock.delay.waiting import WaitingMessages
from penstock.files import Files


@pytest.fixture
def opened(tmp_path, clock):
    openers = []

    def open_waiting(**options):
        openers.append(WaitingMessages(tmp_path / "delay", clock=clock, **({"sync": "os"} | options)))
        return openers[-1]

    yield open_waiting
    for each in openers:
        each.close()


def now_ms(clock):
    return clock.now_ns() // 1_000_000


def put(waiting, data, **when):
    waiting.store(id=uuid7(0), topic="t", data=data, **when)


def folders(waiting):
    return sorted(name for name in os.listdir(waiting.folder) if os.path.isdir(f"{waiting.folder}/{name}"))


def content(waiting, chain):
    """The bytes of a chain's files, in order."""
    found = sorted(name for name in os.listdir(f"{waiting.folder}/{chain}") if name.endswith(".data"))
    return b"".join(Path(waiting.folder, chain, name).read_bytes() for name in found)


def parsed(data):
    """Records by the seed's own table (S003-06), without Penstock's code; all numbers are below 128."""
    found, at = [], 0
    while at < len(data):
        due, identity = struct.unpack_from("<Q16s", data, at)
        at += 24
        topic = data[at + 1 : at + 1 + data[at]]
        at += 1 + data[at]
        attempts = data[at]
        own = data[at + 2 : at + 2 + data[at + 1]]
        at += 2 + data[at + 1]
        found.append((due, identity, topic, attempts, own))
    return found


def test_each_delay_has_a_chain_of_its_own(opened, clock):
    """S003-02, S003-03, S003-04, S003-24: 30 s, 45 s and 90 s are three chains; equal ones share one."""
    waiting = opened()
    for wait in ("30s", "45s", "90s", 30, "45s"):
        put(waiting, b"x", wait=wait)
    assert folders(waiting) == ["30s", "45s", "90s"]
    assert [len(parsed(content(waiting, chain))) for chain in folders(waiting)] == [2, 2, 1]


def test_a_delay_is_rounded_up_to_whole_milliseconds(opened):
    waiting = opened()
    for wait in (0.0301, 0.031, 0.0302, 0):
        put(waiting, b"x", wait=wait)
    assert folders(waiting) == ["0.031s", "0s"]


def test_a_record_is_the_seeds_and_its_data_the_callers(opened, clock):
    """S003-05, S003-06: the planned time first, in order; then id, topic, attempts, and just the data."""
    waiting, begin = opened(), now_ms(clock)
    identities = [uuid7(begin, n) for n in range(3)]
    for number, identity in enumerate(identities):
        waiting.store(wait="45s", id=identity, topic="mail", attempts=number, data=b"own %d" % number)
        clock.advance(0.5)
    assert parsed(content(waiting, "45s")) == [
        (begin + 45_000 + 500 * number, identity, b"mail", number, b"own %d" % number)
        for number, identity in enumerate(identities)
    ]


def test_waits_that_began_earlier_keep_their_planned_times(opened, clock):
    """S003-05: a writer's messages, stored together some milliseconds after they were accepted."""
    waiting, now = opened(), now_ms(clock)
    columns = RecordColumns(
        [5000] * 3, [uuid7(0)] * 3, ["t"] * 3, [0] * 3, [b"x"] * 3, [1] * 3, [now - 9, now - 9, now]
    )
    waiting.store_columns(columns)
    assert [record[0] - now for record in parsed(content(waiting, "5s"))] == [4991, 4991, 5000]
    (state,) = file_reader.stored_states(waiting.folder, Files())
    assert state.replay <= now + 4991, "S003-14"


def test_a_wait_that_began_long_ago_is_no_fixed_delay_any_more(opened, clock):
    """In its chain it would be late by as much, or hold up the order."""
    waiting, now = opened(), now_ms(clock)
    put(waiting, b"first", wait=5)
    waiting.store_columns(RecordColumns([5000], [uuid7(0)], ["t"], [0], [b"late"], [4], [now - 3000]))
    assert folders(waiting) == ["5s", "ladder-1s"]
    clock.advance("1s")
    assert waiting.take() == []
    clock.advance("1s")
    assert [(taken.data, taken.due - now) for taken in waiting.take()] == [(b"late", 2000)]


def test_what_has_no_fixed_delay_waits_on_the_ladder_in_files_of_its_own(opened, clock):
    """Moments and waits with chance in them: they would make a file each."""
    waiting, now = opened(), now_ms(clock)
    put(waiting, b"delay", wait="30s")
    put(waiting, b"moment", due_ms=now + 30_000)
    put(waiting, b"jitter", wait=31.7, fixed=False)
    waiting.store_many([NewRecord(33_000, uuid7(0), "t", 0, b"many")], fixed=False)
    assert folders(waiting) == ["30s", "ladder-30s"]
    assert [record[4] for record in parsed(content(waiting, "30s"))] == [b"delay"]
    assert [record[4] for record in parsed(content(waiting, "ladder-30s"))] == [
        b"\0moment", b"\xa4\x0djitter", b"\xb8\x17many",
    ], "the rest, framed before the message's own data"  # fmt: skip
    clock.advance("40s")
    assert {taken.data for taken in waiting.take()} == {b"delay", b"moment", b"jitter", b"many"}


def test_more_delays_than_chains_wait_on_the_ladder(opened, clock, monkeypatch):
    monkeypatch.setattr(chain_module, "CHAINS_MAX", 5)
    waiting, begin = opened(), now_ms(clock)
    for number in range(8):
        put(waiting, b"%d" % number, wait=2 + number / 10)
    put(waiting, b"8", wait=2.1)
    assert folders(waiting) == ["2.1s", "2.2s", "2.3s", "2.4s", "2s", "ladder-1s"]
    came = []
    while (due := waiting.next_due()) is not None:
        clock.set(max(due * 1_000_000, clock.now_ns()))
        taken = waiting.take()
        came += [(now_ms(clock) - begin, each.data) for each in taken]
        waiting.finish(taken)
    expected = sorted([(2000 + 100 * n, b"%d" % n) for n in range(8)] + [(2100, b"8")])
    assert sorted(came) == expected


def test_a_folder_has_256_chains_at_most_and_few_files_open(opened, clock):
    waiting = opened()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(300):
        put(waiting, b"x", wait=10 + number)
    fixed = [name for name in folders(waiting) if not name.startswith("ladder-")]
    assert len(fixed) == 256
    clock.advance("1h")
    assert len(waiting.take()) == 300
    assert len(os.listdir("/proc/self/fd")) - before < 2 * chain_module.OPEN_MAX + 10


def test_a_chain_goes_when_it_is_empty(opened, clock):
    """Made at first use; finished and without news for some seconds, its files and its folder go."""
    waiting = opened()
    put(waiting, b"x", wait="1s")
    put(waiting, b"y", wait="1h")
    clock.advance("1s")
    waiting.finish(waiting.take())
    assert folders(waiting) == ["1s", "3600s"], "it may be used again any moment"
    clock.advance("6s")
    waiting.take()
    assert folders(waiting) == ["3600s"]
    put(waiting, b"again", wait="1s")
    clock.advance("1s")
    assert [taken.data for taken in waiting.take()] == [b"again"]


def test_closing_removes_what_is_empty(opened, clock):
    waiting = opened()
    put(waiting, b"x", wait="1s")
    clock.advance("1s")
    waiting.finish(waiting.take())
    waiting.close()
    assert folders(waiting) == []
    assert file_reader.stored_states(waiting.folder, Files()) == []


def test_another_opener_that_had_the_removed_file_open_makes_a_new_one(opened, clock):
    taker, storer = opened(), opened()
    put(storer, b"0", wait="1s")
    clock.advance("1s")
    taker.finish(taker.take())
    clock.advance("6s")
    taker.take()
    assert folders(taker) == []
    put(storer, b"1", wait="1s")
    put(taker, b"2", wait="1s")
    put(storer, b"3", wait="1s")
    clock.advance("1s")
    assert [taken.data for taken in taker.take()] == [b"1", b"2", b"3"]


def test_appending_changes_the_id_of_a_files_state(opened, clock):
    """S003-10: each change of a file sets its ID to the state's; here seen in the snapshot after it."""
    waiting, seen = opened(), []
    put(waiting, b"other", wait="1h")
    for number in range(3):
        put(waiting, b"%d" % number, wait="30s")
        waiting.snapshot()
        clock.advance("1s")
        states = {
            state.name.split("@")[0]: state for state in file_reader.stored_states(waiting.folder, Files())
        }
        seen.append(states["30s"].id)
        assert states["3600s"].id < seen[0], "the other file did not change"
    assert seen == sorted(set(seen))


def test_the_length_in_a_snapshot_is_the_files_length_then(opened):
    """S003-13, S003-17."""
    waiting = opened()
    for _ in range(3):
        put(waiting, b"x" * 50, wait="30s")
        put(waiting, b"y" * 9, due_ms=2**42)
        waiting.snapshot()
        data = Path(waiting.folder, state_files.SNAPSHOT).read_bytes()
        for state in state_files.decode_snapshot(data).values():
            folder = state.name.split("@")[0]
            assert state.len == os.path.getsize(f"{waiting.folder}/{folder}/{state.name}")
            assert state.is_written


def test_ids_grow_over_all_files_and_processes(opened, clock):
    """S003-10, C21: (ms, counter) as one number, also when the clock is set back."""
    first, second, seen = opened(), opened(), []
    for number in range(6):
        put((first, second)[number % 2], b"x", wait=("30s", "45s")[number // 2 % 2])
        clock.set(clock.now_ns() - 10**9)
        first.snapshot()
        seen.append(max(state.id for state in file_reader.stored_states(first.folder, Files())))
    assert seen == sorted(set(seen))
