"""A real Tarantool on this machine, for tests: Debian's package, on loopback, in a folder of its own.

@pytest.fixture(scope="session")
def tarantool():
    with tarantool_server() as server:
        yield server

server.kill(), server.start()  →  kill -9, and up again with what its WAL has, on the same port
"""

import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.patience import PATIENCE_S
from tests.require import require

USER, PASSWORD = "penstock", "penstock-secret"
_START_S = 300

#: What the instance runs: nothing of ours, so that what tests install must come back by itself.
_INIT = """
box.cfg{{wal_mode = '{wal_mode}', memtx_memory = 64 * 1024 * 1024, checkpoint_interval = 0,
        feedback_enabled = false}}
box.schema.user.create('{user}', {{password = '{password}', if_not_exists = true}})
box.schema.user.grant('{user}', 'super', nil, nil, {{if_not_exists = true}})
box.schema.user.create('app', {{password = 'app-secret', if_not_exists = true}})
box.cfg{{listen = '127.0.0.1:{port}'}}
"""


class TarantoolServer:
    """An instance that can be killed and started again; `user` may do everything, "app" nothing."""

    def __init__(self, folder: Path, wal_mode: str = "write") -> None:
        self.folder = folder
        self.host, self.port = "127.0.0.1", _free_port()
        self.user, self.password = USER, PASSWORD
        self._program = folder / "init.lua"
        self._program.write_text(
            _INIT.format(port=self.port, wal_mode=wal_mode, user=USER, password=PASSWORD)
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                ["tarantool", str(self._program)],
                stdout=log, stderr=log, cwd=self.folder, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while True:
            try:
                self.call("box.info")
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "log").read_text()[-2000:]) from None
                time.sleep(0.05)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Have it stand still: it keeps its port and answers nobody."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def eval(self, lua: str, *arguments: Any) -> list[Any]:
        """What a piece of Lua returns, by a connection made for it: nothing of ours lies between."""
        return self._ask("eval", lua, arguments)

    def call(self, function: str, *arguments: Any, user: str = USER, password: str = PASSWORD) -> list[Any]:
        """What a function returns, called by its name, as any language does it."""
        return self._ask("call", function, arguments, user, password)

    def _ask(self, kind: str, what: str, arguments: Any, user: str = USER, password: str = PASSWORD) -> Any:
        import asyncio

        import asynctnt

        async def asked() -> Any:
            connection = asynctnt.Connection(
                host=self.host, port=self.port, username=user, password=password, fetch_schema=False,
                auto_refetch_schema=False, reconnect_timeout=0, connect_timeout=5, request_timeout=PATIENCE_S,
            )  # fmt: skip
            async with connection:
                return list((await getattr(connection, kind)(what, list(arguments))).body)

        return asyncio.run(asked())


@contextmanager
def tarantool_server(wal_mode: str = "write") -> Iterator[TarantoolServer]:
    """Start an instance, and end it at the end."""
    require("tarantool")
    with tempfile.TemporaryDirectory(prefix="penstock-tarantool-") as folder:
        server = TarantoolServer(Path(folder), wal_mode)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
