"""A producer: its id, group and partitioner, what it sent where, and how it numbers its messages.

State only: it knows no topic. `TopicAppender` appends for it; a writer with an id holds a `Numbering`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import islice
from operator import lt
from typing import Literal, NamedTuple, cast

from penstock.errors import InvalidOption, ProducerFenced
from penstock.log.producers import Claim, LastSeqno, Pair
from penstock.parse import SEQNO_MAX, identifier, one_of
from penstock.topic.input import consecutive
from penstock.topic.routing import Partitioner, checked

Routing = Literal["key", "producer"]


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
        #: Keys choose the partition of what has no group; if not, it goes where its producer is bound.
        self.by_key = True
        #: Groups of it whose binding this writer made anew, where messages of theirs were found.
        self.rebound: set[str] = set()
        #: It numbers its messages itself, and has fenced earlier writers that did so.
        self.automatic = False
        #: (partition, group) → the epoch it writes with there.
        self.epochs: dict[tuple[int, str], int] = {}
        #: (partition, group) → the last seqno it tried to append there.
        self.tried: dict[tuple[int, str], int] = {}

    def named(self, group: str | None) -> str | None:
        """The group that a message names, or None when that is the writer's own."""
        return None if group == self.group else group

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
    """Make a producer without an id, with a group, which is checked, or with none."""
    return NOBODY if group is None else Producer(group=identifier("group", group))


def sender_of(
    producer_id: str | None, group: str | None, partitioner: Partitioner | None, route: Routing = "key"
) -> Producer:
    """A producer as a user names it, each part checked."""
    one_of("route", route, ("key", "producer"))
    producer = Producer(
        "" if producer_id is None else identifier("producer_id", producer_id),
        "" if group is None else identifier("group", group),
        None if partitioner is None else checked(partitioner),
    )
    producer.by_key = route == "key"
    if not producer.by_key and not producer.id:
        raise InvalidOption('route="producer" needs a producer', hint="writer(producer_id=…)")
    if not producer.by_key and producer.choose is not None:
        raise InvalidOption('route="producer" and a partitioner both choose', hint="leave one of them out")
    return producer


MIXED = "seqnos are given for all messages of a writer, or for none"
#: The first one that a writer gives to a producer that has stored nothing (B001-09).
_FIRST = 1


class Numbers(NamedTuple):
    """Seqnos of messages that are about to leave, and the last ones of a writer when they have left."""

    seqnos: Sequence[int]
    last: int
    #: The last one of each group that messages named themselves.
    lasts: Mapping[str, int]


class Numbering:
    """The seqnos of one writer's messages: all given by the caller, or all counted when they are appended."""

    def __init__(self) -> None:
        #: Whether the caller gives them; None before the first message.
        self.given: bool | None = None
        #: The last one of a message that left: of any if they are counted, else of those without a group.
        self.last = -1
        #: The last given one of each group that messages named themselves.
        self.lasts: Mapping[str, int] = {}
        #: Groups whose older writers are fenced.
        self.taken_over: set[str] = set()

    def refuse_mixed(self, *, given: bool) -> None:
        """Raise when messages before this one had their numbers from the other side."""
        if self.given not in (None, given):
            raise InvalidOption(MIXED)

    def begin_counting(self, group: str, highest: int) -> None:
        """Count the group's messages in this writer alone from here on, behind what is stored of them."""
        self.last = max(self.last, highest, _FIRST - 1)
        self.taken_over.add(group)
        self.given = False

    def count(self, messages: int) -> range:
        """Numbers for messages that are about to leave. They are used up when `last` moves."""
        return range(self.last + 1, self.last + 1 + messages)

    def of(
        self, given: Sequence[int | None] | None, groups: Sequence[str | None] | None, messages: int
    ) -> Numbers:
        """Numbers of messages that are about to leave: counted, or given by callers, for each group apart.

        Threads may overtake each other between the check of a seqno and its message's turn. Stored in that
        order, the smaller one would be taken for a duplicate.
        """
        if given is None:
            counted = self.count(messages)
            return Numbers(counted, counted[-1], self.lasts)
        if None in given:
            raise InvalidOption(MIXED)
        numbers = cast(Sequence[int], given)
        if groups is not None:
            return self._of_groups(numbers, groups)
        seqnos = consecutive(numbers)
        ascend = isinstance(seqnos, range) or all(map(lt, numbers, islice(numbers, 1, None)))
        if numbers[0] <= self.last or not ascend:
            raise _overtaken()
        return Numbers(seqnos, numbers[-1], self.lasts)

    def _of_groups(self, numbers: Sequence[int], groups: Sequence[str | None]) -> Numbers:
        last, lasts = self.last, dict(self.lasts)
        for seqno, group in zip(numbers, groups, strict=True):
            if seqno <= (last if group is None else lasts.get(group, -1)):
                raise _overtaken()
            if group is None:
                last = seqno
            else:
                lasts[group] = seqno
        return Numbers(numbers, last, lasts)


def _overtaken() -> InvalidOption:
    return InvalidOption(
        "threads gave a writer seqnos out of order: not all of them are stored",
        hint="number and write under one lock, or open a writer for each thread",
    )


def refuse_back(seqno: int, key: bytes | None, last: tuple[int, bytes | None]) -> None:
    """Raise when a seqno is below the one that was accepted before it, or the same for another key."""
    before, earlier = last
    if seqno == before and key is not None and earlier is not None and key != earlier:
        raise InvalidOption(
            f"seqno {seqno} twice, for keys {earlier[:60]!r} and {key[:60]!r}: the second would be skipped",
            hint="seqnos grow within a producer and group, whatever the keys: give each key its group",
        )
    _refuse_below(seqno, before)


def _refuse_below(seqno: int, last: int) -> None:
    if seqno < last:
        raise InvalidOption(
            f"seqno {seqno} after {last}: it must grow within a writer",
            hint="to send messages again, open a new writer: what is stored is skipped",
        )


def refuse_two_keys(seqnos: Sequence[int], keys: Sequence[bytes | None] | None) -> None:
    """Raise when neighbours have one seqno and two keys."""
    if keys is not None:
        for place in range(1, len(seqnos)):
            refuse_back(seqnos[place], keys[place], (seqnos[place - 1], keys[place - 1]))


def growing(seqnos: Sequence[int], last: int) -> Sequence[int]:
    """Return the places of numbers that are above the one before them."""
    if isinstance(seqnos, range):
        return range(1 if seqnos[0] == last else 0, len(seqnos))
    places = []
    for place, seqno in enumerate(seqnos):
        if seqno > last:
            places.append(place)
        last = seqno
    return places
