"""What a scenario tells: figures that add up over many runs, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Outcome(NamedTuple):
    """Figures of one run of a scenario, and its problems; none is good."""

    figures: Mapping[str, int]
    problems: Sequence[str] = ()
