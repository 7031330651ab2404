"""Lanes: files of one delay that are read one after another, and how the lanes are merged by due time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter

from penstock.delay.states import FileState
from penstock.delay.window import Taken

_due = attrgetter("due")


class Lane:
    """Files of one delay that are read one after another."""

    def __init__(self, states: list[FileState]) -> None:
        self.names = [state.name for state in states]
        #: Due, and not handed out yet.
        self.queue: list[Taken] = []


def runs(states: Sequence[FileState]) -> list[list[FileState]]:
    """A chain in pieces within which `Replay` never decreases."""
    runs: list[list[FileState]] = []
    for state in states:
        if runs and state.replay >= runs[-1][-1].replay:
            runs[-1].append(state)
        else:
            runs.append([state])
    return runs


def first(queues: Sequence[list[Taken]], limit: int) -> list[Taken]:
    """Take the first ones of all queues, in the order of due times; each queue keeps its own order."""
    filled = [queue for queue in queues if queue]
    if len(filled) == 1:
        chosen = filled[0][:limit]
        del filled[0][:limit]
        return chosen
    tagged = sorted(
        (due, which, place)
        for which, queue in enumerate(filled)
        for place, due in enumerate(accumulate(map(_due, queue[:limit]), max))
    )[:limit]
    chosen = [filled[which][place] for _, which, place in tagged]
    for which, queue in enumerate(filled):
        del queue[: sum(tag[1] == which for tag in tagged)]
    return chosen
