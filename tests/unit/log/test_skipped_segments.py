"""Segments that do not hold what is asked for are passed over once; those that do never are."""

import random

import pytest

from penstock.clock import Clock
from penstock.files import Files
from penstock.keys import Match
from penstock.log import key_search
from penstock.log.folder import KEY_INDEX, Folder
from penstock.log.key_index import StoredKeys, pack
from penstock.log.key_search import SkippedSegments
from penstock.log.segment import SegmentHead

KEYS = [b"a", b"ab", b"b", b"rare", b"never"]


@pytest.fixture
def folder(tmp_path):
    folder = Folder(str(tmp_path), topic_id=1, partition=0, files=Files(), clock=Clock())
    yield folder
    folder.close()


def segment(folder, base, keys):
    head = SegmentHead(salt=7, generation=1, base=base, topic_id=1, partition=0, created=0)
    with open(folder.segment_path(base, KEY_INDEX), "wb") as file:
        file.write(pack(head, base + 10, {key: [0] for key in keys}))
    return StoredKeys.open(folder, head)


class Other:
    """What is known of a segment and is no index."""

    def __init__(self, base):
        self.base = base


def wanted(sealed, match, between, newest):
    """The truth, by looking at everything; the filter may let more pass."""
    order = reversed(between) if newest else between
    return [
        sealed[n].base
        for n in order
        if isinstance(sealed[n], Other) or any(True for _ in sealed[n].found(match))
    ]


@pytest.mark.parametrize("seed", range(10))
def test_nothing_that_is_wanted_is_passed_over(folder, monkeypatch, seed):
    chance = random.Random(seed)
    monkeypatch.setattr(key_search, "_QUESTIONS_MOST", 6)
    monkeypatch.setattr(key_search, "_RUN_LEAST", chance.choice([1, 3]))
    sealed, passed, base = [], SkippedSegments(), 0
    for _ in range(120):
        kind = chance.random()
        if kind < 0.4:
            holds = [key for key in KEYS[:3] if chance.random() < 0.2] + [b"rare"] * (chance.random() < 0.05)
            sealed = [*sealed, segment(folder, base, holds)]
            base += 10
        elif kind < 0.45:
            sealed = sealed[chance.randrange(3) :]
        elif kind < 0.5 and sealed:
            at = chance.randrange(len(sealed))
            sealed = [*sealed[:at], Other(sealed[at].base), *sealed[at + 1 :]]
        first, stop = sorted(chance.choices(range(len(sealed) + 1), k=2))
        match = chance.choice(
            [Match((chance.choice(KEYS),)), Match((b"b", b"rare")), Match((), (b"a",)), Match((), (b"r",))]
        )
        newest = chance.random() < 0.5
        between = range(first, stop)
        found = [each.base for each in passed.may_hold(sealed, match, between, newest=newest)]
        truth = wanted(sealed, match, between, newest)
        assert found == sorted(found, reverse=newest)
        # Where an index was seen not to hold it, what became of the file later does not matter.
        assert {each for each in truth if not isinstance(sealed_at(sealed, each), Other)} <= set(found)
        assert set(found) <= {each.base for each in sealed[first:stop]}


def sealed_at(sealed, base):
    return next(each for each in sealed if each.base == base)


def test_what_was_passed_over_is_not_looked_at_again(folder, monkeypatch):
    sealed = [segment(folder, 10 * n, [b"rare"] if n == 0 else [b"a"]) for n in range(50)]
    looked = []
    really = key_search.KeyFilter.passes
    monkeypatch.setattr(
        key_search.KeyFilter, "passes", lambda sieve, table: looked.append(table.base) or really(sieve, table)
    )
    passed = SkippedSegments()
    for expected in (50, 2):
        looked.clear()
        found = list(passed.may_hold(sealed, Match((b"rare",)), range(50), newest=True))
        assert ([each.base for each in found], len(looked)) == ([0], expected)
    sealed.append(segment(folder, 500, [b"a"]))
    looked.clear()
    assert len(list(passed.may_hold(sealed, Match((b"rare",)), range(51), newest=True))) == 1
    assert len(looked) == 3
