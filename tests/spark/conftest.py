"""One Spark session for all tests of this folder, and topics to read with it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.spark import session
from tests.kit.spark_settings import SETTINGS
from tests.require import absent, require


@pytest.fixture(scope="session")
def spark():
    require("spark")
    try:
        running = session("local[2,2]", **SETTINGS)
    except penstock.MissingExtra as error:
        absent("java", str(error))
    yield running
    running.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[penstock.Store]:
    with penstock.open(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def load(spark, store: penstock.Store) -> Callable:
    """Load a topic: `load("orders", startingOffsets="latest")`."""

    def load(topic: str, *, schema: str | None = None, **options: str):
        reader = spark.read.format("penstock").option("topic", topic).options(**options)
        return (reader.schema(schema) if schema else reader).load(store.path)

    return load
