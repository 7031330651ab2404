"""What other processes do with waiting messages: `python -m tests.crash.waiting_workers <job> <folder> …`."""

from __future__ import annotations

import os
import signal
import sys
import time

from penstock import Files
from tests.kit.waiting import NewRecord, WaitingMessages

LADDER = (0.02, 0.05, 0.2)
#: Rungs, waits between them, below them, and longer than all.
WAITS_MS = (20, 50, 200, 20, 0, 7, 35, 90, 430)


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def opened(folder: str, files: Files | None = None) -> WaitingMessages:
    return WaitingMessages(folder, files, ladder=LADDER, sync="os", file_bytes=65536, file_age="1s")


def store(folder: str, name: str, count: str) -> None:
    """Store numbered messages; says up to which number they are stored."""
    size = 20
    with opened(folder) as waiting:
        for begin in range(0, int(count), size):
            wait = WAITS_MS[begin // size % len(WAITS_MS)]
            due = time.time_ns() // 1_000_000 + wait
            waiting.store_many(
                (
                    NewRecord(wait, bytes(16), name, 0, b"%s %d %d %d" % (name.encode(), wait, number, due))
                    for number in range(begin, begin + size)
                ),
                fixed=begin // size % 2 == 0,
            )
            say(f"stored {name} {begin + size}")
            time.sleep(0.005)  # takers are killed meanwhile


def take(folder: str, stop: str) -> None:
    """Take and finish what is due, some of it out of order; says each one and whether it came early."""
    with opened(folder) as waiting:
        say("ready")
        held = []
        while not os.path.exists(stop):
            waiting.wait(0.2)
            taken = waiting.take(50)
            if not taken:
                continue
            now = time.time_ns() // 1_000_000
            lines = [
                f"came {t.data.decode()} {'early' if int(t.data.split()[3]) > now else 'due'}" for t in taken
            ]
            say("\n".join(lines))
            waiting.finish(taken[1:])
            held.append(taken[0])
            if len(held) > 3:
                waiting.finish([held.pop(0)])
        waiting.finish(held)


def hold(folder: str) -> None:
    """Take one message, stop as by Ctrl-Z, and finish it when continued."""
    with opened(folder) as waiting:
        waiting.wait(10)
        taken = waiting.take(1)
        say(f"holds {taken[0].data.decode()}")
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            waiting.finish(taken)
            say("finished")
        except Exception as error:
            say(type(error).__name__)


JOBS = {job.__name__: job for job in (store, take, hold)}

if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
