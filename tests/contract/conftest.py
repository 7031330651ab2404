"""What the contract tests share: an interface to use (blocking or async), and a fresh store behind it."""

import pytest

from penstock.testing import Clock
from tests.contract.interfaces import AsyncInterface, BlockingInterface
from tests.contract.streams import is_slow, stream, streams

__all__ = ["stream", "streams"]


@pytest.fixture(scope="session", params=[BlockingInterface, AsyncInterface], ids=lambda kind: kind.name)
def interface(request):
    """A way to use a store; every test runs once with each."""
    interface = request.param()
    yield interface
    interface.close()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def open_store(interface, tmp_path):
    """Opens the test's store, as often as the test likes; closes what is left open."""
    opened = []

    def open_store(path=None, **options):
        store = interface.open(tmp_path / "store" if path is None else path, **options)
        opened.append(store)
        return store

    yield open_store
    for store in reversed(opened):
        store.close()


@pytest.fixture
def store(open_store, clock):
    """A fresh store whose clock the test moves."""
    return open_store(clock=clock)


def pytest_collection_modifyitems(items):
    for item in items:
        if hasattr(item, "callspec") and is_slow(item.callspec.params):
            item.add_marker(pytest.mark.slow)
