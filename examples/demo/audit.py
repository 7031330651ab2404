"""The ledger: whoever counted must have counted the same orders, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

#: An order: its shop and its number.
Order = tuple[int, int]


@dataclass
class Ledger:
    """What the parties counted, and what is wrong with it."""

    lines: list[tuple[str, int]] = field(default_factory=list)
    lost: int = 0
    twice: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.lost and not self.twice and not self.problems

    def acknowledged(self, highest: Mapping[int, int], stored: Counter[Order]) -> None:
        """Of each shop the last order that it has a receipt for: that one and all before it must be there."""
        orders = {(shop, number) for shop, last in highest.items() for number in range(1, last + 1)}
        self.lines.append(("acknowledged to the shops", len(orders)))
        self.lost += len(orders - stored.keys())

    def stored(self, stored: Counter[Order]) -> None:
        self.lines.append(("stored in the topic", stored.total()))
        self.twice += stored.total() - len(stored)

    def orders(self, party: str, found: Counter[Order], stored: Counter[Order]) -> None:
        """A party that knows each order."""
        self.lines.append((party, found.total()))
        self.lost += len(stored.keys() - found.keys())
        self.twice += found.total() - len(found)

    def sums(self, party: str, found: Mapping[str, int], expected: Mapping[str, int]) -> None:
        """A party that knows sums by country only."""
        self.lines.append((party, sum(found.values())))
        for country in found.keys() | expected.keys():
            difference = found.get(country, 0) - expected.get(country, 0)
            self.lost += max(-difference, 0)
            self.twice += max(difference, 0)
