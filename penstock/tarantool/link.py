"""The connection to a Tarantool: one for a process, whose threads' calls share it and overlap.

It is made at the first call and again whenever it broke, with growing pauses. A call that only reads is made
again by itself; one that writes is not, once it was sent: nobody knows whether it was done.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import Closed, InvalidOption, MissingExtra, Unavailable
from penstock.tarantool.refusals import is_worth_waiting, refusal

if TYPE_CHECKING:
    from asynctnt import Connection

logger = logging.getLogger("penstock.tarantool")
# What it would say is said by our errors.
logging.getLogger("asynctnt").addHandler(logging.NullHandler())

T = TypeVar("T")

_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.02, 1.0
#: One attempt to connect: an instance that died between accepting and greeting is noticed no sooner.
_ATTEMPT_S = 2.0
#: More than this is not sent before something was answered: an instance takes 768 by itself.
_AT_ONCE = 512


class Link:
    """A connection, made when it is needed, and the thread in which it lives."""

    def __init__(
        self, host: str, port: int, user: str | None, password: str | None, timeout_s: float
    ) -> None:
        self.address = f"{host}:{port}"
        self.timeout_s = timeout_s
        self._where = {"host": host, "port": port, "username": user, "password": password}
        self._mutex = threading.Lock()
        self._closed = False
        # Of this process; a child of a fork makes its own.
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._attempt: asyncio.Future[Connection] | None = None
        self._room: asyncio.Semaphore

    def call(self, function: str, *arguments: Any, again: bool = True, waits_s: float = 0.0) -> Any:
        """The first thing that a function returns; `again` says that it may be called twice."""
        return self.run(self.called(function, arguments, again=again, waits_s=waits_s))

    def eval(self, lua: str, *arguments: Any) -> Any:
        """The first thing that a piece of Lua returns, which may be run twice."""
        return self.run(self._asked("eval", lua, arguments, again=True, waits_s=0.0))

    async def called(
        self, function: str, arguments: tuple[Any, ...], *, again: bool = True, waits_s: float = 0.0
    ) -> Any:
        """`call`, for those who are in the link's own thread."""
        return await self._asked("call", function, arguments, again=again, waits_s=waits_s)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have something done in the link's thread, and wait for it."""
        try:
            loop = self._running()
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except CancelledError:
            raise self._is_closed() from None
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done in the link's thread until it ends or the link is closed."""
        asyncio.run_coroutine_threadsafe(work, self._running())

    def close(self) -> None:
        """End the connection; calls under way fail."""
        with self._mutex:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is not None and self._pid == os.getpid():
            asyncio.run_coroutine_threadsafe(self._end(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            assert self._thread is not None
            self._thread.join()
            loop.close()

    # In its own thread.

    async def _asked(
        self, kind: str, what: str, arguments: tuple[Any, ...], *, again: bool, waits_s: float
    ) -> Any:
        from asynctnt.exceptions import TarantoolDatabaseError, TarantoolNetworkError

        deadline = self._now() + self.timeout_s
        async with self._room:
            while True:
                connection = await self._connected()
                try:
                    ask = getattr(connection, kind)
                    answer = await ask(what, arguments, timeout=self.timeout_s + waits_s)
                    return answer.body[0] if answer.body else None
                except TarantoolDatabaseError as error:
                    if not is_worth_waiting(error.code) or self._now() > deadline:
                        raise refusal(error.code, error.message, self.address) from None
                    await asyncio.sleep(_PAUSE_FIRST_S)
                except UnicodeEncodeError:
                    raise InvalidOption("a text holds a lone surrogate: UTF-8 cannot have it") from None
                except TimeoutError:
                    raise self._unanswered("did not answer in time", again) from None
                except (OSError, TarantoolNetworkError) as error:
                    if not again or self._now() > deadline:
                        raise self._unanswered("went away", again) from error

    async def _connected(self) -> Connection:
        """The connection. All who need it while there is none wait for one attempt."""
        if self._connection is not None and self._connection.is_connected:
            return self._connection
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.ensure_future(self._connect())
        return await asyncio.shield(self._attempt)

    async def _connect(self) -> Connection:
        from asynctnt import Connection
        from asynctnt.exceptions import TarantoolDatabaseError, TarantoolNetworkError

        deadline, pause = self._now() + self.timeout_s, _PAUSE_FIRST_S
        while True:
            connection = Connection(
                **self._where, fetch_schema=False, auto_refetch_schema=False, reconnect_timeout=0,
                connect_timeout=min(self.timeout_s, _ATTEMPT_S), ping_timeout=0,
            )  # fmt: skip
            try:
                await connection.connect()
                self._connection = connection
                return connection
            except TarantoolDatabaseError as error:
                failure: Exception = refusal(error.code, error.message, self.address)
                if not is_worth_waiting(error.code):
                    raise failure from None
            except (OSError, TimeoutError, TarantoolNetworkError) as error:
                failure = Unavailable(
                    f"no Tarantool answers at {self.address}: {error or type(error).__name__}",
                    hint="see that it runs and listens there, and try again",
                )
            if self._now() + pause > deadline:
                raise failure
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MOST_S)

    def _unanswered(self, what: str, again: bool) -> Unavailable:
        doubt = "" if again else ": the call may have been done"
        return Unavailable(
            f"Tarantool {self.address} {what}{doubt}",
            hint="try again" if again else "look whether it was done before you try again",
        )

    async def _end(self) -> None:
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._connection is not None:
            await self._connection.disconnect()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # The thread.

    def _running(self) -> asyncio.AbstractEventLoop:
        """The loop of this process; a child of a fork gets one of its own."""
        with self._mutex:
            if self._closed:
                raise self._is_closed()
            if self._loop is None or self._pid != os.getpid():
                self._begin()
            assert self._loop is not None
            return self._loop

    def _is_closed(self) -> Closed:
        return Closed(f"the link to Tarantool {self.address} is closed", hint="open the stream again")

    def _begin(self) -> None:
        try:
            import asynctnt  # noqa: F401
        except ImportError:
            raise MissingExtra("asynctnt, which speaks to Tarantool,", "tarantool") from None
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._connection = self._attempt = None
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-tarantool", daemon=True)
        self._thread.start()
