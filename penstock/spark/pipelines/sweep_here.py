"""A sweep in this process: names of all bodies, and of those that messages refer to, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from penstock.payloads.stores import BodyStore, Found
from penstock.payloads.sweeping import losses, orphans
from penstock.spark.pipelines.sweep_findings import Counts, Evidence, Finding, Orphan
from penstock.topic.bodyrefs import Referring, references_between
from penstock.topic.partitions import Partitions

#: Bodies by place and name.
_Bodies = dict[int, dict[str, Found]]


def look_here(
    partitions: Partitions, addresses: Mapping[int, str], *, now_ns: int, grace_ns: int, most: int
) -> Evidence:
    """Look at all bodies and all messages of a topic; `addresses` are its places, by number."""
    stores = partitions.bodies.stores()
    bodies = _listed(stores)
    live: dict[int, Counter[str]] = {place: Counter() for place in stores}
    suspects, messages, elsewhere = [], 0, 0
    for each in _referring(partitions):
        reference = each.reference
        messages += 1
        if reference.place not in bodies:
            elsewhere += 1
            continue
        live[reference.place][reference.name] += reference.size
        body = bodies[reference.place].get(reference.name)
        if body is None or body.size < reference.start + reference.size:
            suspects.append(each)
    lost = _lost(partitions, stores, suspects) if suspects else []
    alone = [
        Orphan(addresses[place], body)
        for place, there in bodies.items()
        for body in orphans(there.values(), live[place], now_ns, grace_ns)
    ]
    without = sum(name not in live[place] for place, there in bodies.items() for name in there)
    partly = list(_partly_dead(bodies, live, addresses))
    everything = [body for there in bodies.values() for body in there.values()]
    counts = Counts(
        bodies=len(everything), bytes=sum(body.size for body in everything), messages=messages,
        orphans=len(alone), orphan_bytes=sum(each.body.size for each in alone), young=without - len(alone),
        partly_dead=len(partly), dead_bytes=sum(each.bytes for each in partly), losses=len(lost),
        elsewhere=elsewhere,
    )  # fmt: skip
    oldest = sorted(alone, key=lambda each: (each.body.modified_ns, each.body.name))[:most]
    findings = [
        *(Finding("orphan", place, body.name, body.size, body.modified_ns) for place, body in oldest),
        *(_loss(each, addresses) for each in lost[:most]),
        *partly[:most],
    ]
    return Evidence(counts, findings, alone)


def _listed(stores: Mapping[int, BodyStore]) -> _Bodies:
    return {place: {found.name: found for found in store.list()} for place, store in stores.items()}


def _referring(partitions: Partitions) -> Iterator[Referring]:
    for log in partitions.logs():
        bounds = log.bounds()
        yield from references_between(log, bounds.start, bounds.end, passing_damage=False)


def _lost(
    partitions: Partitions, stores: Mapping[int, BodyStore], suspects: list[Referring]
) -> list[Referring]:
    """Those whose body is missing also now, while their message is there: both may have gone, or come."""
    sizes = {place: {found.name: found.size for found in store.list()} for place, store in stores.items()}
    starts = {log.partition: log.bounds().start for log in partitions.logs()}
    missing = losses(((each, each.reference) for each in suspects), sizes)
    return [each for each, _ in missing if each.offset >= starts[each.partition]]


def _partly_dead(
    bodies: _Bodies, live: Mapping[int, Counter[str]], addresses: Mapping[int, str]
) -> Iterator[Finding]:
    for place, there in bodies.items():
        for name, needed in live[place].items():
            body = there.get(name)
            if body is not None and body.size > needed:
                yield Finding("partly dead", addresses[place], name, body.size - needed, body.modified_ns)


def _loss(each: Referring, addresses: Mapping[int, str]) -> Finding:
    reference = each.reference
    return Finding(
        "loss", addresses[reference.place], reference.name, reference.size, None, each.partition, each.offset
    )
