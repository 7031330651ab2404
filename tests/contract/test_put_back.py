"""What keeps positions notices that a store, or one partition of it, was put back from a copy (18.1).

Positions of consumers lie in `state.db`. A backup holds it together with the log, so a restored consumer
stands where the restored log knows it; who puts back the folder of a partition alone pulls them apart.
"""

import shutil
from pathlib import Path

import pytest

import penstock
from tests.kit.cursors import id_of

PART = Path("topics", "orders", "parts")


class Life:
    """A store that is written to, copied and put back, each time by processes of their own, so to speak."""

    def __init__(self, folder: Path, **topic) -> None:
        self.path, self._copy = folder / "data", folder / "copy"
        with penstock.open(self.path) as store:
            store.create_topic("orders", **topic)

    def write(self, count: int, value: bytes = b"old") -> None:
        with penstock.open(self.path) as store:
            store.topic("orders").write_many([value] * count)

    def read(self, consumer: str | None = "c", **how) -> list[tuple[int, bytes]]:
        with (
            penstock.open(self.path) as store,
            store.topic("orders").reader(consumer=consumer, **how) as reader,
        ):
            found = []
            for message in reader:
                found.append((message.offset, message.value))
                if consumer is not None:
                    reader.commit(message)
            return found

    def copy(self, inside: Path = Path()) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.path / inside, self._copy)

    def put_back(self, inside: Path = Path()) -> None:
        shutil.rmtree(self.path / inside)
        shutil.copytree(self._copy, self.path / inside)


@pytest.fixture(params=["disk", "os"])
def life(tmp_path, request) -> Life:
    return Life(tmp_path, sync=request.param)


def partition_put_back(life: Life, **how) -> None:
    """100 messages read by a consumer, and a partition that ends at 60 again."""
    life.write(60)
    life.copy(PART)
    life.write(40)
    assert len(life.read(follow=False, **how)) == 100
    life.put_back(PART)


@pytest.mark.parametrize("kind", ["stream", "queue"])
@pytest.mark.parametrize("count", [5, 200])
def test_messages_written_after_a_partition_was_put_back_reach_those_who_were_further(life, kind, count):
    partition_put_back(life, kind=kind)
    life.write(count, b"new")
    assert life.read(follow=False, kind=kind) == [(100 + n, b"new") for n in range(count)]


def test_what_is_missing_of_a_partition_that_was_put_back_is_known_as_lost(life):
    partition_put_back(life)
    life.write(1, b"new")
    with pytest.raises(penstock.Corrupt) as raised:
        life.read(None, follow=False)
    assert (raised.value.first, raised.value.stop) == (60, 100)
    assert life.read(None, follow=False, on_gap="skip")[60:] == [(100, b"new")]


def test_a_store_that_was_put_back_as_a_whole_has_its_consumers_where_they_were(life):
    life.write(60)
    assert len(life.read(follow=False)) == 60
    life.copy()
    life.write(40)
    assert len(life.read(follow=False)) == 40
    life.put_back()
    life.write(100, b"new")
    assert life.read(follow=False) == [(60 + n, b"new") for n in range(100)]


class Listening:
    """A subscriber of events that was cut off, and a store that is put back meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.path, self._copy = folder / "data", folder / "copy"
        self.push(60)
        shutil.copytree(self.path, self._copy)
        self.push(40)
        with penstock.open(self.path) as store:
            self.cursor = store.events().subscribe(["k"]).next

    def push(self, count: int, data: str = "old") -> None:
        with penstock.open(self.path) as store:
            store.events().push_many([("k", data)] * count)

    def put_back(self) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(self._copy, self.path)

    def ask(self, cursor: str | None = None):
        with penstock.open(self.path) as store:
            return store.events().subscribe(["k"], cursor or self.cursor, timeout=0)


def told(answer) -> tuple[str, int | None, int | None]:
    return answer.gap.reason, answer.gap.first, answer.gap.stop


@pytest.mark.parametrize("count", [0, 5, 40, 100])
def test_a_subscriber_is_told_of_events_that_took_the_ids_it_knew(tmp_path, count):
    """Also when there are as many again: nothing is passed over, and nobody waits for ever."""
    listening = Listening(tmp_path)
    listening.put_back()
    if count:
        listening.push(count, "new")
    answer = listening.ask()
    assert (answer.events, told(answer)) == ([], ("ahead", 61, 101))
    heard = listening.ask(answer.next).events
    assert [(event.id, event.data) for event in heard] == [(61 + n, "new") for n in range(count)]


def test_a_subscriber_that_stood_before_the_copy_goes_on(tmp_path):
    listening = Listening(tmp_path)
    epoch, moment, _ = listening.cursor.split(".")
    listening.put_back()
    listening.push(3, "new")
    answer = listening.ask(f"{epoch}.{moment}.50")
    assert answer.gap is None
    assert [event.id for event in answer.events] == list(range(50, 64))


def test_a_cursor_of_an_earlier_version_is_compared_with_the_end(tmp_path):
    listening = Listening(tmp_path)
    listening.cursor = id_of(listening.cursor)
    assert listening.ask().gap is None
    listening.put_back()
    assert told(listening.ask()) == ("ahead", 61, 101)


def test_the_cursor_of_a_store_that_rests_is_the_same_text(tmp_path):
    listening = Listening(tmp_path)
    assert listening.ask().next == listening.cursor
