"""Does a folder keep every promise that was made before it crashed?

`Promises` is the sum of the marks of a trace up to the crash; `problems` opens the folder as the next
process does, reads and writes everything, and lists what is not as promised. It never raises: a canary
wants to see what is found, not an exception.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import penstock
from penstock import Message, Store, Topic
from penstock.errors import NotAStore
from tests.crash.disk import Call, Image
from tests.crash.scenario import AUDIT, COUNTING, STORE, HandClock, Sent
from tests.crash.tracing import BootFiles
from tests.kit.topics import inside

Place = tuple[int, int]  # (topic id, partition)


class Born(NamedTuple):
    name: str
    partitions: int
    sync: str


@dataclass
class Promises:
    """What was promised to writers and readers so far."""

    topics: dict[int, Born] = field(default_factory=dict)
    #: Topics whose removal has begun: they may be there or not.
    going: set[int] = field(default_factory=set)
    attempted: set[bytes] = field(default_factory=set)
    acked: dict[Place, dict[int, tuple[bytes, str]]] = field(default_factory=lambda: defaultdict(dict))
    seen: dict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    starts: dict[Place, int] = field(default_factory=dict)
    positions: dict[tuple[int, str, int], int] = field(default_factory=dict)
    #: Transactions: (topic id, value) of each message.
    together: list[list[tuple[int, bytes]]] = field(default_factory=list)
    #: Positions that move with a transaction's messages: (topic id, consumer, partition, to, its messages).
    moving: list[tuple[int, str, int, int, list[tuple[int, bytes]]]] = field(default_factory=list)
    #: (topic id, producer, group) → all that it has sent, acknowledged or not.
    sent: dict[tuple[int, str, str | None], list[Sent]] = field(default_factory=dict)
    #: (topic id, value) of producers' messages that are somewhere in their topic, and how safely.
    stored: dict[tuple[int, bytes], str] = field(default_factory=dict)
    sync_failed: bool = False
    #: A failed sync and a power cut: what a sync="os" topic acknowledged may lie there half.
    torn: bool = False

    def take(self, call: Call) -> None:
        """Add a mark to the promises; other calls promise nothing."""
        match call:
            case ("mark", "created", topic_id, name, partitions, sync):
                self.topics[topic_id] = Born(name, partitions, sync)
            case ("mark", "altered", topic_id, partitions):
                self.topics[topic_id] = self.topics[topic_id]._replace(partitions=partitions)
            case ("mark", "dropping", topic_id):
                self.going.add(topic_id)
            case ("mark", "dropped", topic_id):
                del self.topics[topic_id]
            case ("mark", "attempt", _, values):
                self.attempted.update(values)
            case ("mark", "together", values):
                self.together.append(values)
            case ("mark", "moving", *move):
                self.moving.append(tuple(move))
            case ("mark", "sending", topic_id, producer, group, messages):
                self.sent[topic_id, producer, group] = messages
            case ("mark", "stored", topic_id, value, sync):
                self.stored[topic_id, value] = sync
            case ("mark", "sync_failed"):
                self.sync_failed = True
                self._forget_early_acks()
            case ("mark", "acked", topic_id, partition, offset, value, sync):
                self.acked[topic_id, partition][offset] = (value, sync)
            case ("mark", "read", topic_id, partition, offset, value):
                self.seen[topic_id, partition][offset] = value
            case ("mark", "start", topic_id, partition, start):
                self.starts[topic_id, partition] = start
            case ("mark", "committed", topic_id, consumer, partition, position):
                self.positions[topic_id, consumer, partition] = position

    def after_power_loss(self) -> Promises:
        """What is left of them when the power fails: what was synced, and that no offset is given twice."""
        left = dataclasses.replace(
            self,
            positions={},
            stored={message: sync for message, sync in self.stored.items() if sync == "disk"},
            torn=self.sync_failed,
            acked=defaultdict(dict),
            seen=defaultdict(dict, {place: dict(seen) for place, seen in self.seen.items()}),
        )
        for place, acked in self.acked.items():
            early = place[0] in self.topics and self.topics[place[0]].sync == "disk"
            for offset, (value, level) in acked.items():
                if level == "disk":
                    left.acked[place][offset] = value, level
                elif not early:
                    left.seen[place][offset] = value
        return left

    def _forget_early_acks(self) -> None:
        """What a sync="disk" topic's writers asked to be acknowledged early; no reader has seen it."""
        for (topic_id, _), acked in self.acked.items():
            if topic_id in self.topics and self.topics[topic_id].sync == "disk":
                for offset in [o for o, (_, level) in acked.items() if level == "os"]:
                    del acked[offset]


def put(image: Image, folder: str) -> None:
    """Make a folder look like the image."""
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    for path, data in image.items():
        place = os.path.join(folder, path)
        if data is None:
            os.mkdir(place)
        else:
            fd = os.open(place, os.O_CREAT | os.O_WRONLY)
            os.write(fd, data)
            os.close(fd)


