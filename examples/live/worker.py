"""Takes jobs from the topic `jobs` and tells how far each is: counting primes, a hundred steps a job.

    python examples/live/worker.py FOLDER

Every event of a job says all there is to know of it, so a page that comes later needs the last one only, and
so does a worker: killed in the middle, the next one goes on behind the last step that was told.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

import msgspec

import penstock

STEPS = 100
#: A job of a hundred steps lasts two seconds at least, so that one can see its bar move.
STEP_S = 0.02


def main(folder: str) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with penstock.open(folder) as store, store.topic("jobs").reader(consumer="worker") as jobs:
            for message in jobs:
                work(store.events(), message.key, message.value)
                jobs.commit(message)
    except KeyboardInterrupt:
        return


def work(events: penstock.Events, key: bytes, wanted: bytes) -> None:
    """Do one job from where it stands; what is no job is passed over, and told."""
    try:
        job = msgspec.json.decode(key)
        limit = int(msgspec.json.decode(wanted)["limit"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        print(f"{key!r} is no job", file=sys.stderr)
        return
    limit = max(STEPS, min(limit, 20_000_000))
    last = events.subscribe([job], rewind=1).events
    done, found = (last[0].data["done"], last[0].data["found"]) if last else (0, 0)
    for step in range(done, STEPS):
        began = time.monotonic()
        found += primes_between(limit * step // STEPS, limit * (step + 1) // STEPS)
        events.push(job, told(step + 1, found, limit))
        time.sleep(max(0.0, STEP_S - (time.monotonic() - began)))


def told(done: int, found: int, limit: int) -> dict[str, Any]:
    facts = {"done": done, "of": STEPS, "found": found, "limit": limit, "at": limit * done // STEPS}
    return facts | ({"result": found} if done == STEPS else {})


def primes_between(start: int, stop: int) -> int:
    """How many primes there are from `start` up to, not with, `stop`: a sieve of that stretch."""
    start = max(start, 2)
    if stop <= start:
        return 0
    sieve = bytearray(b"\1") * (stop - start)
    for factor in range(2, int(stop**0.5) + 1):
        first = max(factor * factor, -(-start // factor) * factor) - start
        sieve[first::factor] = bytes(len(range(first, stop - start, factor)))
    return sum(sieve)


if __name__ == "__main__":
    main(sys.argv[1])
