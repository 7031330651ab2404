"""`penstock status`: topics, consumers, disk, and whether all is well."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from penstock import Store
from penstock.cli import facts, output
from penstock.cli.arguments import JsonOption, StoreOption, flag, open_to_read
from penstock.cli.facts import ConsumerFacts, TopicFacts
from penstock.cli.failures import Exit
from penstock.clock import Clock
from penstock.parse import seconds
from penstock.store.health import complaints, disk

_HOME_AND_CLEAR = b"\x1b[H\x1b[2J"


@dataclass(frozen=True)
class TopicStatus(TopicFacts):
    """A topic, and with --watch how many messages a second came in since the last look."""

    messages_per_second: float | None = None


@dataclass(frozen=True)
class Status:
    """A store as it is now; `healthy` is false when there are problems."""

    store: str
    store_id: str
    time: str | None
    time_ns: int
    healthy: bool
    problems: list[str]
    warnings: list[str]
    disk_free_bytes: int
    disk_total_bytes: int
    messages: int
    bytes: int
    topics: list[TopicStatus]
    consumers: list[ConsumerFacts]


def status(
    watch: Annotated[bool, flag("--watch", "-w", help="Look again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME", help="How long --watch waits between looks.")
    ] = "2s",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show what the store holds and whether it is well; exit code 3 when it is not."""
    pause = seconds("--interval", interval)
    now: Status | None = None
    while True:
        with open_to_read(store) as opened:
            now = _look(opened, now)
        if as_json:
            output.put_json(now, line=watch)
        else:
            _put(now, watch)
        if not watch:
            break
        time.sleep(pause)
    if not now.healthy:
        raise typer.Exit(Exit.UNHEALTHY)


def _look(store: Store, before: Status | None) -> Status:
    found = list(complaints(store))
    topics = [facts.topic_facts(topic) for topic in store.topics()]
    problems = [each.what for each in found if each.severity == "problem"]
    problems += [f"topic {topic.topic}: {topic.problem}" for topic in topics if topic.problem]
    room, now = disk(store), Clock.now_ns()
    return Status(
        store=store.path,
        store_id=store.id,
        time=output.iso(now),
        time_ns=now,
        healthy=not problems,
        problems=problems,
        warnings=[each.what for each in found if each.severity == "warning"],
        disk_free_bytes=room.free_bytes,
        disk_total_bytes=room.total_bytes,
        messages=sum(topic.messages or 0 for topic in topics),
        bytes=sum(topic.bytes or 0 for topic in topics),
        topics=[_with_rate(topic, before, now) for topic in topics],
        consumers=[each for topic in store.topics() for each in facts.consumer_facts(topic)],
    )


def _with_rate(topic: TopicFacts, before: Status | None, now_ns: int) -> TopicStatus:
    current = TopicStatus(**vars(topic))
    for old in before.topics if before is not None else ():
        if before is not None and old.topic == topic.topic and now_ns > before.time_ns:
            came = max(0, (topic.messages or 0) - (old.messages or 0))
            return replace(current, messages_per_second=round(came * 1e9 / (now_ns - before.time_ns), 1))
    return current


def _put(now: Status, watch: bool) -> None:
    if watch:
        output.put(_HOME_AND_CLEAR if output.is_terminal() else b"")
    share = now.disk_free_bytes / now.disk_total_bytes if now.disk_total_bytes else 1.0
    output.put_text(
        f"{now.store}: {'healthy' if now.healthy else 'NOT HEALTHY'}, "
        f"{output.counted(now.messages, 'message')}, {output.size(now.bytes)}; "
        f"disk {output.size(now.disk_free_bytes)} free ({share:.0%})"
    )
    for problem in now.problems:
        output.put_text(f"problem: {problem}")
    for warning in now.warnings:
        output.put_text(f"warning: {warning}")
    output.put_text("")
    rate: output.Column[TopicStatus] = (
        "msg/s",
        lambda t: "-" if t.messages_per_second is None else output.count(round(t.messages_per_second)),
        True,
    )
    output.put_table(
        "", now.topics, (*facts.topic_columns(), *((rate,) if watch else ())), empty="no topics yet"
    )
    if now.consumers:
        output.put_text("")
        output.put_table("", now.consumers, facts.consumer_columns())
