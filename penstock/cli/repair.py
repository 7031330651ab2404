"""`penstock repair`: report what is broken in a store's own records, then repair what can be repaired."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from penstock.cli import output
from penstock.cli.arguments import JsonOption, StoreOption, YesOption, flag
from penstock.store.repair import RepairPlan, apply_repair, plan_repair


@dataclass(frozen=True)
class RepairFacts:
    """One step of a repair."""

    path: str
    what: str
    doing: str
    lost: str


@dataclass(frozen=True)
class Repaired:
    """What was found, and whether it was repaired."""

    store: str
    repaired: bool
    steps: list[RepairFacts]


def repair(
    store: StoreOption = "",
    dry_run: Annotated[bool, flag("--dry-run", help="Only say what would be done.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take back topics that `state.db` forgot, or rebuild a `state.db` that cannot be read.

    First says what is wrong, what would be done and what is lost for good; then asks. Nothing is deleted: a
    damaged file is moved aside. No other program may have the store open meanwhile.
    """
    plan = plan_repair(store)
    if not as_json:
        _put(plan)
    repaired = bool(plan.steps) and not dry_run
    if repaired:
        output.confirm(f"repair {plan.path}?", yes=yes)
        apply_repair(plan)
    if as_json:
        output.put_json(Repaired(plan.path, repaired, [RepairFacts(*step[:4]) for step in plan.steps]))
    elif repaired:
        output.put_text("repaired; penstock verify checks the whole store")


def _put(plan: RepairPlan) -> None:
    if not plan.steps:
        output.put_text(f"{plan.path}: nothing to repair; penstock verify looks at every byte")
    for step in plan.steps:
        output.put_text(f"{step.path}: {step.what}\n  {step.doing}")
        if step.lost:
            output.put_text(f"  lost: {step.lost}")
