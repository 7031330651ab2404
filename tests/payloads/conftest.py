import os

import pytest

from tests.s3 import s3_server


@pytest.fixture(scope="session")
def s3():
    """A server, with what it takes to get in put into the environment: as users do it."""
    with s3_server() as server:
        before = {name: os.environ.get(name) for name in server.options}
        os.environ.update(server.options)
        try:
            yield server
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture(params=["files", "s3"])
def place(request, tmp_path):
    """A place for bodies that nobody has used."""
    if request.param == "files":
        return str(tmp_path / "bodies")
    return request.getfixturevalue("s3").table("bodies")
