"""Topics whose first messages have expired by age and are still there, since nobody cleans up meanwhile."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import penstock
from penstock.locks import claim
from penstock.testing import Clock


@contextmanager
def half_expired(folder: str | Path, name: str = "orders") -> Iterator[None]:
    """A topic with ten messages, of which the first five are over by an hour and still there.

    They were written by a clock that is behind; the lock of those who remove what is over is held.
    """
    clock = Clock(datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=2))
    with penstock.open(folder, clock=clock) as store:
        topic = store.create_topic(name, retention="1h")
        topic.write_many([f"old {number}" for number in range(5)])
        clock.advance("2h")
        topic.write_many([f"young {number}" for number in range(5)])
    held = claim(os.path.join(folder, "retention"))
    try:
        yield
        with penstock.open(folder, read_only=True) as store:
            assert store.topic(name).open_topic.log(0).stored().start == 0, "somebody removed them"
    finally:
        os.close(held)
