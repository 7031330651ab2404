"""Two ways to compare all bodies with all messages: in the memory of this process, or by a join on Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.parse import datetime_ns
from penstock.payloads.store import BodyStore, FoundBody, losses, orphans
from penstock.topic.body_trim import Referring, references_between
from penstock.topic.open_topic import OpenTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


Kind = Literal["orphan", "loss", "partly dead", "unfinished"]


@dataclass(frozen=True)
class SweepFinding:
    """A body without a message, a message without a body, a pack some of whose messages are gone, …"""

    kind: Kind
    #: "files" or an s3:// address.
    place: str
    #: Of the body; of one that was never finished, of its file.
    name: str
    #: Of an orphan all of it, of a pack what is dead, of a loss what its message misses.
    bytes: int
    #: When the body was stored, in nanoseconds since 1970; None for one that is not there.
    stored: int | None = None
    #: The message that has lost its body.
    partition: int | None = None
    offset: int | None = None


@dataclass(frozen=True)
class Counts:
    """How much was found."""

    #: Bodies there are (a pack is one), and their bytes.
    bodies: int = 0
    bytes: int = 0
    #: Messages whose value lies outside the log.
    messages: int = 0
    #: Bodies without a message.
    orphans: int = 0
    orphan_bytes: int = 0
    #: Bodies without a message, younger than the grace: their messages may be on their way.
    young: int = 0
    #: Packs some of whose messages are gone, and how many bytes of them nobody refers to.
    partly_dead: int = 0
    dead_bytes: int = 0
    #: Messages whose body is not there, or too short.
    losses: int = 0
    #: Messages whose body lies at a place that is not this topic's: nothing is said of them.
    elsewhere: int = 0


class Orphan(NamedTuple):
    """A body that may go."""

    place: str
    body: FoundBody


class Evidence(NamedTuple):
    """What an engine found; `findings` are the first ones of each kind, `orphans` are all."""

    counts: Counts
    findings: list[SweepFinding]
    orphans: Iterable[Orphan]


_ON = ["place", "name"]
_ALONE = "messages IS NULL"
_TOO_SHORT = "messages IS NOT NULL AND is_ours AND (size IS NULL OR size < needed)"
_PARTLY_DEAD = "messages IS NOT NULL AND size > live"


class SweepFrames:
    """One topic as Spark sees it."""

    def __init__(self, spark: SparkSession, store: str, topic: str, addresses: Sequence[str]) -> None:
        self._spark, self._store, self._topic, self._addresses = spark, store, topic, addresses

    @contextmanager
    def look(
        self, *, before_ns: int, most: int, starts: Callable[[], Mapping[int, int]]
    ) -> Iterator[Evidence]:
        """Look at all bodies and all messages; bodies stored since `before_ns` are young.

        `starts` says where the partitions begin at the moment it is called. The orphans can be had within.
        """
        is_old = f"unix_micros(modified) < {before_ns // 1000}"
        with ExitStack() as kept:
            bodies = _kept(self._bodies(), kept)  # now, before any message is read
            messages = self._messages()
            joined = _kept(_joined(bodies, messages), kept, at_once=False)
            counts = _counts(joined, is_old)
            orphans = joined.where(f"{_ALONE} AND {is_old}")
            losses: list[Row] = []
            if counts.losses:
                missing = _kept(self._missing(messages, joined), kept)
                lost = self._still_there(missing, starts())
                counts, losses = replace(counts, losses=lost.count()), lost.limit(most).collect()
            findings = [
                *map(_body_finding, _first(orphans, joined.where(_PARTLY_DEAD), most)),
                *(_loss_finding(row) for row in losses),
            ]
            yield Evidence(counts, findings, _one_by_one(orphans))

    def _bodies(self) -> DataFrame:
        view = self._spark.read.format("penstock").options(view="payloads", topic=self._topic)
        return view.load(self._store).select("place", "name", "size", "modified")

    def _messages(self) -> DataFrame:
        """What messages refer to, one row each; what retention removes meanwhile is skipped."""
        from pyspark.sql.functions import col

        source = self._spark.read.format("penstock").options(
            topic=self._topic, columns="partition,offset,reference", failOnDataLoss="false"
        )
        return source.load(self._store).where("reference IS NOT NULL").select(
            "partition", "offset", "reference.place", "reference.name",
            col("reference.size").alias("wanted"),
            (col("reference.start") + col("reference.size")).alias("behind"),
            col("reference.place").isin(list(self._addresses)).alias("is_ours"),
        )  # fmt: skip

    def _missing(self, messages: DataFrame, joined: DataFrame) -> DataFrame:
        """Messages whose body is missing also now: it may have come after the first look."""
        suspects = messages.join(joined.where(_TOO_SHORT).select(*_ON), _ON, "left_semi")
        return suspects.join(self._bodies(), _ON, "left").where("size IS NULL OR size < behind")

    def _still_there(self, missing: DataFrame, starts: Mapping[int, int]) -> DataFrame:
        """Leave out messages that retention has removed meanwhile, with their bodies."""
        begin = self._spark.createDataFrame(list(starts.items()), "partition int, begin long")
        return missing.join(begin, "partition").where("offset >= begin").orderBy("partition", "offset")


def _kept(frame: DataFrame, until: ExitStack, *, at_once: bool = True) -> DataFrame:
    """The frame worked out once, now or when it is first asked, and kept as it was then."""
    until.callback(frame.persist().unpersist)
    if at_once:
        frame.count()
    return frame


def _one_by_one(frame: DataFrame) -> Iterator[Orphan]:
    """Yield rows of a frame; Spark runs when the first one is wanted."""
    yield from map(_orphan, frame.toLocalIterator())


def _joined(bodies: DataFrame, messages: DataFrame) -> DataFrame:
    from pyspark.sql.functions import count, first, lit, max, sum

    objects = messages.groupBy(*_ON).agg(
        count(lit(1)).alias("messages"), sum("wanted").alias("live"), max("behind").alias("needed"),
        first("is_ours").alias("is_ours"),
    )  # fmt: skip
    return bodies.join(objects, _ON, "full_outer")


def _counts(joined: DataFrame, is_old: str) -> Counts:
    """All numbers in one pass; losses are objects as yet, and only suspected."""
    wanted = {
        "bodies": "count(size)", "bytes": "sum(size)", "messages": "sum(messages)",
        "orphans": f"count_if({_ALONE} AND {is_old})",
        "orphan_bytes": f"sum(size) FILTER (WHERE {_ALONE} AND {is_old})",
        "young": f"count_if({_ALONE} AND NOT {is_old})",
        "partly_dead": f"count_if({_PARTLY_DEAD})",
        "dead_bytes": f"sum(size - live) FILTER (WHERE {_PARTLY_DEAD})",
        "losses": f"count_if({_TOO_SHORT})",
        "elsewhere": "sum(messages) FILTER (WHERE NOT is_ours)",
    }  # fmt: skip
    (row,) = joined.selectExpr(*(f"{how} AS {name}" for name, how in wanted.items())).collect()
    return Counts(**{name: row[name] or 0 for name in wanted})


def _first(orphans: DataFrame, partly_dead: DataFrame, most: int) -> list[Row]:
    """The oldest of both, in one job; those that messages refer to are the latter."""
    oldest = [each.orderBy("modified", "name").limit(most) for each in (orphans, partly_dead)]
    return oldest[0].unionAll(oldest[1]).collect()


def _orphan(row: Row) -> Orphan:
    return Orphan(row.place, FoundBody(row.name, row.size, datetime_ns(row.modified.astimezone())))


def _body_finding(row: Row) -> SweepFinding:
    place, body = _orphan(row)
    if row.messages is None:
        return SweepFinding("orphan", place, body.name, body.size, body.modified_ns)
    return SweepFinding("partly dead", place, body.name, body.size - row.live, body.modified_ns)


def _loss_finding(row: Row) -> SweepFinding:
    return SweepFinding("loss", row.place, row.name, row.wanted, None, row.partition, row.offset)


#: Bodies by place and name.
_Bodies = dict[int, dict[str, FoundBody]]


def look_here(
    topic: OpenTopic, addresses: Mapping[int, str], *, now_ns: int, grace_ns: int, most: int
) -> Evidence:
    """Look at all bodies and all messages of a topic; `addresses` are its places, by number."""
    stores = topic.bodies.stores()
    bodies = _listed(stores)
    live: dict[int, Counter[str]] = {place: Counter() for place in stores}
    suspects, messages, elsewhere = [], 0, 0
    for each in _referring(topic):
        reference = each.reference
        messages += 1
        if reference.place not in bodies:
            elsewhere += 1
            continue
        live[reference.place][reference.name] += reference.size
        body = bodies[reference.place].get(reference.name)
        if body is None or body.size < reference.start + reference.size:
            suspects.append(each)
    lost = _lost(topic, stores, suspects) if suspects else []
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
        *(SweepFinding("orphan", place, body.name, body.size, body.modified_ns) for place, body in oldest),
        *(_loss(each, addresses) for each in lost[:most]),
        *partly[:most],
    ]
    return Evidence(counts, findings, alone)


def _listed(stores: Mapping[int, BodyStore]) -> _Bodies:
    return {place: {found.name: found for found in store.list()} for place, store in stores.items()}


def _referring(topic: OpenTopic) -> Iterator[Referring]:
    for log in topic.logs():
        bounds = log.bounds()
        yield from references_between(log, bounds.start, bounds.end, passing_damage=False)


def _lost(topic: OpenTopic, stores: Mapping[int, BodyStore], suspects: list[Referring]) -> list[Referring]:
    """Keep messages whose body is missing on a second look: both may have gone, or come, meanwhile."""
    sizes = {place: {found.name: found.size for found in store.list()} for place, store in stores.items()}
    starts = {log.partition: log.bounds().start for log in topic.logs()}
    missing = losses(((each, each.reference) for each in suspects), sizes)
    return [each for each, _ in missing if each.offset >= starts[each.partition]]


def _partly_dead(
    bodies: _Bodies, live: Mapping[int, Counter[str]], addresses: Mapping[int, str]
) -> Iterator[SweepFinding]:
    for place, there in bodies.items():
        for name, needed in live[place].items():
            body = there.get(name)
            if body is not None and body.size > needed:
                yield SweepFinding(
                    "partly dead", addresses[place], name, body.size - needed, body.modified_ns
                )


def _loss(each: Referring, addresses: Mapping[int, str]) -> SweepFinding:
    reference = each.reference
    return SweepFinding(
        "loss", addresses[reference.place], reference.name, reference.size, None, each.partition, each.offset
    )
