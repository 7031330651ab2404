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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(SPARK_TESTS):
            item.add_marker(pytest.mark.spark)
