"""Sweep: find bodies without a message and messages without a body; delete the former if asked to.

    sweep(store, "images")                 what there is
    sweep(store, "images", apply=True)     and delete the orphans

A body is stored before its message and deleted after it, so a process that dies in between leaves a body that
nobody refers to. One whose message is still on its way looks the same: so what is younger than the grace is
left alone. Bodies are listed first and messages read after that, all of them: a damaged frame ends the
sweep, since it may hold a reference. Only what the topic itself has at its places is looked at.

Deleting is the last thing done, and to have done a part of it is no harm: run again, it finds the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption, PenstockError
from penstock.parse import Duration, one_of, seconds, whole
from penstock.payloads.store import GRACE_NS, BodyStore, FoundBody
from penstock.references import place_id
from penstock.spark.pipelines.engine import ENGINES, Choice, Engine, chosen, started
from penstock.spark.pipelines.sweep_engines import Counts, Evidence, Orphan, SweepFinding, look_here
from penstock.store import Store
from penstock.store.pipelines import PipelineRun, Watch, claim, unwatched
from penstock.topic.open_topic import OpenTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Bodies deleted between two reports, and between two looks whether it is asked to stop.
_AT_A_TIME = 1000


@dataclass(frozen=True)
class Swept(Counts):
    """What a sweep found, and what it did."""

    topic: str = ""
    engine: str = ""
    #: Orphans were to be deleted; else they were only told.
    applied: bool = False
    #: Files of bodies that were never stored whole, older than the grace.
    unfinished: int = 0
    #: Bodies and unfinished ones that are gone now, and their bytes.
    deleted: int = 0
    deleted_bytes: int = 0
    #: The first ones of each kind.
    findings: tuple[SweepFinding, ...] = ()


def sweep(
    store: Store, topic: str, *, apply: bool = False, grace: Duration = GRACE_NS / NANOSECONDS,
    most: int = 100, name: str | None = None, engine: Engine = "auto", spark: SparkSession | None = None,
    master: str | None = None, watch: Watch = unwatched, told: Callable[[Choice], None] = lambda choice: None,
) -> Swept:  # fmt: skip
    """Find bodies of a topic without a message and messages without a body; with `apply` delete the former.

    Bodies younger than `grace` are left alone: their messages may be on their way. It must be longer than any
    upload and any transaction lasts. `most` findings of each kind are told one by one. Raises `Corrupt` (from
    Spark `PipelineFailed`), and deletes nothing, when not all messages can be read.
    """
    one_of("engine", engine, ENGINES)
    whole("most", most, 0, 1_000_000)
    grace_ns = round(seconds("grace", grace) * NANOSECONDS)
    found = store.topic(topic)
    open_topic = found.open_topic
    open_topic.refresh()
    if not open_topic.bodies.is_used:
        raise InvalidOption(
            f"topic {topic!r} keeps no values outside its log", hint='it would with alter(payloads="files")'
        )
    options = {"grace_s": grace_ns / NANOSECONDS, "apply": apply}
    with claim(
        store, name or f"sweep-{topic}", kind="sweep", identity={"topic_id": found.id}, options=options
    ) as run, watch(run):  # fmt: skip
        count = sum(log.bounds().end - log.bounds().start for log in open_topic.logs())
        choice = chosen(engine, count, is_running=spark is not None)
        told(choice)
        work = _Sweep(store, open_topic, run, grace_ns=grace_ns, most=most)
        looked = work.here() if choice.engine == "python" else work.on_spark(started(spark, master))
        with looked as evidence:
            return work.finish(evidence, choice, apply=apply)


class _Sweep:
    """One run."""

    def __init__(self, store: Store, topic: OpenTopic, run: PipelineRun, *, grace_ns: int, most: int) -> None:
        self._store, self._topic, self._run = store, topic, run
        #: One moment for all of it, so that nothing grows old while the sweep takes its time.
        self._now_ns = store.clock.now_ns()
        self._grace_ns = grace_ns
        self._most = most
        self._unfinished = list(self._left_behind())

    def here(self) -> AbstractContextManager[Evidence]:
        looked = look_here(
            self._topic, self._addresses(), now_ns=self._now_ns, grace_ns=self._grace_ns, most=self._most
        )
        return nullcontext(looked)

    @contextmanager
    def on_spark(self, spark: SparkSession) -> Iterator[Evidence]:
        from penstock.spark.pipelines.sweep_engines import SweepFrames
        from penstock.spark.stream_run import failed

        frames = SweepFrames(spark, self._store.path, self._topic.name, list(self._addresses().values()))
        try:
            with frames.look(
                before_ns=self._now_ns - self._grace_ns, most=self._most, starts=self._starts
            ) as evidence:  # fmt: skip
                yield evidence
        except PenstockError:
            raise
        except Exception as error:  # Spark's own, or what a task raised inside of it
            raise failed(self._run.name, error) from error

    def finish(self, evidence: Evidence, choice: Choice, *, apply: bool) -> Swept:
        """Delete if that is wanted, and tell everything."""
        self._run.report(rows=evidence.counts.bodies)
        deleted = deleted_bytes = 0
        if apply:
            deleted, deleted_bytes = self._delete(evidence.orphans)
        unfinished = [
            SweepFinding("unfinished", place, body.name, body.size, body.modified_ns)
            for place, body in self._unfinished[: self._most]
        ]
        return Swept(
            **vars(evidence.counts), topic=self._topic.name, engine=choice.engine, applied=apply,
            unfinished=len(self._unfinished), deleted=deleted, deleted_bytes=deleted_bytes,
            findings=(*evidence.findings, *unfinished),
        )  # fmt: skip

    def _delete(self, orphans: Iterable[Orphan]) -> tuple[int, int]:
        """How many went, and how many bytes; the rest stays for another run when this one is to end."""
        bodies = self._remove(orphans, lambda store, names: store.delete(names))
        files = self._remove(self._unfinished, lambda store, names: store.forget(names))
        return bodies[0] + files[0], bodies[1] + files[1]

    def _remove(
        self, things: Iterable[Orphan], remove: Callable[[BodyStore, list[str]], int]
    ) -> tuple[int, int]:
        stores, waiting = self._stores(), iter(things)
        count = size = 0
        while not self._run.stopping and (some := list(islice(waiting, _AT_A_TIME))):
            for place, bodies in _by_place(some).items():
                count += remove(stores[place], [body.name for body in bodies])
                size += sum(body.size for body in bodies)
            self._run.report(rows=len(some))
        return count, size

    def _left_behind(self) -> Iterator[Orphan]:
        for place, store in self._stores().items():
            for body in store.unfinished():
                if body.modified_ns < self._now_ns - self._grace_ns:
                    yield Orphan(place, body)

    def _addresses(self) -> dict[int, str]:
        """The places of the topic, by the number that references have for them."""
        payloads, record = self._topic.options.payloads, self._topic.record
        assert payloads is not None
        return {place_id(self._store.id, record.id, each.address): each.address for each in payloads.places}

    def _stores(self) -> dict[str, BodyStore]:
        stores = self._topic.bodies.stores()
        return {address: stores[number] for number, address in self._addresses().items()}

    def _starts(self) -> Mapping[int, int]:
        return {log.partition: log.bounds().start for log in self._topic.logs()}


def _by_place(orphans: Iterable[Orphan]) -> dict[str, list[FoundBody]]:
    found: dict[str, list[FoundBody]] = {}
    for place, body in orphans:
        found.setdefault(place, []).append(body)
    return found
