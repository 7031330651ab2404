"""A batch on its way into a topic's partitions: what of it is stored, and what is left.

It can be taken up again after an error or an interrupt: frames are made once, and those that may have been
written when the interrupt came are looked for in the log before they are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from penstock.log.frame_encode import EncodedFrame
from penstock.log.in_flight import EndOfLog
from penstock.log.meter import HELD, QuotaTerms
from penstock.message import StoredRun
from penstock.topic.bodies import StoredBodies
from penstock.topic.producer import Producer
from penstock.topic.routing import Route
from penstock.topic.write_batch import WriteBatch


class Share:
    """What one partition gets of a batch."""

    __slots__ = ("bodies", "frames", "route", "since")

    def __init__(self, route: Route) -> None:
        self.route = route
        #: Made once; None before that.
        self.frames: list[EncodedFrame] | None = None
        #: Where the log ended before they were written for the first time; None where nobody tries again.
        self.since: EndOfLog | None = None
        #: Its large values, once they are stored outside the log.
        self.bodies: StoredBodies | None = None

    @property
    def count(self) -> int:
        """How many messages the share holds."""
        return len(self.route.columns.values)

    def some_places(self, chosen: Sequence[int]) -> Sequence[int]:
        """Which messages of the batch lie at some places of this share."""
        places = self.route.places
        if places is None:
            return chosen
        listed = list(places)
        return [listed[place] for place in chosen]


class Delivery:
    """A batch on its way: its producer, its shares, and what of it is stored."""

    __slots__ = ("batch", "is_kept", "left", "producer", "stored", "terms", "tree")

    def __init__(
        self, batch: WriteBatch, producer: Producer, stored: list[StoredRun], *, is_kept: bool = False,
        terms: QuotaTerms = HELD,
    ) -> None:  # fmt: skip
        self.batch = batch
        self.producer = producer
        #: Runs enter as they are stored.
        self.stored = stored
        #: Somebody keeps it, and takes it up again.
        self.is_kept = is_kept
        #: Whether a quota holds it back, and for how long at most.
        self.terms = terms
        #: By the partitions that the topic had at `tree`; None before they were asked for.
        self.left: list[Share] | None = None
        self.tree = -1

    def begin(self, routes: Sequence[Route], tree: int) -> None:
        """Note the shares by the partitions at `tree`; both change in one step, whatever interrupts us."""
        left = list(map(Share, routes))
        self.left = left
        self.tree = tree

    def left_places(self) -> list[int]:
        """Which messages of the batch are not stored yet."""
        places = (
            range(share.count) if share.route.places is None else share.route.places
            for share in self.left or ()
        )
        return sorted(chain.from_iterable(places))
