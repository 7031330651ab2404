"""One turn of the gate, on whichever checkout `PYTHONPATH` names: `gate_rows.py FOLDER MESSAGES ROW…`.

Runs as a program of its own and uses public names only, so that it also measures commits that have another
inside. Prints JSON: where penstock was found, and for each row its rate by both clocks, or why there is none.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock

BATCH, PARTITIONS = 1000, 4
_DURABLE_SHARE, _SINGLE_SHARE = 200, 20
_HEADERS = {"source": "web", "trace": "4bf92f3577b34da6"}


class Turn:
    """A folder, and the messages of one turn: text keys, 220 bytes."""

    def __init__(self, folder: Path, messages: int) -> None:
        chance = random.Random(220)
        self.folder = folder
        self.count = messages
        self.pairs = [(chance.randbytes(8).hex(), chance.randbytes(204)) for _ in range(messages)]

    def first(self, share: int) -> list[tuple[str, bytes]]:
        """A part of the messages, for calls that cost more."""
        return self.pairs[: max(self.count // share, 50)]

    def measured(self, count: int, work: Callable[[], object]) -> dict[str, float]:
        gc.collect()
        os.sync()
        wall, processor = time.perf_counter(), time.process_time()
        work()
        processor_s, wall_s = time.process_time() - processor, time.perf_counter() - wall
        return {"wall": count / wall_s, "processor": count / max(processor_s, 1e-6)}


Figures = dict[str, float]


def written(turn: Turn, topic: Any, **options: Any) -> Figures:
    with topic.writer() as writer:

        def work() -> None:
            for key, value in turn.pairs:
                writer.write(value, key=key, **options)
            writer.flush()

        return turn.measured(turn.count, work)


def written_together(turn: Turn, topic: Any) -> Figures:
    parts = [turn.pairs[place : place + BATCH] for place in range(0, turn.count, BATCH)]
    columns = [([value for _, value in part], [key for key, _ in part]) for part in parts]

    def work() -> None:
        for values, keys in columns:
            topic.write_many(values, keys=keys)

    return turn.measured(turn.count, work)


def written_alone(turn: Turn, topic: Any, share: int) -> Figures:
    pairs = turn.first(share)

    def work() -> None:
        for key, value in pairs:
            topic.write(value, key=key)

    return turn.measured(len(pairs), work)


def read(turn: Turn, topic: Any) -> Figures:
    written_together(turn, topic)
    with topic.reader(consumer="gate", follow=False) as reader:

        def work() -> None:
            left = turn.count
            while left and (batch := reader.receive_batch(BATCH)):
                left -= len(batch.messages())
                reader.commit(batch)
            assert not left

        return turn.measured(turn.count, work)


def handled(turn: Turn, topic: Any) -> Figures:
    written_together(turn, topic)
    with topic.reader(consumer="gate") as reader:
        return turn.measured(turn.count, lambda: reader.process(lambda message: None, follow=False))


#: Each with the options of its topic.
ROWS: dict[str, tuple[dict[str, Any], Callable[[Turn, Any], Figures]]] = {
    "write": ({"sync": "os"}, written),
    "headers": ({"sync": "os"}, lambda turn, topic: written(turn, topic, headers=_HEADERS)),
    "partitions": ({"sync": "os", "partitions": PARTITIONS}, written),
    "many": ({"sync": "os"}, written_together),
    "one": ({"sync": "os"}, lambda turn, topic: written_alone(turn, topic, _SINGLE_SHARE)),
    "read": ({"sync": "os"}, read),
    "handle": ({"sync": "os"}, handled),
    "durable": ({"sync": "disk"}, lambda turn, topic: written_alone(turn, topic, _DURABLE_SHARE)),
}


def taken(turn: Turn, row: str) -> dict[str, Any]:
    """The figures of a row; a commit that cannot do it says why."""
    options, measure = ROWS[row]
    with tempfile.TemporaryDirectory(dir=turn.folder) as room, penstock.open(f"{room}/store") as store:
        try:
            return measure(turn, store.create_topic("events", **options))
        except (AttributeError, TypeError) as error:
            return {"missing": f"{type(error).__name__}: {error}"}


def main(words: list[str]) -> None:
    folder, messages, *rows = words
    turn = Turn(Path(folder), int(messages))
    found = {row: taken(turn, row) for row in rows}
    print(json.dumps({"penstock": penstock.__file__, "rows": found}))


if __name__ == "__main__":
    main(sys.argv[1:])
