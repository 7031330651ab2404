"""An object store that fails, is slow, or goes away: writes are repeated or fail, nothing is half there."""

import os

import pytest

import penstock
from penstock import Payloads
from penstock.errors import Unavailable
from tests.kit.system import CommandClock
from tests.kit.topics import inside
from tests.payloads.kit import KIB, body, objects, referred, values
from tests.payloads.proxy import proxy

SMALL, LARGE = body(100 * KIB), body(20_000 * KIB)


@pytest.fixture
def between(s3):
    with proxy(s3.endpoint) as running:
        yield running


@pytest.fixture
def topic(tmp_path, s3, between):
    """What it sends goes through the proxy; the endpoint is an option that is kept."""
    options = {"endpoint": between.address, "region": "us-east-1"}
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        yield store.create_topic("images", payloads=Payloads(place=s3.table(), options=options))


def test_an_error_that_passes_is_not_noticed(topic, between):
    between.set(failing=2)
    topic.write(SMALL)
    assert between.refused == 2
    between.set(cutting=1, cut_after=50 * KIB)
    topic.write(SMALL)
    assert between.refused == 3
    between.set(failing=1)
    assert values(topic) == [SMALL, SMALL]
    assert between.refused == 4


def test_a_slow_server_only_takes_its_time(topic, between):
    between.set(delay_s=0.2)
    topic.write(SMALL)
    assert values(topic) == [SMALL]


@pytest.mark.parametrize("fault", ["failing", "cutting"])
def test_a_server_that_keeps_failing_fails_the_write(topic, between, fault):
    topic.write(SMALL)
    between.set(**{fault: 1000}, cut_after=50 * KIB)
    with pytest.raises(Unavailable) as told:
        topic.write(body(100 * KIB))
    assert told.value.hint
    assert told.value.retryable
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(told.value)
    between.set(**{fault: 0})
    assert values(topic) == [SMALL]
    assert set(objects(topic)) == referred(topic)
    topic.write(SMALL)
    assert values(topic) == [SMALL, SMALL]


def test_a_large_upload_that_is_cut_half_way_leaves_nothing(topic, between, tmp_path):
    path = tmp_path / "large"
    path.write_bytes(LARGE)
    between.set(cutting=1000, cut_after=9_000_000)  # the first part goes through, not the next
    with pytest.raises(Unavailable):
        _write_until_gone(topic, path, between)
    between.set(cutting=0, gone=False)
    assert values(topic) == []
    assert objects(topic) == []
    topic.write(path)
    assert values(topic) == [LARGE]


def test_a_buffered_writer_keeps_what_could_not_be_stored(topic, between):
    with topic.writer(linger="10s") as writer:
        for _ in range(3):
            writer.write(SMALL)
        between.set(gone=True)
        with pytest.raises(Unavailable):
            writer.flush()
        between.set(gone=False)
        writer.flush()
    assert values(topic) == [SMALL] * 3
    assert set(objects(topic)) == referred(topic)


def test_messages_go_while_their_bodies_wait_for_the_server(topic, between):
    topic.write_many([SMALL, LARGE])
    topic.alter(retention="0s")
    between.set(gone=True)
    report = topic.vacuum()
    assert (report.messages, report.bodies, report.bodies_left) == (2, 0, 2)
    assert values(topic) == []
    between.set(gone=False)
    assert len(objects(topic)) == 2
    report = topic.vacuum()
    assert (report.messages, report.bodies, report.bodies_left) == (0, 2, 0)
    assert objects(topic) == []


def test_a_topic_is_dropped_while_the_server_is_gone(topic, between, tmp_path):
    topic.write(SMALL)
    bodies = inside(topic).bodies._present()
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        between.set(gone=True)
        store.drop_topic("images")
        between.set(gone=False)
        assert len(list(bodies.list())) == 1
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:
        thread = store._dropped_bodies.resume(store._catalogue.is_gone)  # opening has begun it already
        if thread is not None:
            thread.join(60)
        assert list(bodies.list()) == []
    assert os.listdir(tmp_path / "data" / "payloads" / "dropped") == []


def test_reading_says_that_the_place_does_not_answer(topic, between):
    topic.write(SMALL)
    between.set(gone=True)
    message = topic.get(0)
    with pytest.raises(Unavailable):
        _ = message.value
    between.set(gone=False)
    assert message.value == SMALL


def _write_until_gone(topic, path, between):
    """The server dies in the middle of it."""

    class Killing:
        def __init__(self, file):
            self._file = file

        def read(self, size):
            if self._file.tell() > 12_000_000:
                between.set(gone=True)
            return self._file.read(size)

    with path.open("rb") as file:
        topic.write(Killing(file))
