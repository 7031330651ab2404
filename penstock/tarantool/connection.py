"""The connection to a Tarantool, which all threads of a process share, and its errors in our words.

It is made at the first call and again whenever it broke, with growing pauses. A call that only reads is made
again by itself; one that writes is not, once it was sent: nobody knows whether it was done.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from penstock.errors import (
    Closed,
    InvalidOption,
    MissingExtra,
    NotDurable,
    PenstockError,
    ReadOnly,
    Unavailable,
    UsageError,
)

if TYPE_CHECKING:
    from asynctnt import Connection


#: Errors that our Lua raises begin so.
_OWN = "penstock: "

_MEMORY, _READ_ONLY, _LUA, _NO_FUNCTION, _WAL, _DENIED = 2, 7, 32, 33, 40, 42
_NO_USER, _WRONG_PASSWORD, _LOADING = 45, 47, 116


def refusal(code: int, message: str, address: str) -> PenstockError:
    """The error of ours for one that the Tarantool at `address` answered with."""
    if code == _LUA and message.startswith(_OWN):
        return InvalidOption(message.removeprefix(_OWN))
    if code == _MEMORY:
        return Unavailable(
            f"Tarantool {address} has no memory left", hint="raise its memtx_memory, or delete"
        )
    if code == _READ_ONLY:
        return ReadOnly(f"Tarantool {address} is read-only", hint="name its master")
    if code == _WAL:
        return NotDurable(f"Tarantool {address} could not write its WAL: nothing of the call was stored")
    if code == _LOADING:
        return Unavailable(f"Tarantool {address} is still loading", hint="try again in a moment")
    if code in (_NO_USER, _WRONG_PASSWORD):
        return UsageError(f"Tarantool {address} does not know that user or password", hint=message)
    if code in (_NO_FUNCTION, _DENIED):
        return UsageError(
            f"Tarantool {address} refuses the call: {message}",
            hint=f"penstock stream engine install --tarantool {address} makes the functions; "
            "--allow USER lets a user call them",
        )
    return PenstockError(f"Tarantool {address} answered: {message}", hint="its log may say more")


def is_worth_waiting(code: int) -> bool:
    """Whether the same call may succeed in a moment."""
    return code == _LOADING


logger = logging.getLogger("penstock.tarantool")
# What it would say is said by our errors.
logging.getLogger("asynctnt").addHandler(logging.NullHandler())

_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.02, 1.0
#: One attempt to connect: an instance that died between accepting and greeting is noticed no sooner.
_ATTEMPT_S = 2.0


class TarantoolRequest(NamedTuple):
    """What is asked of Tarantool."""

    #: "call" or "eval".
    kind: str
    what: str
    arguments: tuple[Any, ...]
    #: It may be asked twice.
    again: bool = True
    #: So long the answer may take by itself.
    waits_s: float = 0.0


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

    def call(self, function: str, *arguments: Any, again: bool = True) -> Any:
        """The first thing that a function returns; `again` says that it may be called twice."""
        return self._wait_for(TarantoolRequest("call", function, arguments, again))

    def eval(self, lua: str, *arguments: Any) -> Any:
        """The first thing that a piece of Lua returns, which may be run twice."""
        return self._wait_for(TarantoolRequest("eval", lua, arguments))

    async def called(self, function: str, *arguments: Any, waits_s: float = 0.0) -> Any:
        """`call`, for those who are in the link's own thread; the function itself waits so long."""
        return await self._answer(TarantoolRequest("call", function, arguments, waits_s=waits_s))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done in the link's thread until it ends or the link is closed."""
        with self._mutex:
            asyncio.run_coroutine_threadsafe(work, self._running())

    def _wait_for(self, question: TarantoolRequest) -> Any:
        waiting = Future[Any]()
        with self._mutex:  # so that nothing is asked behind the end
            self._running().call_soon_threadsafe(self._ask, question, waiting)
        try:
            return waiting.result()
        except CancelledError:
            raise self._is_closed() from None

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

    def _ask(self, question: TarantoolRequest, waiting: Future[Any]) -> None:
        """The short way, over a connection that works, makes no task; what goes wrong takes the long one."""
        try:
            if self._connection is None or not self._connection.is_connected:
                raise ConnectionError
            answer = self._sent(self._connection, question)
        except Exception:  # noqa: BLE001 - the long way says what it is
            self._begin_answer(question, waiting, None)
        else:
            answer.add_done_callback(lambda answer: self._answered(question, waiting, answer))

    def _answered(
        self, question: TarantoolRequest, waiting: Future[Any], answer: asyncio.Future[Any]
    ) -> None:
        if not answer.cancelled() and answer.exception() is None:
            body = answer.result().body
            waiting.set_result(body[0] if body else None)
        else:
            self._begin_answer(question, waiting, answer)

    def _begin_answer(
        self, question: TarantoolRequest, waiting: Future[Any], first: asyncio.Future[Any] | None
    ) -> None:
        def tell(task: asyncio.Task[Any]) -> None:
            if task.cancelled():
                waiting.cancel()
            elif (error := task.exception()) is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(task.result())

        asyncio.ensure_future(self._answer(question, first)).add_done_callback(tell)

    def _sent(self, connection: Connection, question: TarantoolRequest) -> asyncio.Future[Any]:
        """The answer to come."""
        ask = connection.call if question.kind == "call" else connection.eval
        return cast(
            "asyncio.Future[Any]",
            ask(question.what, question.arguments, timeout=self.timeout_s + question.waits_s),
        )

    async def _answer(self, question: TarantoolRequest, first: asyncio.Future[Any] | None = None) -> Any:
        """The answer, by as many attempts as the question allows; `first` is one that was sent already."""
        from asynctnt.exceptions import TarantoolDatabaseError, TarantoolNetworkError

        deadline = self._now() + self.timeout_s
        while True:
            sent, first = first, None
            try:
                answer = await (sent or self._sent(await self._connected(), question))
                return answer.body[0] if answer.body else None
            except TarantoolDatabaseError as error:
                if not is_worth_waiting(error.code) or self._now() > deadline:
                    raise refusal(error.code, error.message, self.address) from None
                await asyncio.sleep(_PAUSE_FIRST_S)
            except UnicodeEncodeError:
                raise InvalidOption("a text holds a lone surrogate: UTF-8 cannot have it") from None
            except TimeoutError:
                raise self._unanswered("did not answer in time", question.again) from None
            except (OSError, TarantoolNetworkError) as error:
                if not question.again or self._now() > deadline:
                    raise self._unanswered("went away", question.again) from error

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
        if self._connection is not None:
            await self._connection.disconnect()
            await asyncio.sleep(0)  # those whose answer does not come now take the long way, and end there
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # The thread.

    def _running(self) -> asyncio.AbstractEventLoop:
        """The loop of this process, under the mutex; a child of a fork gets one of its own."""
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
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-tarantool", daemon=True)
        self._thread.start()
