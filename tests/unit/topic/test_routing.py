"""Routing by columns: the same partitions as key by key, and every message once, in order."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.frame_encode import MessageColumns
from penstock.partition_tree import PartitionTree
from penstock.topic.routing import RoutePlaces, by_range, by_range_all, route, split
from penstock.topic.write_batch import WriteBatch


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=60), st.integers(1, 4096))
def test_a_column_of_keys_goes_where_each_key_goes(keys, partitions):
    assert list(by_range_all(keys, partitions)) == [by_range(key, partitions) for key in keys]


@pytest.mark.parametrize("partitions", [2, 4, 64, 300])
def test_every_message_goes_one_way_in_order(partitions):
    source = random.Random(partitions)
    count = 2000
    keys = [source.randbytes(8) for _ in range(count)]
    values = [b"%d" % n for n in range(count)]
    headers = [{"n": str(n)} if n % 5 == 0 else None for n in range(count)]
    columns = MessageColumns(values, keys, headers, list(range(count)), seqnos=range(7, 7 + count))
    routes = route(WriteBatch(columns), PartitionTree.equal(partitions), by_range, "", lambda group: 0)
    seen = set()
    for each in routes:
        places = list(each.places)
        assert len(each.places) == len(places)
        assert places == sorted(places)
        assert seen.isdisjoint(places)
        seen.update(places)
        part = each.columns
        assert list(part.values) == [values[p] for p in places]
        assert list(part.keys) == [keys[p] for p in places]
        assert list(part.timestamps) == places
        assert list(part.seqnos) == [7 + p for p in places]
        assert (part.headers or [None] * len(places)) == [headers[p] for p in places]
        assert {by_range(key, partitions) for key in part.keys} == {each.partition}
    assert len(seen) == count


def test_chosen_partitions_and_groups_come_before_keys():
    columns = MessageColumns([b"a", b"b", b"c", b"d"], [b"k", b"k", b"k", None])
    batch = WriteBatch(columns, partitions=[3, None, None, None], groups=[None, "g", None, None])
    routes = route(batch, PartitionTree.equal(4), lambda key, count: 2, "", lambda group: 1 if group else 0)
    assert [(r.partition, r.group, r.columns.values) for r in routes] == [
        (0, "", [b"d"]),
        (1, "g", [b"b"]),
        (2, "", [b"c"]),
        (3, "", [b"a"]),
    ]
    assert [r.keyed for r in routes] == [True, False, True, True]


def test_a_lane_is_a_sequence():
    lane = RoutePlaces(bytes([0, 1, 1, 0, 1]), 1, 3)
    assert (list(lane), len(lane), lane[0], lane[1:]) == ([1, 2, 4], 3, 1, [2, 4])


def test_what_gets_nothing_is_none():
    assert split(MessageColumns([b"a"], None), [2], 4)[:2] == [None, None]
