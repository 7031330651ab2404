"""A scratch folder in memory where there is room: crash tests make thousands of small files."""

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture
def scratch() -> Iterator[str]:
    """An empty folder, in memory if possible; gone after the test."""
    room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="penstock-crash-", dir=room)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