def problems(folder: str, promises: Promises, files: BootFiles, now_ns: int) -> list[str]:
    """What the folder does not keep of the promises; empty when all is well."""
    store = None
    try:
        store = penstock.open(os.path.join(folder, STORE), files=files, clock=HandClock(now_ns))
        found = _Check(store, promises).run()
        store.close()
        return found
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    finally:
        if store is not None:
            store.close()


def read_only_problems(folder: str, promises: Promises, files: BootFiles, now_ns: int) -> list[str]:
    """What someone misses who opens the folder before anyone has recovered it, and may change nothing."""
    found = []
    try:
        path = os.path.join(folder, STORE)
        with penstock.open(path, read_only=True, files=files, clock=HandClock(now_ns)) as store:
            for topic in store.topics():
                if topic.id in promises.topics and topic.id not in promises.going:
                    found += _missing_for_readers(topic, promises)
    except NotAStore:
        if promises.topics:
            found.append("the store is gone")
    except Exception as error:
        found.append(f"read-only: {type(error).__name__}: {error}")
    return found


def _missing_for_readers(topic: Topic, promises: Promises) -> Iterator[str]:
    for partition in range(topic.options.partitions):
        if topic.options.sync == "os" and promises.torn:
            continue
        messages = topic.read(partition=partition, limit=100_000)
        stored = {message.offset: message.value for message in messages}
        start = promises.starts.get((topic.id, partition), 0)
        for offset, (value, level) in promises.acked[topic.id, partition].items():
            if level == topic.options.sync and offset >= start and stored.get(offset) != value:
                yield f"read-only: {topic.name}/{partition}: {offset} holds {_short(stored.get(offset))}"


