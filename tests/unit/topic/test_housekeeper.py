"""Work after an append, by a thread: what becomes of it when its topic goes meanwhile."""

import logging
import threading

import penstock
from tests.kit.patience import PATIENCE_S


class PausedAtIndex(penstock.Files):
    """Files whose first index waits until it is told to go on."""

    def __init__(self):
        self.reached, self.may_go_on = threading.Event(), threading.Event()

    def rename(self, source, target):
        if target.endswith(".index"):
            self.reached.set()
            assert self.may_go_on.wait(PATIENCE_S)
        super().rename(source, target)


def test_a_topic_that_is_dropped_meanwhile_is_no_failure(tmp_path, caplog):
    files = PausedAtIndex()
    with penstock.open(tmp_path, files=files) as store, caplog.at_level(logging.WARNING, "penstock"):
        topic = store.create_topic("orders", segment_bytes="4KiB", sync="os")
        for _ in range(10):
            topic.write(bytes(1000))
        assert files.reached.wait(PATIENCE_S)
        store.drop_topic("orders")
        files.may_go_on.set()
        assert store.flush_housekeeping()
    assert not caplog.records


def test_what_fails_otherwise_is_told(tmp_path, caplog):
    class NoIndex(penstock.Files):
        def rename(self, source, target):
            if target.endswith(".index"):
                raise OSError(5, "the disk failed")
            super().rename(source, target)

    with penstock.open(tmp_path, files=NoIndex()) as store, caplog.at_level(logging.WARNING, "penstock"):
        topic = store.create_topic("orders", segment_bytes="4KiB", sync="os")
        for _ in range(10):
            topic.write(bytes(1000))
        assert store.flush_housekeeping()
    assert "housekeeping of orders/0 failed" in caplog.text
