"""A store that was put back to an earlier state is noticed, not read as if nothing had happened (18.1)."""

import json
import shutil
from pathlib import Path

import pytest

import penstock
from tests.kit.slices import StreamQuery, batches_module, parse


class Life:
    """A topic of one partition whose store is written to, backed up, put back; and a query over it."""

    def __init__(self, folder: Path, **topic) -> None:
        self.path, self._backup = folder / "data", folder / "backup"
        with penstock.open(self.path) as store:
            store.create_topic("orders", **topic)

    def write(self, count: int, size: int = 100, **how) -> None:
        with penstock.open(self.path) as store:
            store.topic("orders").write_many([b"x" * size] * count, **how)

    def vacuum(self, **options) -> None:
        with penstock.open(self.path) as store:
            if options:
                store.topic("orders").alter(**options)
            store.topic("orders").vacuum()

    def back_up(self) -> None:
        shutil.rmtree(self._backup, ignore_errors=True)
        shutil.copytree(self.path, self._backup)

    def restore(self) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(self._backup, self.path)

    def query(self, **options: str) -> StreamQuery:
        return StreamQuery(parse({"path": str(self.path), "topic": "orders", **options}))

    def run(self, kept: dict | None = None, **options: str) -> tuple[list[int], dict]:
        """One run of a stream to its end, in a process of its own so to speak: offsets read, and the end."""
        query = self.query(**options)
        try:
            start = query.initial() if kept is None else kept
            end = through_json(query.latest(start, None, None))
            return offsets(query, start, end), end
        finally:
            query.close()


def offsets(query: StreamQuery, start: dict, end: dict) -> list[int]:
    return [
        offset
        for planned in query.planned(start, end)
        for batch in batches_module.read(planned, {"offset": False})
        for offset in batch.column(0).to_pylist()
    ]


def through_json(offsets: dict) -> dict:
    return json.loads(json.dumps(offsets))


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


def test_a_store_that_was_put_back_and_grew_again_is_refused(life):
    life.write(60)
    life.back_up()
    life.write(40)
    read, end = life.run()
    assert len(read) == 100
    life.restore()
    life.write(100)
    with pytest.raises(penstock.HistoryChanged, match=r"'orders' partition 0.*offset 99.*another message"):
        life.run(end)


def test_a_store_that_was_put_back_and_is_shorter_is_refused(life):
    life.write(60)
    life.back_up()
    life.write(40)
    _, end = life.run()
    life.restore()
    with pytest.raises(penstock.HistoryChanged, match=r"stands at 100.*ends at 60") as raised:
        life.run(end)
    assert "failOnDataLoss" in str(raised.value)


def test_put_back_behind_the_position_is_no_loss(life):
    life.write(100)
    life.back_up()
    _, end = life.run()
    life.write(40)
    life.restore()
    life.write(7)
    assert life.run(end)[0] == list(range(100, 107))


def test_without_fail_on_data_loss_a_shorter_store_is_read_from_its_end(life):
    life.write(60)
    life.back_up()
    life.write(40)
    _, end = life.run()
    life.restore()
    read, end = life.run(end, failOnDataLoss="false")
    assert read == []
    life.write(5)
    assert life.run(end)[0] == [60, 61, 62, 63, 64]


def test_without_fail_on_data_loss_another_history_is_gone_on_with(life):
    life.write(60)
    life.back_up()
    life.write(40)
    _, end = life.run()
    life.restore()
    life.write(100)
    read, end = life.run(end, failOnDataLoss="false")
    assert read == list(range(100, 160))
    life.write(1)
    assert life.run(end)[0] == [160]


def test_a_batch_that_runs_again_does_not_lose_its_end(life):
    """Planned up to 100, killed, and put back to 60 before it ran again: what it planned is not there."""
    life.write(60)
    life.back_up()
    life.write(40)
    query = life.query()
    start = through_json(query.initial())
    end = through_json(query.latest(start, None, None))
    query.close()
    life.restore()
    query = life.query()
    with pytest.raises(penstock.HistoryChanged):
        query.planned(start, end)
    query.close()


@pytest.mark.parametrize("compress", [None, "zstd"])
def test_repacked_segments_are_the_same_history(tmp_path, compress):
    life = Life(tmp_path, segment_bytes="64KiB", compress=compress)
    for n in range(40):
        life.write(1, size=300, keys=[f"k{n}"])
    _, end = life.run()
    life.write(300, size=400)
    life.vacuum()
    assert life.run(end)[0] == list(range(40, 340))


def test_what_retention_took_cannot_be_compared_and_is_no_loss(tmp_path):
    life = Life(tmp_path, segment_bytes="16KiB")
    life.write(100)
    _, end = life.run()
    for _ in range(10):
        life.write(100)
    life.vacuum(max_bytes="20KiB")
    with pytest.raises(penstock.OffsetTrimmed):
        life.run(end)


def test_a_checkpoint_without_fingerprints_is_read_as_before(life):
    life.write(10)
    _, end = life.run()
    del end["topics"]["orders"]["last"]
    life.write(5)
    read, end = life.run(end)
    assert read == [10, 11, 12, 13, 14]
    assert end["topics"]["orders"]["last"]


def test_the_offset_of_a_run_without_news_is_the_same_text(life):
    life.write(10)
    _, end = life.run()
    _, again = life.run(end)
    assert json.dumps(again) == json.dumps(end)


def test_a_query_that_begins_at_the_end_knows_what_lies_before_it(life):
    life.write(60)
    life.back_up()
    life.write(40)
    query = life.query(startingOffsets="latest")
    start = through_json(query.initial())
    query.close()
    life.restore()
    life.write(50)
    with pytest.raises(penstock.HistoryChanged):
        life.run(start)
