"""Archives without Spark: its one job is done in this process, piece by piece, each sent as Spark would."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.spark.pipelines.archive import archive
from tests.kit.pipelines import executors_module as executors
from tests.lake.archived_topic import Kept, Made, make, opened


def spread_here(spark, function, work):
    """In place of `jobs.spread`."""
    sent = [pickle.loads(pickle.dumps((function, piece))) for piece in work]
    return [pickle.loads(pickle.dumps(executors._attempted(function, piece))) for function, piece in sent]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[penstock.Store]:
    with penstock.open(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "orders"


@pytest.fixture
def run(store: penstock.Store, table: Path, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """Archive the topic `orders` into the table: `run(on_gap="skip")`."""
    monkeypatch.setattr(executors, "spread", spread_here)

    def run(topic: str = "orders", into: str | Path = table, **options):
        return archive(store.path, topic, into, spark=object(), **options)

    return run


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("past"))


@pytest.fixture
def past(made: Made, tmp_path: Path) -> Iterator[Kept]:
    """A small topic whose archives are there for every position."""
    with opened(made, tmp_path) as kept:
        yield kept
