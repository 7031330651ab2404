import pytest

from tests.s3 import s3_server


@pytest.fixture(scope="session")
def server():
    with s3_server() as running:
        yield running


@pytest.fixture
def s3(server, monkeypatch):
    """A server, with what it takes to get in put into the environment: as users do it."""
    for name, value in server.options.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture(params=["files", "s3"])
def place(request, tmp_path):
    """A place for bodies that nobody has used."""
    if request.param == "files":
        return str(tmp_path / "bodies")
    return request.getfixturevalue("s3").table("bodies")
