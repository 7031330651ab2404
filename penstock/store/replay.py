"""Replay: a range of one topic copied into another, frame by frame, each message once.

    replay(store, "orders", "orders.again", start="2h")

Each step copies some frames, and moves the pipeline's position over them, in one transaction; a process
that is killed leaves nothing of a step, and the next run under the same name goes on behind the last one.
Keys, values as they are packed, headers and the producers' times are those of the source, to the byte and
the nanosecond; offsets and written times are new, and who wrote a message under which seqno stays behind.
Values that lie outside the source's log are stored anew, as the sink keeps them (`topic.copy_bodies`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption, OffsetTrimmed
from penstock.log.copy import FrameRun, MessageRun, SingleRun
from penstock.log.cursor import Cursor
from penstock.log.folder import file_bytes
from penstock.log.log import Log
from penstock.log.rows import FrameRows
from penstock.message import Rows
from penstock.parse import MIB
from penstock.partition_tree import PartitionTree
from penstock.place import Place, spot
from penstock.store.pipeline_position import PipelinePosition
from penstock.store.pipelines import PipelineRun, Watch, claim, unwatched
from penstock.store.stats import written_at
from penstock.store.topic import Topic
from penstock.topic.copy import TopicCopy
from penstock.topic.copy_bodies import BodyCopy
from penstock.topic.open_topic import OpenTopic
from penstock.topic.write_plan import TopicPlan, plan_of

if TYPE_CHECKING:
    from penstock.store.store import Store


#: Offsets by partition.
Offsets = Mapping[int, int]
_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/s)?")
_SPEED = re.compile(r"(\d+(?:\.\d+)?)x?")


class ReplayPace(Protocol):
    """How far each partition may be copied."""

    def targets(self, at: Offsets, ends: Offsets, elapsed_s: float) -> dict[int, int]:
        """The offset up to which each may be copied `elapsed_s` after the start; it never goes back."""


class Unhurried:
    """All of it, as fast as possible."""

    def targets(self, at: Offsets, ends: Offsets, elapsed_s: float) -> dict[int, int]:
        """Return up to where to copy by now: everything."""
        return dict(ends)


class Rate:
    """A number of messages a second, from all partitions in proportion to what is left of them."""

    def __init__(self, per_second: float, begin: Offsets) -> None:
        self._per_second = per_second
        self._begin = dict(begin)

    def targets(self, at: Offsets, ends: Offsets, elapsed_s: float) -> dict[int, int]:
        """Return up to where to copy by now, at so many messages a second."""
        done = sum(at[number] - self._begin[number] for number in at)
        return shared(at, ends, int(self._per_second * elapsed_s) - done)


class Speed:
    """As fast as it was written, or so many times faster: by the times that the log gave."""

    def __init__(self, factor: float, first_written_at: int, offset_at: Callable[[int, int], int]) -> None:
        self._factor = factor
        self._first = first_written_at
        #: The first offset of a partition that was written at a time or later.
        self._offset_at = offset_at

    def targets(self, at: Offsets, ends: Offsets, elapsed_s: float) -> dict[int, int]:
        """Return up to where to copy by now, at the speed the messages were written or a multiple."""
        moment = self._first + round(elapsed_s * self._factor * NANOSECONDS) + 1
        return {
            number: min(max(self._offset_at(number, moment), at[number]), end) for number, end in ends.items()
        }


def shared(at: Offsets, ends: Offsets, budget: int) -> dict[int, int]:
    """Go on by `budget` messages in all, each partition by its share of what is left.

    So all of them end together; what rounding leaves over goes to the first that has something left.
    """
    left = {number: end - at[number] for number, end in ends.items()}
    total = sum(left.values())
    budget = max(min(budget, total), 0)
    steps = {number: budget * rest // total if total else 0 for number, rest in left.items()}
    over = budget - sum(steps.values())
    for number, rest in left.items():
        more = min(over, rest - steps[number])
        steps[number] += more
        over -= more
    return {number: at[number] + step for number, step in steps.items()}


def parse_rate(text: str) -> float:
    """Messages a second, from "500" or "500/s"."""
    return _positive("rate", text, _RATE, '"500/s"')


def parse_speed(text: str) -> float:
    """How many times faster, from "2" or "2x"; "0.5x" is half as fast."""
    return _positive("speed", text, _SPEED, '"2x"')


def _positive(what: str, text: str, pattern: re.Pattern[str], example: str) -> float:
    match = pattern.fullmatch(text)
    if match is None or not float(match[1]):
        raise InvalidOption(f"{what} {text!r} is not a number above 0", hint=f"write it like {example}")
    return float(match[1])


#: A step copies about so much: most of it becomes segments as it is, and to do it again takes a second.
_STEP_BYTES = 256 * MIB
_READ_BYTES = 8 * MIB
_READ_MESSAGES = 1 << 20
#: A paced replay looks this often what is due.
_TICK_S = 0.05


@dataclass(frozen=True)
class PartitionRange:
    """What is to be copied of one partition."""

    partition: int
    start: int
    stop: int
    messages: int
    #: About, where a range begins or ends inside of a segment.
    bytes: int


@dataclass(frozen=True)
class ReplayPlan:
    """What a replay would copy."""

    source: str
    sink: str
    messages: int
    bytes: int
    partitions: tuple[PartitionRange, ...]

    @classmethod
    def of(cls, source: str, sink: str, ranges: Sequence[PartitionRange]) -> ReplayPlan:
        """Make the plan of these ranges, with their totals."""
        messages, size = sum(each.messages for each in ranges), sum(each.bytes for each in ranges)
        return cls(source, sink, messages, size, tuple(ranges))


@dataclass(frozen=True)
class Replayed:
    """What a run of a replay copied; `left` is what it was stopped before."""

    source: str
    sink: str
    messages: int
    bytes: int
    left: int


def replay(
    store: Store, source: str, sink: str, *, start: Place = "earliest", stop: Place = "latest",
    rate: float | None = None, speed: float | None = None, name: str | None = None, watch: Watch = unwatched,
) -> Replayed:  # fmt: skip
    """Copy `source` from `start` to `stop` into `sink`, each message exactly once; return when it is there.

    `start` counts when the pipeline is made: later runs of its name go on where it stopped, and raise
    `PipelineChanged` for another one. `stop` is looked at in each run, so a replay up to "latest" run again
    copies what is new. `rate` is messages a second; `speed` how many times faster than they were written.

    Raises `InvalidOption` for a topic into itself, `OffsetTrimmed` when retention took what was to come.
    """
    origin, target = two_topics(store, source, sink)
    _check_pace(rate, speed)
    _resolved(origin.open_topic, start, stop)  # a wrong place is said before the pipeline is made
    called = name or f"replay-{source}"
    identity = {**identity_of(origin, target), "from": str(start)}
    options = {"to": str(stop), "rate": rate, "speed": speed}
    with claim(
        store, called, kind="replay", identity=identity, consumer=called,
        options={key: value for key, value in options.items() if value is not None},
    ) as run:  # fmt: skip
        with watch(run):
            return _Replay(store, origin, target, run, start, stop).run(rate, speed)


def plan_replay(
    store: Store, source: str, sink: str, *, start: Place = "earliest", stop: Place = "latest"
) -> ReplayPlan:
    """What a new replay would copy; nothing is changed."""
    origin, target = two_topics(store, source, sink)
    ranges = []
    for number, (first, last) in _resolved(origin.open_topic, start, stop).items():
        size = _range_bytes(origin.open_topic.log(number), first, last)
        ranges.append(PartitionRange(number, first, last, last - first, size))
    return ReplayPlan.of(origin.name, target.name, ranges)


def two_topics(store: Store, source: str, sink: str) -> tuple[Topic, Topic]:
    """Both topics; raises `UnknownTopic`, and `InvalidOption` when they are one."""
    origin, target = store.topic(source), store.topic(sink)
    if origin.id == target.id:
        raise InvalidOption(
            f"{source!r} would be copied into itself, without an end", hint="name another topic as the sink"
        )
    return origin, target


def identity_of(source: Topic, sink: Topic) -> dict[str, Any]:
    """What a restart must agree with: the topics, also that they were not made anew."""
    return {"source": source.name, "sink": sink.name, "source_id": source.id, "sink_id": sink.id}


class _Replay:
    """One run."""

    def __init__(
        self, store: Store, source: Topic, sink: Topic, run: PipelineRun, start: Place, stop: Place
    ) -> None:
        self._store, self._source, self._sink, self._run = store, source, sink, run
        self._from = source.open_topic
        self._standing = PipelinePosition(source, run, start)
        now = self._from.clock.now_ns()
        self._ends = {
            number: max(_end(self._from.log(number), stop, now), at)
            for number, at in self._standing.at.items()
        }
        self._gates = self._from.topics.gates(self._from.record.id)
        self._cursors: dict[int, Cursor] = {}
        self._messages = self._bytes = 0

    def run(self, rate: float | None, speed: float | None) -> Replayed:
        pace = self._pace(rate, speed)
        step_bytes = _STEP_BYTES if isinstance(pace, Unhurried) else _READ_BYTES
        began = time.monotonic()
        while self._left() and not self._run.stopping:
            targets = pace.targets(self._standing.at, self._ends, time.monotonic() - began)
            if not self._step(targets, step_bytes):
                time.sleep(_TICK_S)
        return Replayed(self._source.name, self._sink.name, self._messages, self._bytes, self._left())

    def _left(self) -> int:
        return sum(end - self._standing.at[number] for number, end in self._ends.items())

    def _pace(self, rate: float | None, speed: float | None) -> ReplayPace:
        at = self._standing.at
        if rate is not None:
            return Rate(rate, at)
        if speed is not None and self._left():
            waiting = (number for number, end in self._ends.items() if at[number] < end)
            times = (written_at(self._from.log(number), at[number]) for number in waiting)
            first = min((moment for moment in times if moment is not None), default=0)
            return Speed(speed, first, lambda number, moment: self._from.log(number).offset_at(moment))
        return Unhurried()

    def _step(self, targets: Offsets, step_bytes: int) -> bool:
        """Copy some of what may be copied, in one transaction; False when there was nothing."""
        sink = self._sink.open_topic
        sink.refresh()
        plan = plan_of(sink)
        copying = copying_into(sink, plan, source=self._from.tree)
        try:
            reached = self._copy(copying, targets, step_bytes)
            pieces = copying.finish()
        except BaseException:
            copying.discard()
            raise
        if not reached:
            return False
        with self._store.transaction() as tx:
            tx.adopt(
                self._sink, pieces, tree=plan.tree, rows=plan.rows, raw=False,
                bodies=copying.bodies,
            )  # fmt: skip
            self._standing.move(tx, reached)
        self._messages += copying.count
        self._bytes += copying.bytes
        self._run.report(rows=copying.count)
        return True

    def _copy(self, copying: TopicCopy, targets: Offsets, step_bytes: int) -> dict[int, int]:
        """Copy up to the targets; return how far each partition came, of those that were copied."""
        at, reached = dict(self._standing.at), {}
        for number in sorted(targets):
            if targets[number] <= at[number] or not is_open(number, at, self._ends, self._gates):
                continue
            cursor, behind = self._cursor(number, at[number]), at[number]
            while copying.bytes < step_bytes and (
                rows := cursor.read(_READ_MESSAGES, _READ_BYTES, targets[number])
            ):
                for each in rows:
                    if copying.bytes >= step_bytes:  # rows are small where their bodies lie elsewhere
                        break
                    copying.add(number, run_of(each))
                    behind = each.stop
            done = copying.bytes < step_bytes  # then only offsets that hold no message can be left
            reached[number] = at[number] = targets[number] if done else behind
        return reached

    def _cursor(self, number: int, offset: int) -> Cursor:
        """Return the cursor that stands at an offset, which knows its byte in the file; else a new one."""
        cursor = self._cursors.get(number)
        if cursor is None or cursor.offset != offset:
            cursor = self._cursors[number] = self._from.log(number).cursor(offset, far=True)
        return cursor


def copying_into(topic: OpenTopic, plan: TopicPlan, *, source: PartitionTree) -> TopicCopy:
    """A copy into a topic that this process has open."""
    bounds = {log.partition: log.bounds() for log in topic.logs()}
    return TopicCopy(
        plan, lambda number: topic.log(number).folder, source=source,
        empty={number for number, each in bounds.items() if each.end == each.segment},
        carrier=BodyCopy(topic),
    )  # fmt: skip


def is_open(number: int, at: Offsets, ends: Offsets, gates: Mapping[int, Offsets]) -> bool:
    """Whether all that keys wrote before they moved to this partition is copied, as far as it is to be."""
    left, seen = [number], {number}
    while left:
        for parent, gate in gates.get(left.pop(), {}).items():
            if parent in at and at[parent] < min(gate, ends[parent]):
                return False
            if parent not in seen:
                seen.add(parent)
                left.append(parent)
    return True


def run_of(rows: Rows) -> MessageRun:
    """What a cursor reads, as it can be copied."""
    if isinstance(rows, FrameRows):
        return FrameRun(rows.frame, rows.begin, rows.end)
    found = rows.messages()
    return SingleRun(
        [m.key for m in found], [m.value for m in found], [m.timestamp for m in found],
        [m.written_at for m in found],
    )  # fmt: skip


def _check_pace(rate: float | None, speed: float | None) -> None:
    if rate is not None and speed is not None:
        raise InvalidOption("a replay has a rate or a speed, not both")
    for what, given in (("rate", rate), ("speed", speed)):
        if given is not None and not given > 0:
            raise InvalidOption(f"{what}={given} is not above 0")


def _resolved(topic: OpenTopic, start: Place, stop: Place) -> dict[int, tuple[int, int]]:
    """Return the range of each partition: its first offset and the one behind the last."""
    topic.refresh()
    now = topic.clock.now_ns()
    found = {}
    for number, first in topic.begin_all(start, now).items():
        log = topic.log(number)
        lowest = log.bounds().start
        if first < lowest:
            raise _gone(topic.name, number, first, lowest)
        found[number] = first, max(_end(log, stop, now), first)
    return found


def _end(log: Log, stop: Place, now: int) -> int:
    if isinstance(stop, Mapping) and log.partition not in stop:
        return log.bounds().end
    return min(log.resolve(spot(stop, log.partition, now)), log.bounds().end)


def _gone(topic: str, partition: int, offset: int, first: int) -> OffsetTrimmed:
    error = OffsetTrimmed(
        f"offset {offset} of {topic!r} partition {partition} is gone: the first one left is {first}",
        partition=partition, offset=offset, first=first,
    )  # fmt: skip
    error.hint = "begin at earliest, or at a later place"
    return error


def _range_bytes(log: Log, start: int, stop: int) -> int:
    """How many bytes a range takes, by the share it has of each segment."""
    bounds = log.bounds()
    bases = [base for base in log.segments.bases() if base <= bounds.segment]
    total = 0
    for base, behind in zip(bases, [*bases[1:], bounds.end], strict=True):
        size = bounds.byte if base == bounds.segment else file_bytes(log.folder, base)
        taken = min(stop, behind) - max(start, base)
        if taken > 0:
            total += size * taken // (behind - base)
    return total
