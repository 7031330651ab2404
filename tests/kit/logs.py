"""Logs without a store around them."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.clock import Clock
from penstock.errors import TopicReplaced
from penstock.files import Files
from penstock.log.log import Log
from penstock.log.staging import PlacedPiece
from penstock.options import TopicOptions


class Alone:
    """What a store knows of a partition that nobody reads and no transaction writes to (`PartitionState`)."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options

    def options(self) -> TopicOptions:
        return self._options

    def require_topic(self) -> None:
        raise TopicReplaced("the topic was dropped", hint="open it anew by its name")

    def highest_position(self) -> int:
        return 0

    def unfinished(self) -> list[PlacedPiece]:
        return []

    def move(self, pieces: Iterable[PlacedPiece]) -> None:
        raise AssertionError("no transactions")

    def finish(self, tx: int) -> None:
        raise AssertionError("no transactions")


def lone_log(
    path: str, options: TopicOptions, *, topic: str = "t", topic_id: int = 7, files: Files | None = None,
    clock: Clock | None = None, read_only: bool = False,
) -> Log:  # fmt: skip
    """A log in a folder of its own."""
    return Log(
        path, topic=topic, topic_id=topic_id, partition=0, options=options, files=files or Files(),
        clock=clock or Clock(), state=Alone(options), read_only=read_only,
    )  # fmt: skip
