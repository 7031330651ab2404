"""`penstock verify`: check every frame, index and state; name file and byte of damage; never write."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, StoreOption, flag, open_to_read
from penstock.cli.failures import Exit
from penstock.findings import Finding
from penstock.store.verify import StoreVerifier, body_findings


@dataclass(frozen=True)
class FindingFacts:
    """One finding; `path` is relative to the store, `last_offset` is the last one concerned."""

    severity: str
    topic: str | None
    partition: int | None
    path: str
    byte: int | None
    what: str
    first_offset: int | None
    last_offset: int | None


@dataclass(frozen=True)
class Verified:
    """What was checked and what was found."""

    store: str
    sound: bool
    seconds: float
    topics: int
    partitions: int
    segments: int
    frames: int
    messages: int
    waiting: int
    bytes: int
    damage: list[FindingFacts]
    notes: list[FindingFacts]


def verify(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Only this topic.", show_default=False)
    ] = None,
    store: StoreOption = "",
    payloads: Annotated[
        bool, flag("--payloads", help="Also ask, wherever bodies lie, whether each message has its own.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check every byte that is stored; exit code 3 when there is damage.

    Nothing is written, so it may run at any time, also beside writers. Damage means that messages
    are lost; notes tell of what will be made good by itself.
    """
    began = time.monotonic()
    verifier = StoreVerifier(store, topic=topic)
    checked = verifier.checked
    progress = output.ProgressLine(lambda: f"{output.size(checked.bytes)} checked")
    found = list(verifier.findings(progress.update))
    if payloads:
        found += _body_findings(store, topic)
    progress.clear()
    result = Verified(
        store=verifier.path,
        sound=all(each.severity != "damage" for each in found),
        seconds=round(time.monotonic() - began, 3),
        **asdict(checked),
        damage=_listed(verifier.path, found, "damage"),
        notes=_listed(verifier.path, found, "note"),
    )
    if as_json:
        output.put_json(result)
    else:
        _put(result)
    if not result.sound:
        raise typer.Exit(Exit.UNHEALTHY)


def _body_findings(store: str, topic: str | None) -> list[Finding]:
    with open_to_read(store) as opened:
        topics = opened.topics() if topic is None else [opened.topic(topic)]
        return [found for each in topics for found in body_findings(each.open_topic)]


def _listed(store: str, findings: Sequence[Finding], severity: str) -> list[FindingFacts]:
    return [
        FindingFacts(
            each.severity, each.topic, each.partition, os.path.relpath(each.path, store), each.byte,
            each.what, each.first, None if each.stop is None else each.stop - 1,
        )
        for each in findings
        if each.severity == severity
    ]  # fmt: skip


def _put(result: Verified) -> None:
    for each in (*result.damage, *result.notes):
        place = each.path if each.byte is None else f"{each.path} at byte {each.byte}"
        output.put_text(f"{each.severity}: {place}: {each.what}{_offsets(each)}")
    rate = output.size(int(result.bytes / max(result.seconds, 0.001)))
    looked_at = ", ".join(
        output.counted(number, noun)
        for number, noun in (
            (result.messages, "message"),
            *(((result.waiting, "waiting message"),) if result.waiting else ()),
            (result.frames, "frame"),
            (result.segments, "segment"),
            (result.partitions, "partition"),
            (result.topics, "topic"),
        )
    )
    output.put_text(f"{looked_at}; {output.size(result.bytes)} in {result.seconds:g} s ({rate}/s)")
    found = (
        f"{output.counted(len(result.damage), 'damaged place')}, {output.counted(len(result.notes), 'note')}"
    )
    output.put_text(f"{'sound' if result.sound else 'DAMAGED'}: {found}")


def _offsets(found: FindingFacts) -> str:
    if found.first_offset is None:
        return ""
    if found.last_offset is None:
        return f" (from offset {found.first_offset})"
    if found.last_offset == found.first_offset:
        return f" (offset {found.first_offset})"
    return f" (offsets {found.first_offset} to {found.last_offset})"
