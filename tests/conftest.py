"""What every test gets: markers by folder, one profile for hypothesis, and no process of another test."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import penstock
from penstock.testing import Clock
from tests.kit import processes

SPARK_TESTS = Path(__file__).parent / "spark"
#: Spark gives a Python process ten seconds to start, which no setting changes. Beside many other programs
#: that may not be enough, and says nothing about us: such a test is run again, from its beginning.
SPARKS_OWN_LIMIT = "Python worker failed to connect back"

# No deadline: on a busy machine with two cores it fails tests that are not wrong.
# The blob lets a failure from CI be replayed with @reproduce_failure.
hypothesis.settings.register_profile("penstock", deadline=None, print_blob=True)
hypothesis.settings.load_profile("penstock")


def pytest_configure() -> None:
    processes.heed_ctrl_c()


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test() -> Iterator[None]:
    yield
    processes.end_all()


@pytest.fixture
def clock() -> Clock:
    """A clock that the test moves by hand."""
    return Clock()


@pytest.fixture
def clocked_store(tmp_path: Path, clock: Clock) -> Iterator[penstock.Store]:
    """A store by that clock."""
    with penstock.open(tmp_path / "data", clock=clock) as opened:
        yield opened


@pytest.fixture
def store(clocked_store: penstock.Store) -> penstock.Store:
    """The store of a test, unless its folder or file has another one."""
    return clocked_store


def pytest_report_header() -> str:
    return f"PENSTOCK_REQUIRE: {os.environ.get('PENSTOCK_REQUIRE') or '(unset: missing parts skip)'}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of Spark come first, since they take longest."""
    for item in items:
        if item.path.is_relative_to(SPARK_TESTS):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.flaky(reruns=2, only_rerun=[SPARKS_OWN_LIMIT]))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers a file stays with one of them, and all of Spark's tests: they share a session."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith("tests/spark/") else nodeid.partition("::")[0]

    return ByFile(config, log)
