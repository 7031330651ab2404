"""A stream in a Tarantool of its own, started on loopback for as long as it is needed."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import penstock
from benchmarks.peers.program import Missing, find_program

_START_S = 60
_USER = "penstock"
#: A password for nobody else: the instance lives for a few seconds, on loopback.
_PASSWORD = "benchmark"
_INIT = """
box.cfg{{wal_mode = 'write', checkpoint_interval = 0, feedback_enabled = false}}
box.schema.user.create('{user}', {{password = '{password}'}})
box.schema.user.grant('{user}', 'super')
box.cfg{{listen = '127.0.0.1:{port}'}}
"""


@contextmanager
def tarantool_stream(store: penstock.Store, folder: Path) -> Iterator[penstock.Stream]:
    """The stream; raises `Missing` where the program or the engine is not there."""
    program = find_program("tarantool")
    engine = getattr(penstock, "Tarantool", None)
    if engine is None:
        raise Missing("this version has no engine for it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "init.lua").write_text(_INIT.format(user=_USER, password=_PASSWORD, port=port))
    with open(folder / "log", "wb") as log:
        running = subprocess.Popen([program, "init.lua"], cwd=folder, stdout=log, stderr=log)
    try:
        _wait_for(port)
        with engine("127.0.0.1", port, user=_USER, password=_PASSWORD) as place:
            place.install()
            yield store.stream("in-tarantool", engine=place)
    finally:
        running.kill()
        running.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise Missing(f"Tarantool did not answer within {_START_S} s")
