"""A topic against a plain Python model: whatever is done to it, in any order, it holds what it should.

The model is a list of messages a partition. Rules write in every way there is, read at any place, commit
in any order, seal, tidy, vacuum under a moved clock, add partitions, close and open, restart the machine.
"""

import os
import shutil
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import penstock
from penstock.errors import OffsetAhead, OffsetTrimmed
from tests.crash.scenario import HandClock
from tests.crash.tracing import FIRST_BOOT, BootFiles
from tests.kit.consumers import Commits
from tests.kit.logs import Log, do_housekeeping, seal_segment
from tests.kit.topics import inside
from tests.kit.trees import hash_of
from tests.property.machines import at_length, everyday, must_notice, scratch_folder

HOUR_NS = 3600 * 10**9
values = st.one_of(
    st.none(), st.just(b""), st.binary(max_size=20), st.binary(min_size=1, max_size=3).map(lambda b: b * 400)
)
keys = st.one_of(st.none(), st.just(b""), st.sampled_from([b"a", b"b", b"c", b"long key " * 3]))
headers = st.one_of(
    st.none(), st.dictionaries(st.sampled_from(["h", "ß"]), st.one_of(st.text("xy"), st.binary()))
)
stamps = st.one_of(st.none(), st.integers(-(2**62), 2**62))


