"""Whom a connection deals with: its server, whoever it streams for, and the answers it owes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import PenstockError
from penstock.serve.replies import Request, error_body, error_headers, status_of
from penstock.serve.wheel import Wheel

if TYPE_CHECKING:
    from penstock.serve.http import Connection


class Stream(Protocol):
    """Whom a connection belongs to while it streams, or while its answer is awaited."""

    def received(self, data: bytes) -> None:
        """The client sent something."""

    def drained(self) -> None:
        """What was written has gone out; there is room again."""

    def on_time(self, now: int) -> int:
        """Called in the second that was asked for; returns the next one."""

    def lost(self) -> None:
        """The connection has ended."""

    def ended(self, error: PenstockError) -> None:
        """Something went wrong: say so in a way that fits, and end."""

    def let_go(self) -> None:
        """The server ends: say goodbye."""


class Host(Protocol):
    """What a connection needs of its server."""

    wheel: Wheel
    #: In whole seconds that never step back.
    now: int
    is_ending: bool

    def answer(self, connection: Connection, request: Request) -> None: ...
    def opened(self, connection: Connection) -> bool: ...
    def closed(self, connection: Connection) -> None: ...


class Owed:
    """The answer to a request that others may overtake; it goes out when all before it have."""

    __slots__ = ("answer", "connection", "extra_headers", "keep_alive")

    def __init__(self, connection: Connection, extra_headers: bytes, keep_alive: bool) -> None:
        self.connection = connection
        self.extra_headers = extra_headers
        self.keep_alive = keep_alive
        #: Status, body and headers, once they are known.
        self.answer: tuple[int, bytes, bytes] | None = None

    def reply(self, status: int, body: bytes, headers: bytes = b"") -> None:
        """Say what is answered; `Connection.settle` sends it."""
        self.answer = status, body, self.extra_headers + headers

    def refuse(self, error: PenstockError) -> None:
        self.reply(status_of(error), error_body(error), error_headers(error))
