"""What `penstock status` calls a problem, and what a warning."""

import pytest

import penstock
from penstock.log.records import POISONED
from penstock.store import health
from penstock.store.health import DiskSpace, complaints


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path) as opened:
        opened.create_topic("orders").write_many(["x"] * 10)
        yield opened


@pytest.mark.parametrize(("free", "severities"), [(1, ["problem"]), (5, ["warning"]), (50, [])])
def test_the_disk_is_judged_by_its_free_share(store, monkeypatch, free, severities):
    monkeypatch.setattr(health, "disk", lambda _: DiskSpace(free, 100))
    found = list(complaints(store))
    assert [each.severity for each in found] == severities
    assert all(f"{free}.0% of the disk is free" in each.what for each in found)


def test_a_disk_that_failed_to_sync_is_a_problem(store, monkeypatch):
    monkeypatch.setattr(health, "disk", lambda _: DiskSpace(50, 100))
    folder = store.topic("orders").open_topic.log(0).folder
    with folder.tail:
        folder.publish_durable(folder.read_durable()._replace(flags=POISONED))
    assert [each.severity for each in complaints(store)] == ["problem"]


def test_a_consumer_that_retention_overtook_is_a_warning(store, monkeypatch):
    monkeypatch.setattr(health, "disk", lambda _: DiskSpace(50, 100))
    topic = store.topic("orders")
    topic.add_consumer("slow")
    topic.alter(retention="0s")
    topic.vacuum()
    (found,) = complaints(store)
    assert found.severity == "warning"
    assert "consumer slow stands at 0, behind the start (10)" in found.what
