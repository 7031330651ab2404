"""Offsets as Spark keeps them, and what is refused."""

import json

import pytest

from penstock import DataError, TopicReplaced
from tests.kit.slices import decode, encode

IDS = {"orders": 2**62 - 1, "payments": 7}
POSITIONS = {("orders", 10): 5, ("orders", 2): 2**62, ("payments", 0): 0}


def test_positions_survive_json():
    assert decode(json.loads(json.dumps(encode(POSITIONS, "s1", IDS))), "s1", IDS) == POSITIONS


def test_equal_positions_are_equal_text():
    backwards = dict(reversed(POSITIONS.items()))
    assert json.dumps(encode(backwards, "s1", dict(reversed(IDS.items())))) == json.dumps(
        encode(POSITIONS, "s1", IDS)
    )


@pytest.mark.parametrize(
    ("store", "ids", "told"),
    [
        ("s2", IDS, "the checkpoint is of store s1, this one is s2"),
        ("s1", {**IDS, "orders": 8}, "'orders' was dropped and created again"),
        ("s1", {"orders": IDS["orders"]}, "is of topic 'payments', the query reads others: orders"),
    ],
)
def test_offsets_of_something_else_are_refused(store, ids, told):
    with pytest.raises(TopicReplaced, match=f"{told}.*new checkpointLocation"):
        decode(encode(POSITIONS, "s1", IDS), store, ids)


@pytest.mark.parametrize("kept", [{}, {"orders": {"0": 5}}, None, [1], {"store": "s1", "topics": {"a": 1}}])
def test_offsets_of_another_source_are_refused(kept):
    with pytest.raises(DataError, match="no offsets of Penstock"):
        decode(kept, "s1", IDS)
