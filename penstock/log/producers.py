"""Exactly once: which seqnos of which producers a partition holds, checked under the append lock.

`Producers` belongs to one process's `Appender`. It is loaded when the first writer with a producer id comes;
until then, and for writers without one, it costs nothing. Facts are taken in only from what nobody
takes back: durable frames without the lock, and with the lock everything up to A. After a cut (a failed
sync) they are loaded anew, since some of them may be about frames that are gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from penstock.errors import Corrupt, ProducerFenced
from penstock.log import producer_table
from penstock.log.folder import GATE_PRODUCERS, PRODUCERS, Folder
from penstock.log.frame import ProducerStamp
from penstock.log.producer_table import MANY, NOTHING, FoldPoint, LastSeqno, Pair, ProducerTable
from penstock.log.records import AppendRecord, DurableRecord

logger = logging.getLogger("penstock.producers")

#: How many new producers come between two counts of the recent ones.
_COUNT_EVERY = 10_000


class StaleClaim(Exception):
    """The caller's idea of what is stored is out of date; nothing was written. `known` is what is stored."""

    def __init__(self, known: LastSeqno) -> None:
        super().__init__(known)
        self.known = known


class Claim(NamedTuple):
    """What a producer says of the frames it wants to append."""

    pair: Pair
    epoch: int
    #: It wrote here before with this epoch: a higher one means that it was taken over.
    joined: bool
    #: The highest seqno it left out as a duplicate, or -1.
    dropped: int
    #: First and last seqno of the frames; without any frame one more than the highest that may be stored.
    first: int
    last: int
    #: Of frames below the highest that is stored: whether none of them is, asked when nobody can append.
    is_missing: Callable[[AppendRecord, int], bool] | None = None


class TakenOver(NamedTuple):
    """A pair was taken over: what it had stored before, its new epoch, and what to wait for."""

    seqno: int
    epoch: int
    segment: int
    byte: int
    cuts: int


