"""The blocking and the async interface, made to look alike, so that one test body covers both.

A test is written as blocking code. On the async interface its calls run in an event loop of another thread;
threads of a test become coroutines of that loop.
"""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator
from typing import Any

import penstock
import penstock.aio

#: No call of a contract test takes nearly as long; one that hangs fails by itself.
_PATIENCE_S = 60


class BlockingInterface:
    """`penstock.open`."""

    name = "blocking"

    def open(self, path, **options):
        return penstock.open(path, **options)

    def handler(self, function):
        """A function of a message, as this interface's `process` takes it."""
        return function

    def close(self):
        pass


class AsyncInterface:
    """`penstock.aio.open`, with its event loop."""

    name = "async"

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def open(self, path, **options):
        return self.call(penstock.aio.open, path, **options)

    def handler(self, function):
        async def handle(message):
            await asyncio.sleep(0)
            return function(message)

        return handle

    def call(self, function, *args, **kwargs):
        """Call in the loop's thread, await what can be awaited, and make the result look blocking."""

        async def called():
            result = function(*map(_bare, args), **{name: _bare(value) for name, value in kwargs.items()})
            return await result if inspect.isawaitable(result) else result

        future = asyncio.run_coroutine_threadsafe(called(), self._loop)
        return self._blocking(future.result(_PATIENCE_S))

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _blocking(self, result):
        if isinstance(result, list):
            return [self._blocking(each) for each in result]
        is_ours = type(result).__module__.startswith("penstock.aio")
        return Twin(result, self) if is_ours or isinstance(result, AsyncIterator) else result


class Twin:
    """An async object that looks like its blocking twin."""

    def __init__(self, target: Any, interface: AsyncInterface) -> None:
        self._target = target
        self._interface = interface

    def __getattr__(self, name):
        found = getattr(self._target, name)
        if not callable(found):
            return self._interface._blocking(found)
        return lambda *args, **kwargs: self._interface.call(found, *args, **kwargs)

    def __enter__(self):
        self._interface.call(self._target.__aenter__)
        return self

    def __exit__(self, kind, error, trace):
        self._interface.call(self._target.__aexit__, kind, error, trace)

    def __iter__(self):
        return self._interface.call(self._target.__aiter__)

    def __next__(self):
        try:
            return self._interface.call(self._target.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def __arrow_c_stream__(self, requested_schema=None):
        return self._target.__arrow_c_stream__(requested_schema)

    def __repr__(self):
        return repr(self._target)


def _bare(value):
    if isinstance(value, list):
        return [_bare(each) for each in value]
    return value._target if isinstance(value, Twin) else value
