"""Who writes: a producer's id, group and partitioner, what it sent where, and how it numbers its messages.

State only: it knows no topic. `TopicAppender` appends for it; a writer with an id holds a `Numbering`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import lt
from typing import NamedTuple, cast

from penstock.errors import InvalidOption, ProducerFenced
from penstock.log.producers import Claim, LastSeqno, Pair
from penstock.parse import SEQNO_MAX, identifier
from penstock.topic.input import consecutive
from penstock.topic.routing import Partitioner, checked


class Offer(NamedTuple):
    """What a producer claims for a share of a batch: how many at its beginning are duplicates."""

    dropped: int
    claim: Claim


class Producer:
    """How one writer signs and addresses its messages; an empty id or group is none."""

    def __init__(self, producer_id: str = "", group: str = "", choose: Partitioner | None = None) -> None:
        self.id = producer_id
        self.group = group
        self.choose = choose
        #: It numbers its messages itself, and has fenced earlier writers that did so.
        self.automatic = False
        #: (partition, group) → the epoch it writes with there.
        self.epochs: dict[tuple[int, str], int] = {}
        #: (partition, group) → the last seqno it tried to append there.
        self.tried: dict[tuple[int, str], int] = {}

    def inherit(self, lane: tuple[int, str], ancestors: Sequence[int]) -> None:
        """Write to a new partition with the epoch it has in the nearest one that the partition came from."""
        lanes = [(number, lane[1]) for number in ancestors]
        epoch = next((self.epochs[each] for each in lanes if each in self.epochs), None)
        if epoch is not None:
            self.epochs[lane] = epoch
        tried = max((self.tried.get(each, -1) for each in lanes), default=-1)
        if tried >= 0:
            self.tried[lane] = tried

    def offer(self, lane: tuple[int, str], seqnos: Sequence[int], known: LastSeqno, tried: int) -> Offer:
        """The claim for seqnos that ascend, by what is known to be stored; those stored before are left out.

        `tried` is the last one that was sent there before: up to it, the log may have what an interrupt kept
        us from hearing of. Raises `ProducerFenced` when somebody else used numbers that this one gives.
        """
        joined = self.epochs.get(lane)
        dropped = bisect_right(seqnos, known.seqno)
        if dropped and self.automatic and known.seqno > tried:
            raise ProducerFenced(
                f"another writer numbered messages of producer {self.id[:60]!r} meanwhile",
                hint="give each writer a producer_id of its own, or give all seqnos yourself",
            )
        claim = Claim(
            Pair(self.id, lane[1]),
            known.epoch if joined is None else joined,
            joined is not None,
            seqnos[dropped - 1] if dropped else -1,
            seqnos[dropped] if dropped < len(seqnos) else SEQNO_MAX + 1,
            seqnos[-1],
        )
        return Offer(dropped, claim)


#: Writes under no name.
NOBODY = Producer()


def group_sender(group: str | None) -> Producer:
    """Writes under a group's name, checked, or under none."""
    return NOBODY if group is None else Producer(group=identifier("group", group))


def sender_of(producer_id: str | None, group: str | None, partitioner: Partitioner | None) -> Producer:
    """A producer as a user names it, each part checked."""
    return Producer(
        "" if producer_id is None else identifier("producer_id", producer_id),
        "" if group is None else identifier("group", group),
        None if partitioner is None else checked(partitioner),
    )


MIXED = "seqnos are given for all messages of a writer, or for none"
#: The first one that a writer gives to a producer that has stored nothing (B001-09).
_FIRST = 1


class Numbering:
    """The seqnos of one writer's messages: all given by the caller, or all counted when they are appended."""

    def __init__(self) -> None:
        #: Whether the caller gives them; None before the first message.
        self.given: bool | None = None
        #: The last one of a message that left.
        self.last = -1
        #: Groups whose older writers are fenced.
        self.taken_over: set[str] = set()

    def refuse_mixed(self, *, given: bool) -> None:
        """Raise when messages before this one had their numbers from the other side."""
        if self.given not in (None, given):
            raise InvalidOption(MIXED)

    def begin_counting(self, group: str, highest: int) -> None:
        """Only this writer numbers messages of the group from here on, behind what it has stored."""
        self.last = max(self.last, highest, _FIRST - 1)
        self.taken_over.add(group)
        self.given = False

    def count(self, messages: int) -> range:
        """Numbers for messages that are about to leave. They are used up when `last` moves."""
        return range(self.last + 1, self.last + 1 + messages)

    def of(self, given: Sequence[int | None] | None, messages: int) -> Sequence[int]:
        """Numbers of messages that are about to leave: counted, or given by callers.

        Threads may overtake each other between the check of a seqno and its message's turn. Stored in that
        order, the smaller one would be taken for a duplicate.
        """
        if given is None:
            return self.count(messages)
        if None in given:
            raise InvalidOption(MIXED)
        numbers = cast(Sequence[int], given)
        seqnos = consecutive(numbers)
        ascend = isinstance(seqnos, range) or all(map(lt, numbers, islice(numbers, 1, None)))
        if numbers[0] <= self.last or not ascend:
            raise InvalidOption(
                "threads gave a writer seqnos out of order: not all of them are stored",
                hint="number and write under one lock, or open a writer for each thread",
            )
        return seqnos


def refuse_back(seqno: int, last: int) -> None:
    """Raise when a seqno is below the one that was accepted before it."""
    if seqno < last:
        raise InvalidOption(
            f"seqno {seqno} after {last}: it must grow within a writer",
            hint="to send messages again, open a new writer: what is stored is skipped",
        )


def growing(seqnos: Sequence[int], last: int) -> Sequence[int]:
    """The places of those that are above the one before them."""
    if isinstance(seqnos, range):
        return range(1 if seqnos[0] == last else 0, len(seqnos))
    places = []
    for place, seqno in enumerate(seqnos):
        if seqno > last:
            places.append(place)
        last = seqno
    return places
