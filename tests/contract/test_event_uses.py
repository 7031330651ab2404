"""What live events are for: a chat, and the progress of long jobs."""

import subprocess
import sys

import pytest

import penstock
from tests.kit.patience import PATIENCE_S

WORKER = """
import sys, penstock
with penstock.open(sys.argv[1]) as store:
    events = store.events()
    with store.topic("jobs").reader(consumer="workers", follow=False) as reader:
        for job in reader:
            for percent in (0, 50, 100):
                events.push(["job", job.offset], {"percent": percent})
            reader.commit(job)
"""


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path / "data") as opened:
        yield opened


def heard(events, keys, cursor, count):
    """So many events of these keys, in order."""
    found = []
    while len(found) < count:
        answer = events.subscribe(keys, cursor, timeout=30)
        assert answer.gap is None
        cursor = answer.next
        found += answer.events
    return [(event.key, event.data) for event in found]


def test_a_chat_tells_each_circle_what_is_for_it(store):
    """S002-18, S002-38: a key for each circle of receivers; one subscription for all that a page shows."""
    events = store.events()
    cursor = events.subscribe("x").next
    events.push_many(
        [
            (["chat", 345], {"message": 1}),
            (["chat", 12], {"message": 2}),
            (["user", 7], {"unread": 1}),
            (["chat", 345], {"message": 3}),
        ]
    )
    ann = heard(events, [["chat", 345], ["user", 7]], cursor, 3)
    bob = heard(events, [["chat", 12], ["chat", 345], ["user", 8]], cursor, 3)
    assert ann == [
        (["chat", 345], {"message": 1}),
        (["user", 7], {"unread": 1}),
        (["chat", 345], {"message": 3}),
    ]
    assert bob == [
        (["chat", 345], {"message": 1}),
        (["chat", 12], {"message": 2}),
        (["chat", 345], {"message": 3}),
    ]


def test_a_page_sees_the_progress_of_the_job_it_asked_for(store):
    """S002-39: the queue is a topic, its workers push under the number of the task; a page may come late."""
    events, jobs = store.events(), store.create_topic("jobs")
    events_topic = store.topic("events")
    events_topic.alter(key_retention={("job", "*"): "10m"})
    mine, other = jobs.write(b"report").offset, jobs.write(b"video").offset
    cursor = events.subscribe([["job", mine]]).next
    worker = subprocess.run(
        [sys.executable, "-c", WORKER, store.path],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert worker.returncode == 0, worker.stderr
    assert [data["percent"] for _, data in heard(events, [["job", mine]], cursor, 3)] == [0, 50, 100]
    late = events.subscribe([["job", other]], rewind=1)
    assert [event.data for event in late.events] == [{"percent": 100}]
