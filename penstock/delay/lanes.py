"""Lanes: files of one chain that are read one after another, and how the lanes are merged by due time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter

from penstock.delay.states import FileState
from penstock.delay.window import TakenMessage

_due = attrgetter("due")


class Lane:
    """Files of one chain that are read one after another."""

    def __init__(self, states: list[FileState]) -> None:
        self.names = [state.name for state in states]
        #: Due, and not delivered yet.
        self.queue: list[TakenMessage] = []


def runs(states: Sequence[FileState]) -> list[list[FileState]]:
    """A chain in parts within which `Replay` never decreases."""
    found: list[list[FileState]] = []
    for state in states:
        if found and state.replay >= found[-1][-1].replay:
            found[-1].append(state)
        else:
            found.append([state])
    return found


def first(queues: Sequence[list[TakenMessage]], limit: int) -> list[TakenMessage]:
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
