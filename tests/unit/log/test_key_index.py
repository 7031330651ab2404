"""The key index of a segment: keys and prefixes are found whatever the hashes; damage is noticed."""

import random

import pytest

from penstock.clock import Clock
from penstock.files import Files
from penstock.keys import Match
from penstock.log import key_index
from penstock.log.folder import KEY_INDEX, Folder
from penstock.log.key_index import StoredKeys, pack
from penstock.log.segment import SegmentHead

HEAD = SegmentHead(salt=7, generation=1, base=1000, topic_id=5, partition=0, created=0)


@pytest.fixture
def folder(tmp_path):
    folder = Folder(str(tmp_path), topic_id=5, partition=0, files=Files(), clock=Clock())
    yield folder
    folder.close()


def stored(folder, places, head=HEAD):
    """Pack, write, open."""
    with open(folder.segment_path(head.base, KEY_INDEX), "wb") as file:
        file.write(pack(head, head.base + 500, places))
    return StoredKeys.open(folder, head)


def listed(table, *keys, prefixes=()):
    assert table.is_sound()
    return [list(places) for _, places in table.found(Match(keys, prefixes))]


def passes(table, key):
    return key_index.KeyFilter(Match((key,))).passes(table)


def sample(seed, count=100):
    print(f"seed {seed}")
    chance = random.Random(seed)
    keys = {bytes(chance.choices(b"ab,]\xff\0", k=chance.randrange(8))) for _ in range(count)}
    return {key: sorted(chance.sample(range(500), chance.randrange(1, 9))) for key in keys}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("hashing", [key_index.key_hash, lambda key: 42, lambda key: len(key)])
def test_every_key_and_every_prefix_is_found_also_when_hashes_collide(folder, monkeypatch, seed, hashing):
    monkeypatch.setattr(key_index, "key_hash", hashing)
    places = sample(seed)
    table = stored(folder, places)
    assert (table.base, table.stop) == (1000, 1500)
    for key, wanted in places.items():
        assert passes(table, key)
        assert listed(table, key) == [wanted]
        for end in range(len(key) + 1):
            beginning = key[:end]
            expected = [places[each] for each in sorted(places) if each.startswith(beginning)]
            assert listed(table, prefixes=(beginning,)) == expected
    for key in (b"nowhere", b"ab" * 20, b"\xff" * 9):
        assert listed(table, key) == []


def test_the_filter_lets_few_strangers_pass(folder):
    table = stored(folder, {b"key %d" % number: [number] for number in range(500)})
    strangers = sum(passes(table, b"stranger %d" % number) for number in range(10_000))
    assert strangers < 100


def test_an_index_of_no_key_at_all(folder):
    table = stored(folder, {})
    assert listed(table, b"", b"a", prefixes=(b"b",)) == []


@pytest.mark.parametrize(
    "other", [HEAD._replace(salt=8), HEAD._replace(generation=2), HEAD._replace(generation=0)]
)
def test_an_index_of_other_data_is_none(folder, other):
    stored(folder, {b"a": [1]})
    assert StoredKeys.open(folder, other) is None


def test_a_missing_index_is_none(folder):
    assert StoredKeys.open(folder, HEAD) is None


def test_any_flipped_bit_and_any_other_length_is_noticed(folder):
    path = folder.segment_path(HEAD.base, KEY_INDEX)
    right = pack(HEAD, 1500, {b"a": [1, 2], b"b": [3]})
    spoilt = [right[:length] for length in range(len(right))] + [right + b"\0"]
    spoilt += [right[:at] + bytes((right[at] ^ 0x10,)) + right[at + 1 :] for at in range(len(right))]
    for content in spoilt:
        with open(path, "wb") as file:
            file.write(content)
        table = StoredKeys.open(folder, HEAD)
        assert table is None or not table.is_sound()


def test_the_same_keys_make_the_same_bytes():
    assert pack(HEAD, 1500, {b"b": [3], b"a": [1, 2]}) == pack(HEAD, 1500, {b"a": [1, 2], b"b": [3]})
