"""What every test gets: markers by folder, and one profile for hypothesis."""

import os
from pathlib import Path

import hypothesis
import pytest

SPARK_TESTS = Path(__file__).parent / "spark"

# No deadline: on a busy machine with two cores it fails tests that are not wrong.
# The blob lets a failure from CI be replayed with @reproduce_failure.
hypothesis.settings.register_profile("penstock", deadline=None, print_blob=True)
hypothesis.settings.load_profile("penstock")


def pytest_report_header() -> str:
    return f"PENSTOCK_REQUIRE: {os.environ.get('PENSTOCK_REQUIRE') or '(unset: missing parts skip)'}"


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers a file stays with one of them, and all of Spark's tests: they share a session.

    Those come first, since they take longest.
    """
    for item in items:
        is_spark = item.path.is_relative_to(SPARK_TESTS)
        if is_spark:
            item.add_marker(pytest.mark.spark)
        item.add_marker(pytest.mark.xdist_group("spark" if is_spark else str(item.path)))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
