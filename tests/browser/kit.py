"""A network that can be cut, and what tests ask of a page."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.kit.patience import PATIENCE_S

PAGES = Path(__file__).parent / "pages"
#: By these a request is known, in whatever connection it comes.
_MARKS = {"websocket": b"upgrade: websocket", "sse": b"accept: text/event-stream"}
#: A page that was cut off rests for up to half a minute before it tries again, and may have to try twice.
PATIENCE_MS = round(1000 * PATIENCE_S)


class Network:
    """Between browsers and a server: it can be cut, go silent, and let some kinds of requests not pass."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._is_cut = self._is_silent = self._is_deaf = False
        self.blocked: set[str] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """End all connections; new ones end at once."""
        self._is_cut = True
        self._end_all()

    def silence(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self._is_silent = True

    def drop_requests(self) -> None:
        """What browsers say is lost; they still hear the server."""
        self._is_deaf = True

    def mend(self) -> None:
        self._is_cut = self._is_silent = self._is_deaf = False

    def close(self) -> None:
        self._is_cut = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        self._end_all()

    def _end_all(self) -> None:
        for pair in self._pairs:
            _end(*pair)
        self._pairs = []

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._is_cut:
                    raise ConnectionError
                server = socket.create_connection(("127.0.0.1", self._target), timeout=10)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            self._pairs.append((client, server))
            if self._is_cut:  # meanwhile, when this pair was not listed yet
                _end(client, server)
                continue
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._carry, args=(*pair, pair[0] is client), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket, is_client: bool) -> None:
        was_silent = False
        with suppress(OSError):
            while data := one.recv(65536):
                was_silent |= self._is_silent or (self._is_deaf and is_client)
                if was_silent:
                    continue  # for good: what is lost in between cannot be made up for
                lowered = data.lower()
                if is_client and any(_MARKS[name] in lowered for name in self.blocked):
                    break
                other.sendall(data)
        _end(one, other)


def _end(*pair: socket.socket) -> None:
    for each in pair:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


class Tab:
    """A page of `pages/index.html`, as a test sees it."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        page.goto(f"{url}/")
        page.wait_for_function("() => window.listen")

    def listen(self, keys: list[Any], options: dict[str, Any] | None = None, **settings: Any) -> Tab:
        """Subscribe, and wait until it is live."""
        self.page.evaluate("([k, o, s]) => { listen(k, o, s) }", [keys, options or {}, settings])
        self.until("live.state === 'live'")
        return self

    def until(self, condition: str, argument: Any = None) -> None:
        self.page.wait_for_function(f"(given) => {condition}", arg=argument, timeout=PATIENCE_MS)

    def until_data(self, expected: list[Any]) -> None:
        """These, in this order, each once."""
        self.until("heard.length >= given", len(expected))
        assert self.data() == expected

    def data(self) -> list[Any]:
        return self.page.evaluate("() => heard.map((event) => event.data)")

    def run(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(f"async (given) => {script}", argument)
