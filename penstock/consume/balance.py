"""Who of a consumer's members reads how many partitions: pure rules, the same in every member.

No member asks another. Each sees the same file of leases (leases.py), computes its own quota and moves
towards it: the quotas of all add up to the partitions there are, so the moves end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

#: A lease that nobody took for so long may be taken over quota: whoever it belongs to does not come.
FREE_TOO_LONG_S = 5.0


class Moves(NamedTuple):
    """What a member does next."""

    take: list[int]
    give: list[int]


def quota(partitions: int, members: int, rank: int) -> int:
    """How many partitions the member of that rank may hold; the first few have one more."""
    return partitions // members + (1 if rank < partitions % members else 0)


def moves(
    allowed: int, held: Mapping[int, bool], free: Mapping[int, float], leaving: Collection[int] = ()
) -> Moves:
    """What to take and what to give up, given a quota.

    `held` says of each partition held whether it is idle (all that was delivered is committed), `free`
    for how many seconds each of the others has been free, `leaving` which are already on their way out.
    """
    surplus = len(held) - allowed
    if surplus > 0:
        return Moves([], _to_give(held, leaving, surplus))
    wanted = sorted(free)[:-surplus] if surplus else []
    late = [number for number, since in sorted(free.items()) if since >= FREE_TOO_LONG_S]
    return Moves(sorted({*wanted, *late}), [])


def _to_give(held: Mapping[int, bool], leaving: Collection[int], surplus: int) -> list[int]:
    """Those already leaving, then idle ones, which move at once; the highest numbers first."""
    order: Sequence[int] = sorted(held, key=lambda number: (number not in leaving, not held[number], -number))
    return sorted(order[:surplus])