class _Check:
    def __init__(self, store: Store, promises: Promises) -> None:
        self._store = store
        self._promises = promises
        self._found: list[str] = []
        self._there: dict[int, set[bytes]] = {}
        self._positions: dict[tuple[int, str, int], int] = {}

    def run(self) -> list[str]:
        there = {topic.id: topic for topic in self._store.topics()}
        for topic_id, born in self._promises.topics.items():
            if topic_id not in there and topic_id not in self._promises.going:
                self._found.append(f"topic {born.name} is gone")
        for topic in there.values():
            try:
                self._check_topic(topic)
            except Exception as error:
                self._found.append(f"{topic.name}: {type(error).__name__}: {error}")
        self._check_transactions()
        self._check_moves()
        return self._found

    def _check_transactions(self) -> None:
        """All of a transaction is there or nothing, but for what retention took and topics that are gone."""
        kept = self._kept()
        for values in self._promises.together:
            there = {
                value: value in self._there.get(topic_id, ())
                for topic_id, value in values
                if topic_id in kept
            }
            if len(set(there.values())) > 1:
                halves = ", ".join(f"{_short(value)}: {found}" for value, found in there.items())
                self._found.append(f"half a transaction is there: {halves}")

    def _check_moves(self) -> None:
        """A position that moves with messages is there with them, or not moved."""
        kept = self._kept()
        for topic_id, consumer, partition, to, values in self._promises.moving:
            if topic_id not in kept or values[0][0] not in kept:
                continue
            at = self._positions.get((topic_id, consumer, partition), -1)
            target, value = values[0]
            if (at >= to) != (value in self._there.get(target, ())):
                self._found.append(
                    f"consumer {consumer} at {at} of {partition}: it moves to {to} with {_short(value)}"
                )

    def _kept(self) -> set[int]:
        """Topics that are there for sure, with all that was ever stored in them."""
        return {
            topic_id
            for topic_id, born in self._promises.topics.items()
            if topic_id not in self._promises.going
            and born.name != "brief"
            and not (born.sync == "os" and self._promises.torn)
        }

    def _check_topic(self, topic: Topic) -> None:
        now = Born(topic.name, topic.options.partitions, topic.options.sync)
        born = self._promises.topics.get(topic.id, now)
        if now.partitions < born.partitions:
            self._found.append(f"{topic.name}: {now.partitions} partitions, {born.partitions} promised")
        for partition in range(topic.options.partitions):
            self._check_partition(topic, partition, born.sync)
        self._check_consumers(topic)
        self._check_producers(topic)

    def _check_partition(self, topic: Topic, partition: int, sync: str) -> None:
        place = (topic.id, partition)
        say = f"{topic.name}/{partition}"
        if sync == "os" and self._promises.torn:
            with topic.reader(partitions=[partition], follow=False, on_gap="skip") as reader:
                messages = list(reader)
        else:
            messages = topic.read(partition=partition, limit=100_000).messages()
        if topic.options.index == "key":
            self._check_keys(say, topic, partition, messages)
        stored = {message.offset: message.value for message in messages}
        self._there.setdefault(topic.id, set()).update(value for value in stored.values() if value)
        self._check_order(say, [message.offset for message in messages])
        start = self._promises.starts.get(place, 0)
        known = self._promises.acked[place]
        for offset, (value, level) in known.items():
            if offset >= start and stored.get(offset) != value:
                there = _short(stored.get(offset))
                self._found.append(
                    f"{say}: acknowledged {offset} ({level}) holds {there}, not {_short(value)}"
                )
        for offset, value in self._promises.seen[place].items():
            if stored.get(offset, value) != value:
                there = _short(stored[offset])
                self._found.append(f"{say}: {offset} was read as {_short(value)}, now {there}")
        for value in stored.values():
            if value not in self._promises.attempted:
                self._found.append(f"{say}: {_short(value)} was never written")
        if len(set(stored.values())) != len(stored):
            self._found.append(f"{say}: a message is there twice")
        self._check_append(topic, partition, {*known, *self._promises.seen[place], *stored})

    def _check_keys(self, say: str, topic: Topic, partition: int, messages: Sequence[Message]) -> None:
        """A read by key finds what a plain read finds, whatever became of the indexes."""
        for key in {message.key for message in messages} - {None}:
            found = [message.offset for message in topic.read(partition=partition, key=key, limit=100_000)]
            if found != [message.offset for message in messages if message.key == key]:
                self._found.append(f"{say}: key {key!r} is found at {found}")

    def _check_order(self, say: str, offsets: Sequence[int]) -> None:
        if any(later <= earlier for earlier, later in itertools.pairwise(offsets)):
            self._found.append(f"{say}: offsets out of order: {offsets}")

    def _check_append(self, topic: Topic, partition: int, given: set[int]) -> None:
        """Writing works, gives an offset nobody has seen (W000-2, W002-1), and can be read."""
        say = f"{topic.name}/{partition}"
        value = b"after the crash %d" % partition
        receipt = topic.write(value, partition=partition)
        if receipt.offset <= max(given, default=-1):
            self._found.append(f"{say}: new offset {receipt.offset} is not behind {max(given)}")
        if topic.get(receipt.offset, partition=partition).value != value:
            self._found.append(f"{say}: what was just written cannot be read")

    def _check_consumers(self, topic: Topic) -> None:
        bounds = {log.partition: log.bounds() for log in inside(topic).logs()}
        for consumer in topic.consumers():
            for partition, position in consumer.positions.items():
                self._positions[topic.id, consumer.consumer, partition] = position
                say = f"{topic.name}/{partition}: consumer {consumer.consumer} at {position}"
                # One message was written by `_check_append`.
                if position >= bounds[partition].end:
                    self._found.append(f"{say}, beyond the end {bounds[partition].end - 1}")
                if consumer.important and position < bounds[partition].start:
                    self._found.append(f"{say}, before the start {bounds[partition].start}")
                stored = self._promises.positions.get((topic.id, consumer.consumer, partition))
                if stored is not None and position < stored:
                    self._found.append(f"{say}, had committed {stored}")
            if consumer.consumer == AUDIT:
                self._read_on(topic, consumer.consumer)

    def _check_producers(self, topic: Topic) -> None:
        """Sent again from the beginning, each message of a producer is there once, in order (S001-04)."""
        if topic.id in self._kept():
            for (topic_id, value), sync in self._promises.stored.items():
                if topic_id == topic.id and value not in self._there.get(topic_id, ()):
                    self._found.append(f"{topic.name}: {_short(value)} was acknowledged ({sync}) and is gone")
        sent = {place[1:]: all_ for place, all_ in self._promises.sent.items() if place[0] == topic.id}
        for (producer, group), messages in sent.items():
            seqnos, keys, values = zip(*messages, strict=True)
            with topic.writer(producer_id=producer, group=group) as writer:
                writer.write_many(values, keys=keys, seqnos=seqnos)
        with topic.writer(producer_id=COUNTING) as writer:
            writer.write_many([b"counted after the crash"])
            if any(receipt.duplicate for receipt in writer.flush()):
                self._found.append(f"{topic.name}: an automatic seqno was given twice")
        if not (topic.options.sync == "os" and self._promises.torn):
            self._store.flush_housekeeping()  # or retention overtakes us
            self._check_once(topic, sent)

    def _check_once(self, topic: Topic, sent: dict[tuple[str, str | None], list[Sent]]) -> None:
        last: dict[tuple[int, str, str | None], int] = {}
        numbers: set[tuple[str, str | None, int]] = set()
        for message in topic.scan().messages():
            who = message.producer_id, message.group
            if message.producer_id is None or message.seqno is None:
                continue
            if (*who, message.seqno) in numbers:
                self._found.append(f"{topic.name}: {who} {message.seqno} is there twice")
            numbers.add((*who, message.seqno))
            if last.get((message.partition, *who), -1) >= message.seqno:
                self._found.append(f"{topic.name}: {who} {message.seqno} is out of order")
            last[message.partition, *who] = message.seqno
        if topic.id in self._kept():
            for who, messages in sent.items():
                missing = [each.seqno for each in messages if (*who, each.seqno) not in numbers]
                if missing:
                    self._found.append(f"{topic.name}: {who} sent {missing} again, which are not there")

    def _read_on(self, topic: Topic, consumer: str) -> None:
        """An important consumer goes on where it was and meets no gap."""
        with topic.reader(consumer=consumer, follow=False) as reader:
            for message in reader:
                reader.commit(message)
            if reader.lag():
                self._found.append(f"{topic.name}: consumer {consumer} stopped before the end")


def _short(value: bytes | None) -> str:
    return "nothing" if value is None else value[:24].decode()
