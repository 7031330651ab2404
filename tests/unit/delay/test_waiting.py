"""Storing, taking and finishing waiting messages, in simulated time."""

import os
import threading
from itertools import count

import pytest

from penstock.delay import file_names, file_reader
from penstock.delay.records import NewRecord
from penstock.delay.waiting import WaitingMessages
from penstock.delay.window import Window
from penstock.errors import Closed, InvalidOption, MessageTooLarge, TakenElsewhere, UsageError, WrongType
from penstock.files import Files

DAY_MS = 86_400_000
_ids = count(1)


def new_id():
    return next(_ids).to_bytes(16, "big")


@pytest.fixture
def opened(tmp_path, clock):
    waitings = []

    def open_waiting(**options):
        waitings.append(WaitingMessages(tmp_path / "delay", clock=clock, **({"sync": "os"} | options)))
        return waitings[-1]

    yield open_waiting
    for waiting in waitings:
        waiting.close()


def put(waiting, *waits):
    """A message for each wait in seconds, which is also its data."""
    for wait in waits:
        waiting.store(wait=wait, id=new_id(), topic="t", data=str(wait).encode())


def now_ms(clock):
    return clock.now_ns() // 1_000_000


def drain(waiting, clock, limit=1000):
    """Everything that waits, with the time at which it came, each when it is due."""
    came = []
    while (due := waiting.next_due()) is not None:
        clock.set(max(due * 1_000_000, clock.now_ns()))
        for taken in waiting.take(limit):
            came.append((now_ms(clock), taken.data))
            taken.done()
    return came


def data_files(waiting):
    return sorted(
        name
        for delay in os.listdir(waiting.folder)
        if os.path.isdir(path := os.path.join(waiting.folder, delay))
        for name in os.listdir(path)
        if name.endswith(".data")
    )


def test_messages_come_when_they_are_due_in_that_order(opened, clock):
    """S003-05, B003-03: not before the planned time, whatever rungs they hop over."""
    waiting, begin = opened(), now_ms(clock)
    waits = [0, 0.25, 1, 1.5, 5, 7.25, 59.999, 3600 * 25, 86400]
    put(waiting, *reversed(waits))
    came = drain(waiting, clock)
    assert came == [(begin + round(wait * 1000), str(wait).encode()) for wait in sorted(waits)]
    assert waiting.count() == 0


def test_a_moment_may_be_given_instead_of_a_wait(opened, clock):
    waiting, begin = opened(), now_ms(clock)
    for due in (begin + 1234, begin - 5000):
        waiting.store(due_ms=due, id=new_id(), topic="t", data=str(due).encode())
    assert drain(waiting, clock) == [
        (begin, str(begin - 5000).encode()),
        (begin + 1234, str(begin + 1234).encode()),
    ]


def test_equal_delays_never_share_a_file_with_others_and_keep_their_order(opened, clock):
    """S003-02, S003-03, S003-04, S003-24: a chain of files for each delay."""
    waiting = opened(file_bytes=4096)
    for number in range(300):
        waiting.store(wait=(1, 5, 30)[number % 3], id=new_id(), topic="t", data=b"%03d" % number + bytes(40))
        clock.advance(0.001)
    chains = [file_names.made(name).chain.delay_ms for name in data_files(waiting)]
    assert {delay: chains.count(delay) > 1 for delay in (1000, 5000, 30_000)} == dict.fromkeys(chains, True)
    for delay in ("1s", "5s", "30s"):
        assert all(
            name.startswith(f"{delay}@2030010100-")
            for name in data_files(waiting)
            if name.startswith(f"{delay}@")
        )
    came = [int(data[:3]) for _, data in drain(waiting, clock)]
    assert sorted(came) == list(range(300))
    for rest in range(3):
        assert [n for n in came if n % 3 == rest] == list(range(rest, 300, 3))


def test_files_go_when_they_are_wholly_read_and_no_longer_written(opened, clock):
    """S003-07, S003-21: rotation by size and by age, then removal."""
    waiting = opened(file_bytes=4096, file_age="1h")
    for _ in range(40):
        put(waiting, "1s")
        waiting.store(wait=1, id=new_id(), topic="t", data=bytes(500))
    assert len(data_files(waiting)) > 4
    drain(waiting, clock)
    assert len(data_files(waiting)) == 1, "the one that is written stays"
    clock.advance("2h")
    assert waiting.take() == []
    assert data_files(waiting) == [], "until it is old"
    put(waiting, "1s")
    assert len(drain(waiting, clock)) == 1


