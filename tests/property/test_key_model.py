"""Reads by key against a list, over random writes, rolls, housekeeping, retention, lifetimes and losses.

Two openings of one folder stand for two processes: what one writes, seals and removes, the other finds.
"""

import os
import random

import pytest

import penstock
from penstock.testing import Clock
from tests.kit.logs import GatheredKeys, do_housekeeping, seal_segment
from tests.kit.logs import key_index_module as key_index
from tests.kit.topics import inside

KEYS = [
    ["chat", 1],
    ["chat", 12],
    ["chat"],
    ["chatter"],
    "chat",
    "",
    b"\xff",
    b"\xff\xff",
    ["user", "1"],
    None,
]
#: Lifetimes that the topic may have, in seconds; the key itself goes before a pattern.
LIFETIMES = [
    {},
    {"*": 600},
    {"chat": 400, ("chat", "*"): 900, ("chat", 1): 1800},
    {"chat*": 1200, "": 60, ("*",): 300},
]
STEPS = 80


def stored(key):
    return penstock.keys.checked_key(key)


class Model:
    """A topic in two openings, and what it should hold."""

    def __init__(self, folder, seed):
        print(f"seed {seed}")
        self.chance = random.Random(seed)
        self.folder = str(folder)
        self.clock = Clock()
        self.stores = [self._open(), self._open()]
        sync = self.chance.choice(["disk", "os"])
        self.stores[0].create_topic("t", index="key", retention="1h", segment_bytes=4096, sync=sync)
        #: (offset, key, value, when it was written), by offset.
        self.kept = []
        self.lifetimes = {}
        self.end = 0

    def play(self):
        steps = (
            [self.write] * 4 + [self.write_many] * 3
            + [self.seal, self.tidy, self.lose, self.damage, self.wait, self.vacuum, self.reopen]
            + [self.alter, self.wait]
        )  # fmt: skip
        for _ in range(STEPS):
            self.chance.choice(steps)()
            self.check(self.topic())
        for store in self.stores:
            self.check(store.topic("t"))
            store.close()

    def topic(self):
        return self.chance.choice(self.stores).topic("t")

    def log(self):
        return inside(self.topic()).log(0)

    # What is done.

    def write(self):
        key, value = self.chance.choice(KEYS), self.chance.randbytes(self.chance.randrange(40))
        self._note(self.topic().write(value, key=key).offset, key, value)

    def write_many(self):
        count = self.chance.randrange(1, 30)
        keys = self.chance.choices(KEYS, k=count)
        values = [self.chance.randbytes(20) for _ in keys]
        receipts = self.topic().write_many(values, keys=keys)
        for receipt, key, value in zip(receipts, keys, values, strict=True):
            self._note(receipt.offset, key, value)

    def seal(self):
        seal_segment(self.log())

    def tidy(self):
        log = self.log()
        do_housekeeping(log)

    def lose(self):
        for path in self._indexes():
            if self.chance.random() < 0.5:
                os.unlink(path)

    def damage(self):
        """Put another file in its place, as a disk might; a mapped file is never written to."""
        for path in self._indexes():
            with open(path, "rb") as file:
                content = bytearray(file.read())
            content[self.chance.randrange(len(content))] ^= 1 << self.chance.randrange(8)
            with open(path + ".new", "wb") as file:
                file.write(content[: self.chance.choice([len(content), len(content) // 2])])
            os.rename(path + ".new", path)

    def wait(self):
        self.clock.advance(self.chance.randrange(1200))

    def vacuum(self):
        self.topic().vacuum()

    def alter(self):
        self.lifetimes = self.chance.choice(LIFETIMES)
        self.topic().alter(key_retention=self.lifetimes)
        for store in self.stores:
            inside(store.topic("t")).refresh()  # else the other one follows within a second

    def reopen(self):
        number = self.chance.randrange(2)
        self.stores[number].close()
        self.stores[number] = self._open()

    # What is found.

    def check(self, topic):
        for store in self.stores:
            assert store.flush_housekeeping()
        start = topic.stats().partitions[0].start
        lies_from = inside(topic).log(0).stored().start  # what is too old lies there until it is removed
        assert lies_from <= start
        self.kept = [each for each in self.kept if each[0] >= lies_from]
        alive = [each[:3] for each in self.kept if each[0] >= start and self._is_alive(each)]
        assert self._found(topic.scan().messages()) == alive
        assert topic.expired().messages() == [] or self.lifetimes
        assert [m.offset for m in topic.expired()] == [e[0] for e in self.kept if not self._is_alive(e)]
        key = self.chance.choice(KEYS[:-1])
        mine = [each for each in alive if each[1] == stored(key)]
        assert self._found(topic.scan(key=key).messages()) == mine
        first, stop = sorted(self.chance.choices(range(start, self.end + 1), k=2))
        limit = self.chance.randrange(1, 9)
        between = [each for each in mine if first <= each[0] < stop]
        assert self._found(topic.read(key=key, start=first, stop=stop, limit=limit)) == between[:limit]
        newest = inside(topic).log(0).keys.newest
        match = penstock.keys.match([key])
        assert newest(match, first, stop, limit) == [each[0] for each in between[-limit:]]
        latest = topic.latest(key)
        assert (latest and latest.offset) == (mine[-1][0] if mine else None)
        prefix = self.chance.choice(KEYS[:-1])
        taken = penstock.keys.match(prefixes=[prefix])
        assert self._found(topic.scan(prefix=prefix).messages()) == [e for e in alive if taken.takes(e[1])]

    def _is_alive(self, each):
        """Told from the rules as they are written, by no code of the product but that for keys."""
        _, key, _, written_at = each
        fitting = []
        for pattern, seconds in self.lifetimes.items():
            exact = stored(pattern)
            beginnings = (exact[:-1],)
            if isinstance(pattern, tuple) and pattern[-1] == "*":
                opened = stored(pattern[:-1])[:-1]
                beginnings = (opened + b",", opened + b"]") if len(pattern) > 1 else (opened,)
            if key == exact:
                fitting.append((2**20, seconds))
            elif exact.endswith((b"*", b'"*"]')) and key is not None and key.startswith(beginnings):
                fitting.append((len(beginnings[0]), seconds))
        lifetime = max(fitting)[1] if fitting else None
        return lifetime is None or written_at >= self.clock.now_ns() - lifetime * 10**9

    def _found(self, messages):
        return [(message.offset, message.key, message.value) for message in messages]

    def _note(self, offset, key, value):
        assert offset == self.end
        self.kept.append((offset, stored(key), value, self.clock.now_ns()))
        self.end = offset + 1

    def _indexes(self):
        part = os.path.join(self.folder, "topics", "t", "parts", "000000")
        return [os.path.join(part, name) for name in sorted(os.listdir(part)) if name.endswith(".keyindex")]

    def _open(self):
        return penstock.open(self.folder, clock=self.clock)


@pytest.mark.parametrize("seed", range(8))
def test_reads_by_key_find_what_was_written(tmp_path, seed):
    Model(tmp_path, seed).play()


@pytest.mark.parametrize("seed", range(3))
def test_reads_by_key_find_it_when_all_hashes_collide(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(key_index, "key_hash", lambda key: 42)
    Model(tmp_path, seed).play()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 250))
def test_reads_by_key_find_what_was_written_at_length(tmp_path, seed):
    Model(tmp_path, seed).play()


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (GatheredKeys, "places", {}),
        (key_index.KeyFilter, "passes", lambda self, table: False),
        (key_index.StoredKeys, "is_sound", lambda self: True),
    ],
)
def test_canary_an_index_that_forgets_or_believes_everything_is_noticed(
    tmp_path, monkeypatch, owner, name, broken
):
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, IndexError, TypeError)):
        _play_all(tmp_path)


def _play_all(folder):
    for seed in range(20):
        Model(folder / str(seed), seed).play()
