"""What a topic asks of whoever holds its messages until they are due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class DelaysMessages(Protocol):
    """What holds messages until they are due (`penstock.topic.delayed.Delayed`)."""

    def add(self, topic: str, messages: Sequence[Any]) -> None: ...

    def prepare(self) -> None: ...

    def bring_in(self) -> None: ...

    def look(self) -> None: ...


class NoDelays:
    """For a topic outside a store, or in one that may only be read."""

    def add(self, topic: str, messages: Sequence[Any]) -> None:
        raise AssertionError("a topic outside a store delays nothing")

    def prepare(self) -> None:
        raise AssertionError("a topic outside a store delays nothing")

    def bring_in(self) -> None:
        pass

    def look(self) -> None:
        pass
