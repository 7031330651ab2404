"""When a message that failed is tried again: back-off with a little chance in it, and an end."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InvalidOption, WrongType
from penstock.options import WAIT_MAX_S, Duration, seconds, whole

ATTEMPTS_MAX = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How often a message is tried, and how long it waits in between."""

    #: The wait after the first failure.
    first: Duration = "1s"
    #: Each further wait is so many times longer; 1 keeps them equal.
    factor: float = 2.0
    #: No wait is longer than this, but for the chance in it.
    limit: Duration = "1h"
    #: So many attempts in all, the first one included; then the message is a dead letter.
    attempts: int = 8
    #: Each wait is longer by a random share up to this, so that what failed together does not come together.
    jitter: float = 0.1

    def __post_init__(self) -> None:
        first, limit = seconds("first", self.first), seconds("limit", self.limit)
        if not 0.001 <= first <= WAIT_MAX_S:
            raise InvalidOption(f"first={self.first!r} is no wait", hint="from 1 ms to a year")
        if not first <= limit <= WAIT_MAX_S:
            raise InvalidOption(f"limit={self.limit!r} is out of range", hint="from `first` to a year")
        if not 1 <= _number("factor", self.factor) <= 1000:
            raise InvalidOption(f"factor={self.factor!r} is out of range", hint="from 1 to 1000")
        if not 0 <= _number("jitter", self.jitter) <= 1:
            raise InvalidOption(f"jitter={self.jitter!r} is out of range", hint="a share from 0 to 1")
        whole("attempts", self.attempts, 1, ATTEMPTS_MAX)

    def wait_s(self, attempt: int, chance: float = 0.0) -> float | None:
        """How long to wait after this attempt failed; None when it was the last one.

        `chance`, from 0 to 1, is how much of the jitter to add.
        """
        if attempt >= self.attempts:
            return None
        return self.back_off_s(attempt, chance)

    def back_off_s(self, attempt: int, chance: float = 0.0) -> float:
        """The wait after an attempt, whether or not it was the last."""
        first, limit = seconds("first", self.first), seconds("limit", self.limit)
        try:
            wait = min(first * self.factor ** (attempt - 1), limit)
        except OverflowError:
            wait = limit
        return wait * (1.0 + self.jitter * chance)


def checked_policy(policy: object) -> Retry:
    if not isinstance(policy, Retry):
        raise WrongType(f"retry is a Retry, not {type(policy).__name__}", hint="penstock.Retry(attempts=3)")
    return policy


def _number(name: str, value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise WrongType(f"{name} is a number, not {type(value).__name__}")
    return float(value)
