"""One server for the tests that do not end it; keys are their own."""

import pytest

from tests.require import require
from tests.serve.kit import Mounted, Polling, Sse, Ws, served


@pytest.fixture(scope="session", autouse=True)
def _server_extra():
    require("server")


@pytest.fixture(scope="session")
def port(tmp_path_factory):
    """The public port."""
    with served(tmp_path_factory.mktemp("serve") / "data", "--workers", "1") as server:
        yield server


@pytest.fixture(scope="session")
def mounted(tmp_path_factory):
    """Live events mounted in an app of one's own."""
    require("asgi")
    with served(tmp_path_factory.mktemp("mounted") / "data", kind=Mounted) as server:
        yield server


@pytest.fixture(params=["port", "mounted"])
def server(request):
    """A server of its own, and the same mounted in an app: both speak one protocol."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=[Polling, Sse, Ws], ids=["longpoll", "sse", "websocket"])
def listening(request):
    """A way to listen; what it opens is closed."""
    opened = []

    def listen(*args, **options):
        opened.append(request.param(*args, **options))
        return opened[-1]

    yield listen
    for each in opened:
        each.close()


@pytest.fixture
def key(request):
    """A key that no other test uses."""
    return request.node.name