class Kept(NamedTuple):
    """A message as the model has it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str | bytes]
    timestamp: int
    written_at: int

    @classmethod
    def of(cls, message: penstock.Message) -> "Kept":
        return cls(
            message.offset, message.key, message.value, dict(message.headers), message.timestamp,
            message.written_at,
        )  # fmt: skip


class TopicMachine(RuleBasedStateMachine):
    """One topic, its model, and one consumer."""

    @initialize(
        partitions=st.integers(1, 2),
        sync=st.sampled_from(["disk", "os"]),
        retention=st.sampled_from([None, "1h"]),
        index=st.sampled_from([None, "key", "key"]),
    )
    def make(self, partitions, sync, retention, index):
        self.folder = scratch_folder()
        self.clock, self.boot = HandClock(), FIRST_BOOT
        self.store = self._opened()
        self.topic = self.store.create_topic(
            "orders", partitions=partitions, sync=sync, retention=retention, segment_bytes=4096, index=index
        )
        self.kept = [[] for _ in range(partitions)]
        #: The hashes of each partition, from the first up to and without the last.
        self.ranges = [(0, 2**32)] if partitions == 1 else [(0, 2**31), (2**31, 2**32)]
        self.starts = [0] * partitions
        #: What the consumer may get next.
        self.positions = {}
        #: The offset behind the last one given out.
        self.ends = {}

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # Writing.

    @rule(value=values, key=keys, head=headers, stamp=stamps, chosen=st.one_of(st.none(), st.integers(0, 3)))
    def write(self, value, key, head, stamp, chosen):
        partition = None if chosen is None else chosen % len(self.kept)
        receipt = self.topic.write(value, key=key, headers=head, timestamp=stamp, partition=partition)
        self._note(receipt, value, key, head, stamp, partition)

    @rule(
        batch=st.lists(st.tuples(values, keys, headers, stamps), min_size=1, max_size=8),
        chosen=st.one_of(st.none(), st.integers(0, 3)),
        columns=st.booleans(),
    )
    def write_many(self, batch, chosen, columns):
        partition = None if chosen is None else chosen % len(self.kept)
        if not columns:
            batch = [(value, None, None, None) for value, *_ in batch]
        batch = [(value, key, head, 7 if stamp is None else stamp) for value, key, head, stamp in batch]
        cells = [list(column) for column in zip(*batch, strict=True)]
        receipts = self.topic.write_many(
            cells[0], keys=cells[1], headers=cells[2], timestamps=cells[3], partition=partition
        )
        assert len(receipts) == len(batch)
        for receipt, (value, key, head, stamp) in zip(receipts, batch, strict=True):
            self._note(receipt, value, key, head, stamp, partition)

    @rule(
        batch=st.lists(st.tuples(values, keys, headers, stamps), max_size=8),
        sync=st.sampled_from([None, "os"]),
        chosen=st.integers(0, 3),
    )
    def write_buffered(self, batch, sync, chosen):
        partition = chosen % len(self.kept)
        with self.topic.writer(linger=60, sync=sync) as writer:
            for value, key, head, stamp in batch:
                writer.write(value, key=key, headers=head, timestamp=stamp, partition=partition)
            receipts = writer.flush()
            assert len(receipts) == len(batch)
            for receipt, (value, key, head, stamp) in zip(receipts, batch, strict=True):
                self._note(receipt, value, key, head, stamp, partition)
        assert writer.written == len(batch)

    # Reading.

    @rule(partition=st.integers(0, 3), start=st.integers(0, 60), limit=st.integers(1, 12))
    def read_at(self, partition, start, limit):
        partition %= len(self.kept)
        end = self._end(partition)
        if start > end:
            with pytest.raises(OffsetAhead):
                self.topic.read(partition=partition, start=start, limit=limit)
        elif start < self.starts[partition]:
            with pytest.raises(OffsetTrimmed) as caught:
                self.topic.read(partition=partition, start=start, limit=limit)
            assert caught.value.first == self.starts[partition]
        else:
            found = self.topic.read(partition=partition, start=start, limit=limit)
            expected = [each for each in self.kept[partition] if each.offset >= start][:limit]
            assert [Kept.of(message) for message in found] == expected

    @rule(partition=st.integers(0, 3), offset=st.integers(0, 60))
    def get(self, partition, offset):
        partition %= len(self.kept)
        if self.starts[partition] <= offset < self._end(partition):
            assert Kept.of(self.topic.get(offset, partition=partition)) == self._at(partition, offset)
        else:
            with pytest.raises((OffsetAhead, OffsetTrimmed)):
                self.topic.get(offset, partition=partition)

    @precondition(lambda self: self.topic.options.index == "key")
    @rule(key=keys.filter(lambda key: key is not None), start=st.integers(0, 60), limit=st.integers(1, 12))
    def read_by_key(self, key, start, limit):
        everything = [(partition, each) for partition, kept in enumerate(self.kept) for each in kept]
        mine = [(partition, each) for partition, each in everything if each.key == key]
        assert [(m.partition, Kept.of(m)) for m in self.topic.read(key=key, limit=limit)] == mine[:limit]
        assert [(m.partition, Kept.of(m)) for m in self.topic.scan(key=key).messages()] == mine
        begun = [(p, each) for p, each in everything if each.key is not None and each.key.startswith(key[:1])]
        assert [(m.partition, Kept.of(m)) for m in self.topic.scan(prefix=key[:1]).messages()] == begun
        latest = self.topic.latest(key)
        assert (latest.written_at if latest else None) == max((m.written_at for _, m in mine), default=None)
        for partition in range(len(self.kept)):
            if self.starts[partition] <= start <= self._end(partition):
                found = self.topic.read(partition=partition, key=key, start=start, limit=limit)
                wanted = [each.offset for p, each in mine if p == partition and each.offset >= start]
                assert [message.offset for message in found] == wanted[:limit]

    @rule(ago=st.integers(0, 7200))
    def read_since(self, ago):
        """By written time, exact; a moment in the future is the end."""
        moment = self.clock.now - ago * 10**9 + HOUR_NS
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment // 1000)
        for partition, kept in enumerate(self.kept):
            expected = [each.offset for each in kept if each.written_at >= moment]
            found = self.topic.scan(partition=partition, start=when)
            assert [message.offset for message in found.messages()] == expected

    @rule(arrow=st.booleans())
    def scan(self, arrow):
        everything = [(partition, each) for partition, kept in enumerate(self.kept) for each in kept]
        scan = self.topic.scan()
        if arrow:
            table = scan.to_arrow()
            assert table["offset"].to_pylist() == [each.offset for _, each in everything]
            assert table["value"].to_pylist() == [each.value for _, each in everything]
            assert table["key"].to_pylist() == [each.key for _, each in everything]
        else:
            assert [(m.partition, Kept.of(m)) for m in scan.messages()] == everything

    @rule(count=st.integers(1, 10), shuffled=st.randoms(use_true_random=False), left=st.integers(0, 3))
    def consume(self, count, shuffled, left):
        """Get what was not committed, in order; commit some of it, in any order."""
        with self.topic.reader(consumer="billing", follow=False, on_gap="skip") as reader:
            for partition in range(len(self.kept)):
                self.positions.setdefault(partition, self.starts[partition])
            got = [message for message, _ in zip(reader, range(count), strict=False)]
            for partition in range(len(self.kept)):
                mine = [Kept.of(message) for message in got if message.partition == partition]
                first = max(self.positions[partition], self.starts[partition])
                expected = [each for each in self.kept[partition] if each.offset >= first]
                assert mine == expected[: len(mine)]
            shuffled.shuffle(got)
            done = got[: len(got) - left] if left else got
            for message in done:
                reader.commit(message)
            for partition in range(len(self.kept)):
                self._move(partition, {message.offset for message in done if message.partition == partition})
        stored = next(each for each in self.topic.consumers() if each.consumer == "billing")
        for partition, start in enumerate(self.starts):
            if self.positions[partition] < start == stored.positions.get(partition):
                self.positions[partition] = start  # what retention took was passed over, and that is stored
        assert stored.positions == {p: at for p, at in self.positions.items() if p in stored.positions}

    # Housekeeping.

    @rule(partition=st.integers(0, 3), tidy=st.booleans())
    def seal(self, partition, tidy):
        log = inside(self.topic).log(partition % len(self.kept))
        seal_segment(log)
        if tidy:
            do_housekeeping(log)

    @rule(chance=st.randoms(use_true_random=False))
    def lose_indexes(self, chance):
        """They are hints: whoever misses one makes it again."""
        for folder, _, names in os.walk(self.folder):
            for name in names:
                if name.endswith("index") and chance.random() < 0.3:
                    os.unlink(os.path.join(folder, name))

    @rule(minutes=st.integers(0, 90))
    def vacuum(self, minutes):
        self.clock.forward(minutes * 60 * 10**9)
        report = self.topic.vacuum()
        assert {each.partition for each in report.partitions} == set(range(len(self.kept)))
        if self.topic.options.retention_ns is not None:
            limit = self.clock.now - self.topic.options.retention_ns
            for partition, kept in enumerate(self.kept):
                young = [each.offset for each in kept if each.written_at >= limit]
                self._trim(partition, young[0] if young else self._end(partition))
            assert [each.start for each in report.partitions] == self.starts

    @precondition(lambda self: len(self.kept) < 4)
    @rule()
    def add_partition(self):
        self.topic.alter(partitions=len(self.kept) + 1)
        donor = max(
            range(len(self.kept)), key=lambda n: (self.ranges[n][1] - self.ranges[n][0], -self.ranges[n][0])
        )
        low, high = self.ranges[donor]
        self.ranges[donor] = low, (low + high) // 2
        self.ranges.append(((low + high) // 2, high))
        self.kept.append([])
        self.starts.append(0)

    @rule(restart=st.booleans(), read_only=st.booleans())
    def reopen(self, restart, read_only):
        self.store.close()
        self.boot += restart
        if read_only:
            files = BootFiles(self.boot)
            with penstock.open(self.folder, files=files, clock=self.clock, read_only=True) as store:
                found = [(m.partition, Kept.of(m)) for m in store.topic("orders").scan().messages()]
                assert found == [(p, each) for p, kept in enumerate(self.kept) for each in kept]
        self.store = self._opened()
        self.topic = self.store.topic("orders")

    @rule(seconds=st.integers(1, 4000))
    def wait(self, seconds):
        self.clock.forward(seconds * 10**9)

    @invariant()
    def bounds_are_those_of_the_model(self):
        if not hasattr(self, "store"):
            return
        self.store.flush_housekeeping()
        limit = self.clock.now - HOUR_NS
        for partition in range(len(self.kept)):
            bounds = inside(self.topic).log(partition).bounds()
            if bounds.start > self.starts[partition]:  # the vacuum that follows a roll
                gone = [each for each in self.kept[partition] if each.offset < bounds.start]
                assert self.topic.options.retention_ns is not None
                assert all(each.written_at < limit for each in gone), "W004-05: the young went with the old"
                self._trim(partition, bounds.start)
            assert (bounds.start, bounds.end) == (self.starts[partition], self._end(partition))

    # Inside.

    def _opened(self):
        return penstock.open(self.folder, files=BootFiles(self.boot), clock=self.clock)

    def _note(self, receipt, value, key, head, stamp, partition):
        if partition is not None:
            assert receipt.partition == partition
        elif key is not None:
            low, high = self.ranges[receipt.partition]
            assert low <= hash_of(key) < high
        kept = self.kept[receipt.partition]
        assert receipt.offset == self._end(receipt.partition)
        timestamp = self.clock.now if stamp is None else stamp
        kept.append(Kept(receipt.offset, key, value, dict(head or {}), timestamp, self.clock.now))
        self.ends[receipt.partition] = receipt.offset + 1

    def _end(self, partition):
        return self.ends.get(partition, 0)

    def _at(self, partition, offset):
        return next(each for each in self.kept[partition] if each.offset == offset)

    def _trim(self, partition, start):
        self.starts[partition] = max(self.starts[partition], start)
        self.kept[partition] = [each for each in self.kept[partition] if each.offset >= start]

    def _move(self, partition, done):
        """The position moves over what is done, without a hole; offsets that are gone are no hole."""
        position = self.positions[partition]
        for each in self.kept[partition]:
            if each.offset < position:
                continue
            if each.offset not in done:
                break
            position = each.offset + 1
        self.positions[partition] = position


TestTopic = TopicMachine.TestCase
TestTopic.settings = everyday(100, 30)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (Log, "offset_at", lambda self, written_at: self.bounds().start + 1),
        (Commits, "commit", lambda self, first, stop: setattr(self, "position", max(self.position, stop))),
    ],
)
def test_canary_a_topic_that_does_not_behave_is_noticed(monkeypatch, owner, name, broken):
    monkeypatch.setattr(owner, name, broken)
    must_notice(TopicMachine, 200)


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestTopicAtLength(TopicMachine.TestCase):
    settings = at_length(600, 60)