def test_a_day_of_retries_takes_seconds(opened, clock):
    waiting, begin = opened(), now_ms(clock)
    backoff = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768]
    waiting.store_many(NewRecord(1000, new_id(), "hooks", 0, b"%d" % n) for n in range(50))
    tried = {n: [] for n in range(50)}
    while (due := waiting.next_due()) is not None:
        clock.set(max(due * 1_000_000, clock.now_ns()))
        for taken in waiting.take():
            tried[int(taken.data)].append(now_ms(clock) - begin)
            if taken.attempts + 1 < len(backoff):
                taken.again(backoff[taken.attempts + 1])
            else:
                taken.done()
    expected = [1000 * sum(backoff[: n + 1]) for n in range(len(backoff))]
    assert all(times == expected for times in tried.values())
    assert expected[-1] > 65_000_000


def test_what_is_not_finished_comes_again_after_a_restart_and_what_is_does_not(opened, clock):
    waiting = opened()
    put(waiting, 1, 1.0, "1s")
    clock.advance("1s")
    first, second, third = waiting.take()
    waiting.finish([second])
    waiting.close()
    again = opened()
    came = [data for _, data in drain(again, clock)]
    assert sorted(came) == sorted([first.data, third.data]), (
        "the first was stored again, so the second is done"
    )
    assert again.count() == 0


def test_an_unfinished_message_does_not_hold_up_the_read_position(opened, clock):
    """It is stored again, then the position moves: a crash brings back nothing that was finished."""
    waiting = opened()
    put(waiting, *["1s"] * 10)
    clock.advance("1s")
    slow, *quick = waiting.take()
    waiting.finish(quick)
    assert waiting.count() == 10
    clock.advance("1s")
    waiting.take()
    assert waiting.count() == 1, "only the copy is left"
    clock.advance("2s")
    assert waiting.take() == [], "it is still out, so its copy is not handed out"
    slow.done()
    assert waiting.take() == []
    assert waiting.count() == 0


def test_a_copy_of_what_was_finished_meanwhile_is_finished_too(opened, clock):
    waiting = opened()
    put(waiting, "1s", "1s")
    clock.advance("1s")
    slow, quick = waiting.take()
    quick.done()
    waiting.settle()
    slow.done()
    assert waiting.count() == 1
    clock.advance("1s")
    assert waiting.take() == []
    assert waiting.count() == 0


def test_only_so_many_are_out_at_a_time(opened, clock, monkeypatch):
    """Memory does not depend on how many wait."""
    monkeypatch.setattr(Window, "RECORDS_MAX", 100)
    waiting = opened()
    waiting.store_many(NewRecord(1000, new_id(), "t", 0, b"%d" % n) for n in range(1000))
    clock.advance("1s")
    out = [taken for _ in range(20) for taken in waiting.take(30)]
    assert len(out) <= 130
    waiting.finish(out)
    rest = []
    while taken := waiting.take(30):
        rest += taken
        waiting.finish(taken)
    assert [int(taken.data) for taken in out + rest] == list(range(1000))


def test_scan_shows_everything_and_takes_nothing(opened, clock):
    waiting = opened()
    put(waiting, 1, 7.5, 86400)
    clock.advance("1s")
    waiting.take()
    found = {record.data: record.due - now_ms(clock) for record in waiting.scan()}
    assert found == {b"1": 0, b"7.5": 6500, b"86400": DAY_MS - 1000}
    states = file_reader.stored_states(waiting.folder, Files())
    assert {record.data for record in file_reader.records(waiting.folder, Files(), states)} == set(found)
    assert waiting.count() == 3


def test_count_looks_into_the_block_around_the_read_position(opened, clock):
    waiting = opened()
    waiting.store_many(NewRecord(1000, new_id(), "t", 0, b"%d" % n) for n in range(100))
    clock.advance("1s")
    waiting.finish(waiting.take(37))
    assert waiting.count() == 63


def test_a_changed_ladder_serves_the_old_rungs_until_they_are_empty(opened, clock):
    put(opened(ladder=["3s", "10s"]), 3, 10, 25)
    waiting = opened(ladder=["1s", "2s"])
    waiting.store(wait=2, id=new_id(), topic="t", data=b"new")
    begin = now_ms(clock)
    assert [(at - begin, data) for at, data in drain(waiting, clock)] == [
        (2000, b"new"), (3000, b"3"), (10_000, b"10"), (25_000, b"25"),
    ]  # fmt: skip


