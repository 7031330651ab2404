"""What leaves a stream is named also when processes are killed: at every change of a file, at any moment."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import penstock
from penstock.testing import Clock
from tests.kit.system import Files

ROOT = Path(__file__).parents[2]
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)

_CHANGES = ("pwrite", "sync", "sync_dir", "rename", "unlink", "truncate")


def clean(path: Path, moment: datetime, by: str) -> list[str]:
    """Clean up once; what was named."""
    with penstock.open(path, clock=Clock(moment)) as store:
        stream = store.stream("shop")
        if by == "vacuum":
            store.topic("shop").vacuum()
        gone = stream.delete_expired()[1] if by == "ttl" else stream.delete_old_messages(7 * 86400)[1]
        return [each["object_name"] for each in gone]


def clean_and_die(path: Path, moment: datetime, by: str, last: int) -> tuple[list[str], bool]:
    """The same in a process that is killed just before its change number `last` of a file, or at the end.

    What it was told before, and whether it came to the end.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            count_down(last)
            os.write(writing, " ".join(["done", *clean(path, moment, by)]).encode())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(writing)
    with open(reading) as told:
        is_done, *names = told.read().split() or [""]
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    return names, bool(is_done)


def count_down(last: int) -> None:
    """Have this process die just before its change number `last` of a file."""
    left = itertools.count(last - 1, -1)

    def counted(call):
        def wrapped(*arguments, **options):
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return wrapped

    for name in _CHANGES:
        is_static = isinstance(Files.__dict__[name], staticmethod)
        call = counted(getattr(Files, name))
        setattr(Files, name, staticmethod(call) if is_static else call)


def filled(path: Path, by: str) -> None:
    clock = Clock(BEGIN)
    with penstock.open(path, clock=clock) as store:
        stream = store.stream("shop", segment_bytes="1MiB")
        if by == "ttl":
            stream.configure_ttl(enabled=True, default_ttl="30d", channels={"progress": "1m"})
        for number in range(10):
            stream.publish_message(("orders", "progress")[number % 2], f"{number}")
        clock.advance("1m")
        for number in range(10, 20):
            stream.publish_message(("orders", "progress")[number % 2], f"{number}")


@pytest.mark.parametrize("by", ["vacuum", "delete", "ttl"])
def test_killed_at_every_change_of_a_file(tmp_path: Path, by: str) -> None:
    """S000-24, S000-28: the cleanup that follows a kill names what the killed one did not get to say."""
    moment = BEGIN + (timedelta(minutes=1, seconds=30) if by == "ttl" else timedelta(days=7, seconds=30))
    gone = [f"{number}" for number in range(10) if by != "ttl" or number % 2]
    filled(tmp_path / "filled", by)
    unsaid, is_done, last = 0, False, 0
    while not is_done:
        last += 1
        path = tmp_path / f"{last}"
        shutil.copytree(tmp_path / "filled", path)
        names, is_done = clean_and_die(path, moment, by, last)
        assert names in ([], gone)
        again = clean(path, moment, by)
        assert set(names) | set(again) == set(gone), f"killed at change {last}"
        assert len(again) == len(set(again))
        assert clean(path, moment, by) == []
        unsaid += not names
    assert unsaid > 5


#: Publishes, vacuums and cleans for ever, an hour a turn; each name is printed when it was given.
TURN = """
import sys
from datetime import datetime
import penstock
from penstock.testing import Clock

clock = Clock(datetime.fromisoformat(sys.argv[2]))
store = penstock.open(sys.argv[1], clock=clock)
stream = store.stream("shop", retention="12h", segment_bytes="1MiB")
for number in range(int(sys.argv[3]), 10**9):
    stream.publish_message("orders", f"{number}")
    print("published", number, flush=True)
    clock.advance("1h")
    if number % 3 == 0:
        store.topic("shop").vacuum()
    if number % 2 == 0:
        for each in stream.delete_old_messages(11 * 3600)[1]:
            print("named", each["object_name"], flush=True)
"""


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """S000-28: of what went, nothing goes unnamed, however often the process that cleans is killed."""
    chance, named, number = random.Random(1), set[int](), 0
    for _ in range(6):
        moment = BEGIN + timedelta(hours=number)
        running = subprocess.Popen(
            [sys.executable, "-c", TURN, str(tmp_path), moment.isoformat(), str(number)],
            stdout=subprocess.PIPE, cwd=ROOT, text=True,
        )  # fmt: skip
        lines = [running.stdout.readline() for _ in range(20)]
        time.sleep(chance.random() / 20)  # any moment will do
        running.kill()
        lines += running.stdout.read().splitlines()
        running.wait(30)
        running.stdout.close()
        for line in lines:
            what, _, text = line.strip().partition(" ")
            if what == "named":
                named.add(int(text))
            elif text:
                number = int(text) + 2  # one more may have been stored without a word
    clock = Clock(BEGIN + timedelta(hours=number))
    with penstock.open(tmp_path, clock=clock) as store:
        stream = store.stream("shop")
        named |= {int(each["object_name"]) for each in stream.delete_old_messages(11 * 3600)[1]}
        there = {int(row[2]) for row in stream.get_all_messages(1, 10**6)}
        assert not there & named
        assert len(named) + len(there) == stream.get_latest_sequence() > 60
