"""How many files of the package one call passes: docs/ARCHITECTURE.md says so, and it may only shrink.

A reader who follows a call has to open these. What happens when something is wrong is not counted.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

import penstock
from tests.kit.source import ROOT

#: Files that a call may pass when everything is fine; docs/ARCHITECTURE.md has the same numbers.
MOST = {"os": 14, "disk": 15, "receive": 16, "retry": 17, "queue": 14, "push": 14, "publish": 15}
#: How deep one write may go.
DEPTH_MOST = 9
PACKAGE = os.path.dirname(penstock.__file__) + os.sep


class Walk(NamedTuple):
    """The files that a call passed, and how deep it went."""

    files: set[str]
    depth: int

    def below(self, folder: str) -> int:
        """How many files lie outside the folder of the product that was called."""
        return sum(not file.startswith(folder) for file in self.files)


def walk(call: Callable[[], object]) -> Walk:
    files: set[str] = set()
    depth = deepest = 0

    def note(frame, event, _):
        nonlocal depth, deepest
        if frame.f_code.co_filename.startswith(PACKAGE):
            if event == "call":
                files.add(frame.f_code.co_filename.removeprefix(PACKAGE))
                depth += 1
                deepest = max(deepest, depth)
            elif event == "return":
                depth -= 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return Walk(files, deepest)


@pytest.fixture
def store(tmp_path) -> Iterator[penstock.Store]:
    with penstock.open(tmp_path / "data") as opened:
        yield opened


def test_the_documentation_has_these_counts():
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    counts = (
        f'`topic.write` {MOST["os"]} ({MOST["disk"]} with `sync="disk"`), `receive` {MOST["receive"]}, '
        f"`retry` {MOST['retry']}, a queue's receive and commit {MOST['queue']}; below their own folders, "
        f"a push {MOST['push']} and a publish {MOST['publish']}."
    )
    assert counts in " ".join(text.split())


@pytest.mark.parametrize("sync", ["os", "disk"])
def test_a_write(store, sync):
    topic = store.create_topic("orders", sync=sync)
    topic.write(b"paid", key="customer-7", headers={"source": "shop"})
    found = walk(lambda: topic.write(b"paid", key="customer-7", headers={"source": "shop"}))
    assert len(found.files) <= MOST[sync], sorted(found.files)
    assert found.depth <= DEPTH_MOST


def test_a_receive_and_a_retry(store):
    topic = store.create_topic("orders")
    for _ in range(3):
        topic.write(b"paid", key="customer-7")
    with topic.reader(consumer="billing", retry=penstock.Retry(delays=("1h",))) as reader:
        messages = [reader.receive(timeout=10) for _ in range(3)]
        assert reader.receive(timeout=0) is None
        reader.retry(messages[0])
        assert len(walk(lambda: reader.retry(messages[1])).files) <= MOST["retry"]

        def received():
            topic.write(b"paid", key="customer-7")
            return walk(lambda: reader.receive(timeout=10))

        # Once a second the reader looks after its leases, too: on a busy machine that may be just now.
        assert min(len(received().files) for _ in range(3)) <= MOST["receive"]


def test_a_message_of_a_queue(store):
    topic = store.create_topic("orders")
    topic.write_many([b"paid"] * 3)
    with topic.reader(consumer="billing", kind="queue") as reader:
        reader.commit(reader.receive(timeout=10))
        assert len(walk(lambda: reader.commit(reader.receive(timeout=10))).files) <= MOST["queue"]


def test_a_push_and_a_publish(store):
    events, stream = store.events(), store.stream("shop")
    events.push("news", 1)
    stream.publish("orders", b"paid")
    assert walk(lambda: events.push("news", 2)).below("events") <= MOST["push"]
    assert walk(lambda: stream.publish("orders", b"paid")).below("streams") <= MOST["publish"]
