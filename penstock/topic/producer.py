"""Who writes: a producer's id, group and partitioner, and how its messages are appended exactly once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import ProducerFenced
from penstock.log.append import Appended
from penstock.log.producers import NOTHING, Claim, Pair, StaleClaim, signed
from penstock.parse import SEQNO_MAX, identifier
from penstock.topic.routing import Partitioner, Route, checked

if TYPE_CHECKING:
    from penstock.topic.open_topic import OpenTopic
    from penstock.topic.write_batch import WriteBatch


class Producer:
    """How one writer signs and addresses its messages; an empty id or group is none."""

    def __init__(self, producer_id: str = "", group: str = "", choose: Partitioner | None = None) -> None:
        self.producer_id = producer_id
        self.group = group
        self.choose = choose
        #: It numbers its messages itself, and has fenced whoever did so before.
        self.automatic = False
        #: (partition, group) → the epoch it writes with there.
        self._epochs: dict[tuple[int, str], int] = {}
        #: (partition, group) → the last seqno it tried to append there.
        self._tried: dict[tuple[int, str], int] = {}

    def take_over(self, partitions: OpenTopic, group: str) -> int:
        """Fence older writers of the pair in all partitions, durably; the highest seqno stored, or -1."""
        partitions.refresh()
        pair = Pair(self.producer_id, group)
        fenced = [(log, log.fence(pair)) for log in partitions.logs()]
        for log, each in fenced:
            log.sync_fence(each)
            self._epochs[log.partition, group] = each.epoch
        return max(each.seqno for _, each in fenced)

    def append(
        self, partitions: OpenTopic, batch: WriteBatch, share: Route, tree: int
    ) -> list[tuple[Sequence[int], Appended | None, int]]:
        """Append a share of a batch, without what is stored already.

        For duplicates and for the rest: which places of the batch, what to wait for, and how many bytes
        were written (0 for duplicates). The seqnos ascend, so those stored before come first.
        """
        key = share.partition, share.group
        if self.automatic and key not in self._epochs:  # a partition that was added meanwhile
            self._join(partitions, key)
        pair = Pair(self.producer_id, share.group)
        places = share.places
        done: list[tuple[Sequence[int], Appended | None, int]] = []
        picked = batch if len(places) == len(batch.values) else batch.pick(places)
        if not self.automatic and share.keyed:
            older = partitions.gates.stored_elsewhere(picked, share.partition, pair, self.choose)
            if older:
                done.append(([places[i] for i in older], None, 0))
                left = sorted(set(range(len(places))) - set(older))
                places, picked = [places[i] for i in left], picked.pick(left)
        if places:
            dropped, appended, size = self._append_new(partitions, picked, key, pair, tree)
            if dropped:
                done.append((places[:dropped], appended, 0))
            if dropped < len(places):
                done.append((places[dropped:], appended, size))
        return done

    def _append_new(
        self, partitions: OpenTopic, picked: WriteBatch, key: tuple[int, str], pair: Pair, tree: int
    ) -> tuple[int, Appended, int]:
        """Append all but the duplicates at the beginning; how many these are, where, and how many bytes."""
        seqnos = picked.seqnos
        assert seqnos is not None
        count = len(seqnos)
        known = NOTHING if self.automatic else partitions.log(key[0]).producers.peek(pair)
        tried, self._tried[key] = self._tried.get(key), seqnos[-1]
        while True:
            joined = self._epochs.get(key)
            epoch = known.epoch if joined is None else joined
            dropped = bisect_right(seqnos, known.seqno)
            if dropped and self.automatic and known.seqno != tried:  # else Ctrl-C came between write and ack
                raise ProducerFenced(
                    f"another writer numbered messages of producer {pair.id[:60]!r} meanwhile",
                    hint="give each writer a producer_id of its own, or give all seqnos yourself",
                )
            claim = Claim(
                pair, epoch, joined is not None, seqnos[dropped - 1] if dropped else -1,
                seqnos[dropped] if dropped < count else SEQNO_MAX + 1, seqnos[-1],
            )  # fmt: skip
            drafts = []
            if dropped < count:
                rest = picked.part(dropped, count) if dropped else picked
                drafts = partitions.encode(rest._replace(producer=signed(pair, epoch)))
            try:
                appended = partitions.append_drafts(key[0], drafts, tree, claim)
            except StaleClaim as outdated:
                known = outdated.known
                continue
            self._epochs[key] = epoch
            return dropped, appended, sum(draft.size for draft in drafts)

    def _join(self, partitions: OpenTopic, key: tuple[int, str]) -> None:
        log = partitions.log(key[0])
        fenced = log.fence(Pair(self.producer_id, key[1]))
        log.sync_fence(fenced)
        self._epochs[key] = fenced.epoch


#: Writes under no name.
NOBODY = Producer()


def group_sender(group: str | None) -> Producer:
    """Writes under a group's name, checked, or under none."""
    return NOBODY if group is None else Producer(group=identifier("group", group))


def sender_of(producer_id: str | None, group: str | None, partitioner: Partitioner | None) -> Producer:
    """A sender as a user names it, each part checked."""
    return Producer(
        "" if producer_id is None else identifier("producer_id", producer_id),
        "" if group is None else identifier("group", group),
        None if partitioner is None else checked(partitioner),
    )
