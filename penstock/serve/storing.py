"""Storing pushes that share an append: each has its own ids, or its own error.

In a thread, where anything may be waited for; or at once, in the loop, where the disk has been so quick that
a change of threads would cost more, and if nothing else has to be waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from penstock.errors import TopicReplaced, UsageError
from penstock.faces.answers import Pushed
from penstock.faces.events import Events
from penstock.serve import limits
from penstock.serve.pushing import Push

Outcome = Pushed | Exception
#: With the seconds it took.
Timed = tuple[list[Outcome], float]


class Disk:
    """Whether storing is so quick that the loop may wait for it: a change of threads costs more CPU."""

    def __init__(self) -> None:
        self._quick = 0

    @property
    def is_quick(self) -> bool:
        return self._quick >= limits.QUICK_STORES

    def took(self, seconds: float) -> None:
        """Note how long it took to store a group: a slow one counts against those that follow."""
        self._quick = self._quick + 1 if seconds < limits.TURN_S else 0


def timed(find: Callable[..., Events], topic: str, pushes: Sequence[Push]) -> Timed:
    """What `store_together` says, and how long it took."""
    began = monotonic()
    return store_together(find, topic, pushes), monotonic() - began


def store_at_once(events: Events, pushes: Sequence[Push]) -> list[Outcome] | None:
    """The same as `store_together` if nothing but the disk has to be waited for; None if nothing was stored.

    Raises `UsageError` when one of them cannot be stored, and then none is.
    """
    pushed = events._push_at_once(*_joined(pushes))
    return None if pushed is None else _shares(pushed, pushes)


def store_together(find: Callable[..., Events], topic: str, pushes: Sequence[Push]) -> list[Outcome]:
    """Append pushes and make them durable: the ids, or the error, of each. Called in a thread."""
    try:
        return _stored(find(topic), pushes)
    except TopicReplaced:  # by another process: what has the name now gets it
        return _stored(find(topic, anew=True), pushes)


def _stored(events: Events, pushes: Sequence[Push]) -> list[Outcome]:
    try:
        return _shares(events._push(*_joined(pushes)), pushes)
    except UsageError as error:  # nothing was stored, because of one of them
        return [error] if len(pushes) == 1 else [_stored_alone(events, push) for push in pushes]


def _shares(pushed: Pushed, pushes: Sequence[Push]) -> list[Outcome]:
    """The ids of each push of a group."""
    outcomes: list[Outcome] = []
    first = pushed.first
    for push in pushes:
        following = first + len(push.keys)
        outcomes.append(Pushed(pushed.epoch, first, following - 1))
        first = following
    return outcomes


def _stored_alone(events: Events, push: Push) -> Outcome:
    try:
        return events._push(*push)
    except UsageError as error:
        return error


def _joined(pushes: Sequence[Push]) -> Push:
    if len(pushes) == 1:
        return pushes[0]
    headers = None
    if any(push.headers is not None for push in pushes):
        headers = [header for push in pushes for header in push.headers or [None] * len(push.keys)]
    return Push(
        [key for push in pushes for key in push.keys], [value for push in pushes for value in push.values],
        headers,
    )  # fmt: skip
