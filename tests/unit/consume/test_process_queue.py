"""The work list of `process`: how much is in hand, and which ranges are committed."""

import random
from itertools import pairwise
from types import SimpleNamespace

from penstock.consume.process_queue import Pace, runs_of


def test_much_handled_in_a_short_time_is_soon_in_hand_at_once():
    pace = Pace(workers=4)
    assert pace.most == 8
    pace.note(8, 0.001)
    assert pace.most == 16
    pace.note(1000, 0.02)  # with 16 in hand, again and again
    assert pace.most == 1000
    pace.note(1_000_000, 0.02)
    assert pace.most == 4096


def test_a_slow_handler_has_little_in_hand():
    pace = Pace(workers=4)
    pace.note(4000, 0.01)
    pace.note(100, 0.5)
    assert pace.most == 10
    pace.note(1, 100.0)
    assert pace.most == 8
    pace.note(3, 0.01)  # few came: nothing follows
    assert pace.most == 8


def test_runs_are_the_same_in_whatever_order_messages_were_done():
    for seed in range(200):
        chance = random.Random(seed)
        places = {
            (topic, partition, offset)
            for topic in ("audit", "orders")
            for partition in range(3)
            for offset in range(chance.randrange(9))
            if chance.random() < 0.7
        }
        done = [
            SimpleNamespace(topic=topic, partition=partition, offset=offset)
            for topic, partition, offset in chance.sample(sorted(places), len(places))
        ]
        runs = list(runs_of(done))
        covered = [(topic, part, at) for topic, part, first, stop in runs for at in range(first, stop)]
        assert covered == sorted(places)
        for before, behind in pairwise(runs):
            assert before[:2] != behind[:2] or before[3] < behind[2]  # else they were one
