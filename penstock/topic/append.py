"""The one way into a topic's partitions: a batch is routed, becomes frames, and is appended once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, cast

import msgspec

from penstock.clock import Clock
from penstock.errors import DataError, PenstockError, TopicReplaced
from penstock.locks import hold
from penstock.log.append import Rerouted, Sealed
from penstock.log.frame import ProducerStamp
from penstock.log.frame_encode import EncodedFrame, MessageColumns, frames
from penstock.log.in_flight import appended_since, end_of
from penstock.log.log import Log
from penstock.log.producers import NOTHING, Claim, Pair, StaleClaim, TakenOver, signed, taken_over
from penstock.log.records import AppendRecord
from penstock.message import StoredRun
from penstock.state.topics import Bindings, TopicRecord
from penstock.topic.bodies import TopicBodies
from penstock.topic.delivery import Delivery, Share
from penstock.topic.partition_table import PartitionTable
from penstock.topic.producer import Producer
from penstock.topic.resends import Resends, search
from penstock.topic.routing import PARTITIONERS, Route, route
from penstock.topic.write_batch import WriteBatch


class EncodedRoute(NamedTuple):
    """The frames that one partition gets of a batch, and the objects that hold their bodies."""

    partition: int
    frames: list[EncodedFrame]
    bodies: list[str]


class TopicAppender:
    """Appends batches to the partitions of one topic."""

    def __init__(
        self, record: Callable[[], TopicRecord], log: Callable[[int], Log], clock: Clock, bodies: TopicBodies,
        bindings: Bindings, partitions: PartitionTable, resends: Resends, *,
        catch_up: Callable[[Log], None], refresh: Callable[[], None], on_appended: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._record = record
        self._log = log
        self._clock = clock
        self._bodies = bodies
        self._bindings = bindings
        self._partitions = partitions
        self._resends = resends
        #: Learns of new partitions, by way of the log that has heard of them.
        self._catch_up = catch_up
        self._refresh = refresh
        self._on_appended = on_appended
        self._turn = itertools.count()

    def deliver(self, delivery: Delivery) -> None:
        """Append what is left of a batch. After an error or an interrupt it can be called again.

        `stored` and `left` change by two statements without a call between them: Ctrl-C cannot come there.
        """
        if delivery.left is None:
            tree = (
                self._record().tree
            )  # before routing: if another thread learns of a new one, we route again
            delivery.begin(self.route(delivery.batch, delivery.producer), tree)
        while left := delivery.left:
            share = left[0]
            try:
                if delivery.producer.id or self._record().options.payloads is not None:
                    runs = self._append_carefully(share, delivery)
                else:
                    runs = [self._append(share, delivery)]
            except Rerouted:
                self._catch_up(self._log(share.route.partition))
                self._route_again(delivery)
                continue
            stored = delivery.stored
            stored += runs
            del left[0]
            self._on_appended(share.route.partition)

    def encode(self, route: Route) -> EncodedRoute:
        """Encode what one partition gets as frames; large values are stored outside, nothing is appended."""
        if self._record().options.payloads is None:
            return EncodedRoute(route.partition, self._frames(route.columns, route.group), [])
        stored = self._bodies.store_large(route.columns)
        names = [*stored.made, *stored.given]
        return EncodedRoute(route.partition, self._frames(stored.columns, route.group), names)

    def route(self, batch: WriteBatch, producer: Producer) -> list[Route]:
        """Divide a batch by partition."""
        record = self._record()
        choose = None
        if producer.by_key:
            choose = producer.choose or PARTITIONERS[record.options.partitioner]
        without_key = partial(self._without_key, producer)
        return route(batch, record.rows, choose, producer.group, without_key)

    def take_over(self, producer: Producer, group: str) -> int:
        """Fence older writers of a producer's group in all partitions, durably; the highest seqno, or -1."""
        done: set[int] = set()
        highest = -1
        while True:
            self._refresh()  # also after the last one: partitions may have been added meanwhile
            left = [number for number in sorted(self._record().rows.active) if number not in done]
            if not left:
                return highest
            try:
                for number in left:
                    highest = max(highest, self._take_over(self._log(number), producer, group))
                    done.add(number)
            except Sealed:
                self._catch_up(self._log(number))

    # Inside.

    def _take_over(self, log: Log, producer: Producer, group: str) -> int:
        """Fence older writers of a producer's group in one partition, durably; its highest seqno, or -1."""
        taken = log.appender.take_over(Pair(producer.id, group))
        log.sync_fence(taken)
        producer.epochs[log.partition, group] = taken.epoch
        return taken.seqno

    def _join(self, log: Log, producer: Producer, group: str) -> None:
        """Take over a producer's group in a partition that was added since this writer did so in the others.

        A writer that a newer one took over meanwhile must not: that is looked up in a partition which it has,
        with both locks held. A newer writer takes partitions over in their order: before both or after.
        """
        pair = Pair(producer.id, group)
        number = min((number for number, named in producer.epochs if named == group), default=None)
        if number is None:
            self._take_over(log, producer, group)
            return
        first, epoch = self._log(number), producer.epochs[number, group]

        def join() -> TakenOver:
            if first.appender.known_locked(pair).epoch > epoch:
                raise taken_over(pair)
            return log.appender.take_over_locked(pair)

        taken = hold((first.folder.append, log.folder.append), join)
        log.sync_fence(taken)
        producer.epochs[log.partition, group] = taken.epoch

    def _append(self, share: Share, delivery: Delivery) -> StoredRun:
        """Append a share without seqnos."""
        route, made = share.route, share.frames
        log, found = self._log(route.partition), None
        if made is None:
            if delivery.is_kept:
                share.since = end_of(log)
            columns = route.columns if share.bodies is None else share.bodies.columns
            made = share.frames = self._frames(columns, route.group)
        elif share.since is not None:
            found = appended_since(log, share.since, made)
        if found is None:
            appended = log.appender.append(made, tree=delivery.tree, terms=delivery.terms)
        else:
            appended, there = found
            if there < len(made):
                rest = log.appender.append(made[there:], tree=delivery.tree, terms=delivery.terms)
                appended = msgspec.structs.replace(rest, first=appended.first)
        size = made[0].size if len(made) == 1 else sum(frame.size for frame in made)
        return StoredRun(
            route.partition, appended.first, len(route.columns.values), False, route.places, size,
            appended.next, appended.cuts, appended.waited,
        )  # fmt: skip

    def _append_carefully(self, share: Share, delivery: Delivery) -> list[StoredRun]:
        """Append a share with seqnos, or one whose values may go outside the log."""
        if share.bodies is None and self._record().options.payloads is not None:
            share.bodies = self._bodies.store_large(share.route.columns)
        try:
            if delivery.producer.id:
                runs = self._append_numbered(share, delivery)
            else:
                runs = [self._append(share, delivery)]
        except (Rerouted, PenstockError) as error:
            # Of a single message it is certain that nothing stays; of several, a body may have its message.
            is_single = share.count == 1 and not isinstance(error, DataError)
            if share.bodies is not None and (is_single or isinstance(error, (Rerouted, TopicReplaced))):
                self._bodies.discard(share.bodies.made)
                share.bodies = share.frames = None
            raise
        if share.bodies is not None:
            self._bodies.discard(share.bodies.unused(_new_places(share, runs)))
        return runs

    def _append_numbered(self, share: Share, delivery: Delivery) -> list[StoredRun]:
        """Append a producer's share, without what is stored already; a run for that, one for the rest."""
        producer, route = delivery.producer, share.route
        lane, pair = (route.partition, route.group), Pair(producer.id, route.group)
        if lane not in producer.epochs:  # the first time, or a partition that was added meanwhile
            tree = self._record().rows
            producer.inherit(lane, [row.partition for row in tree.ancestors(route.partition)])
        if producer.automatic and lane not in producer.epochs:
            self._join(self._log(route.partition), producer, route.group)
        columns = route.columns if share.bodies is None else share.bodies.columns
        runs: list[StoredRun] = []
        places = route.places
        if not producer.automatic:
            runs += self._stored_elsewhere(share, producer, pair)
            if route.keyed or self._may_have_moved(producer, route):
                runs += self._append_late(share, columns, _places_beside(share, runs), delivery)
        if runs:
            left = _places_beside(share, runs)
            places, columns = share.some_places(left), columns.take(left)
        if columns.values:
            runs += self._append_claimed(columns, places, lane, delivery)
        return runs

    def _append_late(
        self, share: Share, columns: MessageColumns, left: Sequence[int], delivery: Delivery
    ) -> list[StoredRun]:
        """Append messages that came late: below the highest seqno here, and yet not stored.

        That happens to keys which came from another partition, where other keys were further. What is here
        already is looked up one by one.
        """
        producer, route = delivery.producer, share.route
        lane, pair = (route.partition, route.group), Pair(producer.id, route.group)
        log, seqnos = self._log(route.partition), cast(Sequence[int], columns.seqnos)
        if self._may_have_moved(producer, route):
            highest = log.appender.producers.peek(pair).seqno
            late = {place for place in left if seqnos[place] <= highest}
        else:
            late = set(self._partitions.outnumbered(route, pair, producer.choose)).intersection(left)
        if not late:
            return []
        found = search(log, pair, seqnos[min(late)])
        while missing := sorted(place for place in late if seqnos[place] not in found.found):
            wanted = {seqnos[place] for place in missing}

            def is_missing(a: AppendRecord, cuts: int, wanted: set[int] = wanted) -> bool:
                found.look(a, cuts)
                return found.found.isdisjoint(wanted)

            epoch = producer.epochs.get(lane, log.appender.known(pair).epoch)
            claim = Claim(pair, epoch, lane in producer.epochs, -1, min(wanted), max(wanted), is_missing)
            made = self._frames(columns.take(missing)._replace(stamp=signed(pair, epoch)))
            with suppress(StaleClaim):
                terms = delivery.terms
                appended = log.appender.append(made, tree=delivery.tree, claim=claim, terms=terms)
                producer.epochs[lane] = epoch
                size, places = sum(frame.size for frame in made), share.some_places(missing)
                end = appended.next, appended.cuts, appended.waited
                return [StoredRun(lane[0], appended.first, len(missing), False, places, size, *end)]
        return []

    def _stored_elsewhere(self, share: Share, producer: Producer, pair: Pair) -> list[StoredRun]:
        """Messages that are sent again and lie in another partition than the one they would go to now."""
        runs: list[StoredRun] = []
        route = share.route
        left: Sequence[int] = range(share.count)
        if route.keyed and (older := self._partitions.stored_elsewhere(route, pair, producer.choose)):
            places = share.some_places(older)
            runs.append(StoredRun(route.partition, -1, len(older), duplicate=True, places=places))
            left = sorted(set(left) - set(older))
        chosen = route.chosen
        may_have_moved = self._may_have_moved(producer, route)
        if not may_have_moved and (route.group not in producer.rebound or route.keyed):
            left = [place for place in left if chosen[place] is not None] if chosen else ()
        seqnos = cast(Sequence[int], route.columns.seqnos)
        if left and len(self._record().rows.numbers) > 1:
            for number, own, end in self._resends.found(producer, pair, route.partition, seqnos, left):
                places = share.some_places(own)
                runs.append(StoredRun(number, -1, len(own), True, places, 0, end.next, end.cuts))
        return runs

    def _may_have_moved(self, producer: Producer, route: Route) -> bool:
        """Whether a message may have gone to another partition before: the highest seqno tells nothing then.

        So it is when the caller chose the partition, by number or by a partitioner that counts partitions,
        and there are more of them now.
        """
        is_callers = producer.choose is not None or route.chosen is not None
        return is_callers and self._record().rows.has_grown

    def _append_claimed(
        self, columns: MessageColumns, places: Sequence[int] | None, lane: tuple[int, str], delivery: Delivery
    ) -> Iterator[StoredRun]:
        """Append all but the duplicates, which come first, since seqnos ascend."""
        producer, tree, terms = delivery.producer, delivery.tree, delivery.terms
        log, seqnos, count = self._log(lane[0]), cast(Sequence[int], columns.seqnos), len(columns.values)
        pair = Pair(producer.id, lane[1])
        known = NOTHING if producer.automatic else log.appender.producers.peek(pair)
        tried = producer.tried.get(lane, -1)
        producer.tried[lane] = max(seqnos[-1], tried)
        while True:
            dropped, claim = producer.offer(lane, seqnos, known, tried)
            made: list[EncodedFrame] = []
            if dropped < count:
                rest = columns.part(dropped, count) if dropped else columns
                made = self._frames(rest._replace(stamp=signed(pair, claim.epoch)))
            try:
                appended = log.appender.append(made, tree=tree, claim=claim, terms=terms)
                break
            except StaleClaim as stale:
                known = stale.known
        producer.epochs[lane] = claim.epoch
        listed = range(count) if places is None else places
        stop, cuts = appended.next, appended.cuts
        if dropped:
            yield StoredRun(lane[0], -1, dropped, True, listed[:dropped], 0, stop, cuts)
        if dropped < count:
            own, size = listed[dropped:] if dropped else places, sum(frame.size for frame in made)
            waited = appended.waited
            yield StoredRun(lane[0], appended.first, count - dropped, False, own, size, stop, cuts, waited)

    def _frames(self, columns: MessageColumns, group: str = "") -> list[EncodedFrame]:
        if group:
            stamp, seqnos = ProducerStamp("", group), range(len(columns.values))
            columns = columns._replace(stamp=stamp, seqnos=seqnos)
        compress = self._record().options.compress is not None
        return frames(columns, created=self._clock.now_ns(), compress=compress)

    def _route_again(self, delivery: Delivery) -> None:
        """Route what is left again, by the partitions that there are now.

        If there are no others, it was the partition that had not heard of them, and it has by now.
        """
        tree = self._record().tree
        if tree == delivery.tree:
            return
        places = delivery.left_places()
        routes = self.route(delivery.batch.take(places), delivery.producer)
        delivery.begin([each.among(places) for each in routes], tree)

    def _without_key(self, producer: Producer, group: str) -> int:
        """The partition that a group, or a producer, is bound to; for others the next one in turn."""
        tree = self._record().rows
        if len(tree.active) == 1:
            return tree.active[0]
        if not group and not producer.id:
            return tree.active[next(self._turn) % len(tree.active)]
        pair = Pair(producer.id, group)

        def settled(earlier: int | None) -> int | None:
            producer.rebound.add(group)
            return self._resends.home(pair, earlier)

        number = self._bindings.partition(*pair, tree.active, self._clock.now_ns(), settled)
        if number not in tree:  # bound by a process that knows of more partitions than we do
            self._refresh()
            tree = self._record().rows
        return tree.descend_pair(number, *pair)


def _new_places(share: Share, runs: Sequence[StoredRun]) -> Sequence[int]:
    """Which messages of a share were stored, not being duplicates."""
    return _places_beside(share, [run for run in runs if run.duplicate])


def _places_beside(share: Share, runs: Sequence[StoredRun]) -> Sequence[int]:
    """Which messages of a share are in none of these runs, which name their places."""
    if not runs:
        return range(share.count)
    named = {place for run in runs for place in run.places or ()}
    own = range(share.count) if share.route.places is None else share.route.places
    return [place for place, index in enumerate(own) if index not in named]
