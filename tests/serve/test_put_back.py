"""Subscribers of a server whose store is put back from a copy and grows again (18.1)."""

import shutil

import pytest

from penstock.client.events import Events
from tests.serve.kit import Served


@pytest.mark.parametrize("transport", ["websocket", "longpoll"])
def test_a_client_hears_the_events_that_took_the_ids_it_knew(tmp_path, transport):
    folder, copy = tmp_path / "data", tmp_path / "copy"
    server = Served(folder)
    events = Events(server.url)
    try:
        events.push_many([("k", n) for n in range(3)])
        with events.subscribe("k", rewind=3, transport=transport, on_gap="skip") as heard:
            assert [heard.receive(30).data for _ in range(3)] == [0, 1, 2]
            server.end()
            shutil.copytree(folder, copy)
            server = again(server)
            events.push_many([("k", "old")] * 4)
            assert [heard.receive(30).data for _ in range(4)] == ["old"] * 4
            server.end()
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)
            server = again(server)
            events.push_many([("k", f"new {n}") for n in range(6)])
            assert [heard.receive(30).data for _ in range(6)] == [f"new {n}" for n in range(6)]
        assert [gap.reason for gap in heard.gaps] == ["ahead"]
    finally:
        server.close()


def again(server: Served) -> Served:
    server.close()
    return Served(server.folder, port=server.port)