class Producers:
    """The producers of one partition, as one process knows them."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        #: Its name, for people.
        self.topic = ""
        self._mutex = threading.Lock()
        #: What is known of them; None until someone asked.
        self.table: ProducerTable | None = None
        self._place = FoldPoint(0)
        #: D's cuts when facts were last taken in under the lock; None before that.
        self._cuts: int | None = None
        self._count_at = MANY + 1

    def peek(self, pair: Pair) -> LastSeqno:
        """What is known without looking; it may be outdated. Loads the facts at first use."""
        return self.load().get(pair)

    def load(self) -> ProducerTable:
        """Take in what is on disk, unless that was done. Needs no lock."""
        return self.table if self.table is not None else self._load()

    def __len__(self) -> int:
        """How many pairs are known so far."""
        return len(self.table) if self.table is not None else 0

    # Under the append lock.

    def admit(self, claim: Claim, a: AppendRecord, durable: DurableRecord) -> None:
        """Raise unless the claim's frames are new and all that it left out is stored.

        `ProducerFenced` when the pair was taken over; `StaleClaim` when the caller must look again.
        """
        known = self.catch_up(a, durable).get(claim.pair)
        if known.epoch > claim.epoch:
            if claim.joined:
                raise taken_over(claim.pair)
            raise StaleClaim(known)
        if claim.is_missing is not None:
            if not claim.is_missing(a, durable.cuts):
                raise StaleClaim(known)
        elif not claim.dropped <= known.seqno < claim.first:
            raise StaleClaim(known)

    def wrote(self, before: AppendRecord, after: AppendRecord, claim: Claim | None) -> None:
        """Take in our own append; no need to read what we wrote."""
        facts, place = self.table, self._place
        if facts is None:
            return
        if claim is not None:
            facts.learn(claim.pair, claim.last, claim.epoch, after.last_written_at)
            if len(facts) >= self._count_at:
                self._warn_of_many(facts)
        if place.segment == before.segment == after.segment and place.byte == before.byte:
            self._place = FoldPoint(place.segment, after.byte, place.generation)

    def catch_up(self, a: AppendRecord, durable: DurableRecord) -> ProducerTable:
        """Take in what others appended."""
        facts, place = self.table, self._place
        was_cut = self._cuts is not None and self._cuts != durable.cuts
        if facts is None or was_cut or place[:2] > (a.segment, a.byte):
            facts = self._load(anew=facts is not None)
        self._cuts = durable.cuts
        if self._place.segment != a.segment or self._place.byte != a.byte:
            facts = self._fold(a)
        return facts

    def save_gate(self, a: AppendRecord, durable: DurableRecord) -> None:
        """Keep the facts as they are now, where partitions are being added or split, for ever."""
        producer_table.save(self._folder, self.catch_up(a, durable), a.next, GATE_PRODUCERS)

    # Inside.

    def _fold(self, a: AppendRecord) -> ProducerTable:
        while True:
            facts, place = self.table, self._place
            assert facts is not None
            try:
                self._place = producer_table.fold_all(self._folder, facts, place, a.segment, a.byte)
                break
            except FileNotFoundError:  # we were so far behind that retention overtook us: a checkpoint knows
                self._load(anew=True)
                if self._place == place:
                    raise
        if len(facts) >= self._count_at:
            self._warn_of_many(facts)
        return facts

    def _load(self, *, anew: bool = False) -> ProducerTable:
        """Take in the newest checkpoint and everything durable behind it. Needs no lock."""
        with self._mutex:
            if self.table is not None and not anew:
                return self.table
            durable = self._folder.read_durable()
            facts, place = producer_table.begin(self._folder)
            if durable is not None and durable.boot == self._folder.boot and place.segment <= durable.segment:
                with suppress(FileNotFoundError):  # retention is at work: the rest is folded with the lock
                    place = producer_table.fold_all(self._folder, facts, place, durable.segment, durable.byte)
            self._place, self._cuts = place, None
            self.table = facts  # last: from here on others use it
            return facts

    def _warn_of_many(self, facts: ProducerTable) -> None:
        """Warn, once for each partition and process, when very many producers write here."""
        self._count_at = len(facts) + _COUNT_EVERY
        recent = facts.recent(self._folder.clock.now_ns())
        if recent > MANY:
            self._count_at = 2**62
            logger.warning(
                "%d producers wrote to partition %d of topic %r within 14 days: ids made at random? "
                "Use names that stay",
                recent,
                self._folder.partition,
                self.topic,
                extra={"path": self._folder.path},
            )


def taken_over(pair: Pair) -> ProducerFenced:
    """The error for a writer whose producer a newer one writes for now."""
    return ProducerFenced(
        f"a newer writer took over producer {pair.id[:60]!r}",
        hint="what was not acknowledged is not stored; let the newer one go on",
    )


def tidy_checkpoints(folder: Folder, active: int) -> None:
    """See that the two newest segments have a checkpoint of what lies before them; remove older ones.

    The second is what one falls back to when the first is damaged. Only one process does so at a time.
    """
    bases = [base for base in folder.segments() if base <= active]
    kept = bases[-2:]
    try:
        for base in kept:
            producer_table.keep_checkpoint(folder, base)
    except Corrupt as error:  # those who write with a producer id are told; others need not know
        logger.error("%s", error)
        return
    names = {f"{base:020d}{PRODUCERS}" for base in kept}
    for name in folder.files.listdir(folder.path):
        if name.endswith(PRODUCERS) and not name.endswith(GATE_PRODUCERS) and name not in names:
            with suppress(FileNotFoundError):
                folder.files.unlink(folder.name(name))


def gate_facts(folder: Folder, offset: int) -> ProducerTable | None:
    """The facts as they were when partitions were added, or None when nothing tells; raises `Corrupt`.

    A table that is missing is made again from the log, as long as it reaches so far back.
    """
    found = producer_table.load(folder, offset, GATE_PRODUCERS)
    if found.is_there and found.facts is None:
        raise producer_table.refusal(found.path, folder.partition)
    if found.facts is not None:
        return found.facts
    facts = producer_table.facts_at(folder, offset)
    if facts is None:
        logger.warning(
            "%s is missing: seqnos of before partitions were added may be stored again", found.path
        )
    elif not folder.read_only:
        producer_table.save(folder, facts, offset, GATE_PRODUCERS)
    return facts


def signed(pair: Pair, epoch: int) -> ProducerStamp:
    """Return the stamp that frames of a producer carry."""
    return ProducerStamp(pair.id, pair.group or None, epoch)


__all__ = [
    "NOTHING",
    "Claim",
    "LastSeqno",
    "Pair",
    "Producers",
    "StaleClaim",
    "TakenOver",
    "gate_facts",
    "signed",
    "tidy_checkpoints",
]  # fmt: skip
