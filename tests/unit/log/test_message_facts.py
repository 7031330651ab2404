"""Facts of messages at scattered offsets: the same as reading each message whole (S000-10, S000-18)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import penstock
from penstock.errors import OffsetTrimmed

_KINDS = {
    "headers that are equal": lambda n: {"content-type": "text/plain", "source": "shop", "name": f"o/{n}"},
    "one header": lambda n: {"name": f"{n}"},
    "none": lambda n: None,
    "lengths that differ": lambda n: {"a": "x" * (n % 5), "bc": "y" * (n % 7), "name": f"{n}"},
    "split differently": lambda n: [{"x": "a", "y": "bc", "z": "2"}, {"x": "ab", "y": "c", "z": "1"}][n % 2],
    "names split differently": lambda n: {"ab": "1", "c": "2"} if n % 2 else {"a": "1", "bc": "2"},
    "other names": lambda n: {f"name-{n % 3}": "x", "source": "é" * (n % 4)},
    "bytes": lambda n: {"raw": b"\xff\xfe", "text": "t"},
    "empty texts": lambda n: {"": "", "b": ""},
    "many": lambda n: {f"header-{i}": f"{n}" for i in range(20)},
    "no ASCII": lambda n: {"größe": f"ü{n}", "name": f"ß{n}"},
}  # fmt: skip


def text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="surrogateescape")


def check(topic: penstock.Topic, seed: int = 1) -> None:
    """Compare all messages, one by one, all together, and by handfuls; twice, since frames are learnt."""
    log, chance = topic.open_topic.log(0), random.Random(seed)
    bounds = log.bounds()
    whole = {
        offset: (m.offset, m.key, {name: text(v) for name, v in m.headers.items()}, m.written_at)
        for offset in range(bounds.start, bounds.end)
        if (m := log.segments.message(offset)) is not None
    }
    assert whole
    for _ in range(2):
        for offset, expected in whole.items():
            assert log.keys.facts((offset,)) == [expected]
        assert log.keys.facts(list(whole)) == list(whole.values())
        for _ in range(20):
            some = sorted(chance.sample(list(whole), min(7, len(whole))))
            assert log.keys.facts(some) == [whole[offset] for offset in some]


def fill(topic: penstock.Topic, kind: str, batch: int, count: int = 60) -> None:
    headers = [_KINDS[kind](n) for n in range(count)]
    keys = [None if n % 13 == 12 and kind == "none" else f"subject-{n % 3}" for n in range(count)]
    for at in range(0, count, batch):
        some = slice(at, at + batch)
        if batch == 1:
            topic.write(f"value {at}", key=keys[at], headers=headers[at])
        else:
            given = None if headers[at] is None else headers[some]
            topic.write_many([b"v" * (n % 9) for n in range(batch)], keys=keys[some], headers=given)


@pytest.mark.parametrize("batch", [1, 30])
@pytest.mark.parametrize("kind", _KINDS)
def test_facts_are_those_of_the_whole_message(tmp_path: Path, kind: str, batch: int) -> None:
    with penstock.open(tmp_path) as store:
        topic = store.create_topic("t", index="key", sync="os")
        fill(topic, kind, batch)
        check(topic)
        seal(topic)
        check(topic)
        topic.vacuum()  # repacks
        fill(topic, kind, batch)
        check(topic)


def test_frames_of_all_kinds_beside_each_other(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as store:
        topic = store.create_topic("t", index="key", sync="os", compress="zstd")
        for kind in _KINDS:
            fill(topic, kind, 1, 20)
            fill(topic, kind, 20, 40)
        check(topic)
        seal(topic)
        topic.vacuum()
        check(topic)


def test_what_is_not_there(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as store:
        topic = store.create_topic("t", index="key", sync="os")
        fill(topic, "one header", 1)
        log = topic.open_topic.log(0)
        assert log.keys.facts((60,)) == []
        assert [facts[0] for facts in log.keys.facts((59, 60, 61))] == [59]
        topic.delete_before(10)
        with pytest.raises(OffsetTrimmed):
            log.keys.facts((9, 10))
        assert [facts[0] for facts in log.keys.facts((10,))] == [10]


def seal(topic: penstock.Topic) -> None:
    log = topic.open_topic.log(0)
    with log.folder.append:
        log.appender.roll(log.appender.ready())