def test_a_clock_set_back_a_little_makes_messages_wait_for_it(opened, clock):
    """C20: due times within a file never decrease."""
    waiting, begin = opened(), clock.now_ns()
    put(waiting, 1)
    clock.set(begin - 60_000_000_000)
    put(waiting, 1.0)
    assert [(at - begin // 1_000_000, data) for at, data in drain(waiting, clock)] == [
        (1000, b"1"),
        (1000, b"1.0"),
    ]


def test_a_clock_set_back_far_begins_a_new_file(opened, clock):
    waiting, begin = opened(), clock.now_ns()
    clock.set(begin + 10 * 365 * DAY_MS * 1_000_000)
    put(waiting, 1)
    clock.set(begin)
    put(waiting, 1.0)
    assert len(data_files(waiting)) == 2
    clock.advance("1s")
    (taken,) = waiting.take()
    assert taken.data == b"1.0", "it does not wait ten years behind the other"
    taken.done()
    assert [at for at, _ in drain(waiting, clock)] == [(begin // 1_000_000) + 3650 * DAY_MS + 1000]


def test_ids_of_states_grow_also_when_the_clock_does_not(opened, clock):
    """S003-10, C21."""
    waiting = opened()
    put(waiting, 1)
    (before,) = waiting._table.states.values()
    clock.set(clock.now_ns() - 10 * DAY_MS * 1_000_000)
    waiting.close()
    waiting = opened()
    put(waiting, 5)
    assert max(state.id for state in waiting._table.states.values()) > before.id


@pytest.mark.parametrize("wait", [-1, -0.001, "-5s", float("nan"), 1e12, None, True, b"1"])
def test_waits_that_mean_nothing_are_refused(opened, wait):
    with pytest.raises((InvalidOption, WrongType, UsageError)):
        opened().store(wait=wait, id=new_id(), topic="t", data=b"")


def test_ten_years_are_waited_for(opened, clock):
    waiting, begin = opened(ladder=["1s", "1d", "365d"]), now_ms(clock)
    put(waiting, 10 * 365 * 86400)
    assert [at - begin for at, _ in drain(waiting, clock)] == [3650 * DAY_MS]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"id": b"short"}, InvalidOption),
        ({"id": "0" * 16}, InvalidOption),
        ({"topic": b"t"}, WrongType),
        ({"topic": "t" * 5000}, InvalidOption),
        ({"topic": "\ud800"}, InvalidOption),
        ({"attempts": -1}, InvalidOption),
        ({"attempts": 1.5}, InvalidOption),
        ({"data": "text"}, WrongType),
        ({"data": bytes(17 * 2**20)}, MessageTooLarge),
        ({"wait": None, "due_ms": -1}, InvalidOption),
        ({"wait": None, "due_ms": 2**62}, InvalidOption),
        ({"due_ms": 1}, UsageError),
    ],
)
def test_bad_input_is_refused_and_stores_nothing(opened, change, error):
    waiting = opened()
    with pytest.raises(error):
        waiting.store(**({"wait": 1, "id": new_id(), "topic": "t", "data": b""} | change))
    assert waiting.count() == 0


@pytest.mark.parametrize(
    "ladder", [[], ["5s", "1s"], ["1s", "1s"], ["0s"], [-1], ["0.1ms"], "1s", [b"1"], ["1s"] * 100]
)
def test_ladders_that_make_no_sense_are_refused(opened, ladder):
    with pytest.raises((InvalidOption, WrongType)):
        opened(ladder=ladder)


def test_finishing_twice_is_an_error_and_changes_nothing(opened, clock):
    waiting = opened()
    put(waiting, 0, 0.0)
    first, second = waiting.take()
    first.done()
    with pytest.raises(UsageError, match="finished before"):
        first.done()
    with pytest.raises(UsageError, match="finished before"):
        waiting.finish([second, second])
    second.done()
    assert waiting.count() == 0


def test_a_closed_one_says_so(opened, clock):
    waiting = opened()
    put(waiting, 0)
    (taken,) = waiting.take()
    waiting.close()
    waiting.close()
    for call in (
        waiting.take,
        waiting.count,
        waiting.next_due,
        lambda: put(waiting, 1),
        lambda: waiting.finish([]),
    ):
        with pytest.raises(Closed):
            call()
    with pytest.raises(TakenElsewhere, match="closed"):
        taken.done()


def test_two_openers_of_one_folder_see_each_others_messages(opened, clock):
    first, second = opened(), opened()
    put(second, 1)
    clock.advance("1s")
    assert [taken.data for taken in first.take()] == [b"1"]
    put(second, 1.0)
    put(first, "1s")
    clock.advance("1s")
    assert [taken.data for taken in first.take()] == [b"1.0", b"1s"]
    assert second.take() == []
    assert second.next_due() is None


def test_a_store_by_another_opener_wakes_who_waits(tmp_path):
    with (
        WaitingMessages(tmp_path / "delay", sync="os") as taker,
        WaitingMessages(tmp_path / "delay", sync="os") as storer,
    ):
        storer.store(wait="1h", id=new_id(), topic="t", data=b"late")
        assert not taker.wait(0)
        thread = threading.Timer(0.05, lambda: storer.store(wait=0.01, id=new_id(), topic="t", data=b"soon"))
        thread.start()
        assert taker.wait(20)
        assert [taken.data for taken in taker.take()] == [b"soon"]
        thread.join()
