"""Checking that every message has its body; nothing is fetched, and nothing is altered."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import PenstockError
from penstock.log.findings import Finding, damage, note
from penstock.payloads.sweeping import losses
from penstock.topic.bodyrefs import Referring, references_between
from penstock.topic.partitions import Partitions


def body_findings(partitions: Partitions) -> Iterator[Finding]:
    """Messages of a topic whose bodies are gone or too short; a place that does not answer is noted."""
    bodies = partitions.bodies
    if not bodies.is_used:
        return
    referring = [each for number in range(len(partitions)) for each in _referring(partitions, number)]
    sizes: dict[int, dict[str, int]] = {}
    for place, store in bodies.stores().items():
        try:
            sizes[place] = {found.name: found.size for found in store.list()}
        except PenstockError as error:
            yield note(partitions.folder, None, f"bodies were not checked: {error}")._replace(
                topic=partitions.name
            )
            referring = [each for each in referring if each.reference.place != place]
    for each, reference in losses(((each, each.reference) for each in referring), sizes):
        if each.offset < partitions.log(each.partition).bounds().start:
            continue  # retention took both meanwhile
        what = f"body {reference.name!r} of {reference.size} bytes is missing or too short"
        found = damage(partitions.folder, None, what, each.offset, each.offset + 1)
        yield found._replace(topic=partitions.name, partition=each.partition)


def _referring(partitions: Partitions, number: int) -> Iterator[Referring]:
    log = partitions.log(number)
    bounds = log.bounds()
    return references_between(log, bounds.start, bounds.end)
