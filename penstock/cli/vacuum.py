"""`penstock vacuum`: remove now what retention no longer keeps, and report what went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from penstock import Topic
from penstock.cli import output
from penstock.cli.arguments import JsonOption, StoreOption, open_to_write


@dataclass(frozen=True)
class VacuumedPartition:
    """What went from one partition, and who kept more from going."""

    topic: str
    partition: int
    messages: int
    segments: int
    bytes: int
    #: First readable offset, before and after.
    start_before: int
    start: int
    held_by: list[str]
    #: Another process is vacuuming it at this moment; nothing was done here.
    busy: bool = False
    #: Bodies outside the log that went with their messages, and those that go with the next vacuum.
    bodies: int = 0
    bodies_left: int = 0
    #: It was split and nothing of it is left: the partition itself went.
    removed: bool = False


@dataclass(frozen=True)
class VacuumFacts:
    """What a vacuum removed."""

    messages: int
    segments: int
    bytes: int
    partitions: list[VacuumedPartition]
    #: Objects with bodies that went (a pack is one), and those whose place did not answer.
    bodies: int = 0
    bodies_left: int = 0


def vacuum(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Only this topic.", show_default=False)
    ] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Remove what retention no longer keeps, and report it.

    Programs that have the store open do this by themselves when messages expire. Here indexes are made and
    small batches are merged, too. Space returns a minute later, when scans of other programs are done.
    """
    with open_to_write(store, alone=True) as opened:
        topics = opened.topics() if topic is None else [opened.topic(topic)]
        rows = [row for each in topics for row in _vacuumed(each)]
    result = VacuumFacts(
        sum(row.messages for row in rows),
        sum(row.segments for row in rows),
        sum(row.bytes for row in rows),
        rows,
        sum(row.bodies for row in rows),
        sum(row.bodies_left for row in rows),
    )
    if as_json:
        output.put_json(result)
        return
    gone = f"{output.counted(result.segments, 'segment')}, {output.size(result.bytes)}"
    if result.bodies or result.bodies_left:
        gone += f", {output.counted(result.bodies, 'object')} with bodies"
    if result.bodies_left:
        output.say(
            f"warning: {output.counted(result.bodies_left, 'object')} could not be deleted: try again later"
        )
    output.put_table(
        f"{output.counted(result.messages, 'message')} removed, {gone}", result.partitions, _COLUMNS
    )


_COLUMNS: tuple[output.Column[VacuumedPartition], ...] = (
    ("topic", lambda row: row.topic, False),
    ("partition", lambda row: str(row.partition), True),
    ("messages", lambda row: output.count(row.messages), True),
    ("segments", lambda row: output.count(row.segments), True),
    ("bytes", lambda row: output.size(row.bytes), True),
    ("start", lambda row: _start(row), False),
    ("held by", lambda row: ", ".join(row.held_by), False),
)


def _start(row: VacuumedPartition) -> str:
    if row.busy:
        return "another process is at it"
    if row.removed:
        return "the partition was split, and is gone now"
    return str(row.start) if row.start == row.start_before else f"{row.start_before} → {row.start}"


def _vacuumed(topic: Topic) -> list[VacuumedPartition]:
    report = topic.vacuum()
    done = {
        each.partition: VacuumedPartition(
            topic.name, each.partition, each.messages, each.segments, each.bytes, each.start_before,
            each.start, list(each.held_by), False, each.bodies, each.bodies_left,
            each.partition in report.removed,
        )
        for each in report.partitions
    }  # fmt: skip
    for number, start, _ in topic.scan().ranges:
        if number not in done:
            done[number] = VacuumedPartition(topic.name, number, 0, 0, 0, start, start, [], busy=True)
    return [done[number] for number in sorted(done)]
