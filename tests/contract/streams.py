"""What the tests of streams share: an engine to keep them in, and a stream that can be opened again.

An engine is a class here with a `name` and `stream(store, name, **options)`; `ENGINES` lists them. Those
whose server is missing skip.
"""

import atexit
import itertools
import os

import pytest

import penstock
from penstock import Payloads
from tests.contract.interfaces import AsyncInterface
from tests.s3 import s3_server
from tests.tarantool import tarantool_server


def sequences(found):
    """Of rows or of messages."""
    return [each[0] if isinstance(each, tuple) else each.sequence for each in found]


class Embedded:
    """Streams in a topic of the store."""

    name = "embedded"

    def __init__(self, tmp_path, clock):
        pass

    def stream(self, store, name="stream", **options):
        return store.stream(name, **options)

    def close(self):
        pass


class InTarantool:
    """Streams in a Tarantool, one server for all tests; each test has a prefix of its own."""

    name = "tarantool"
    _server, _numbers = None, itertools.count()

    def __init__(self, tmp_path, clock):
        if InTarantool._server is None:
            starting = tarantool_server()
            InTarantool._server = starting.__enter__()
            atexit.register(starting.__exit__, None, None, None)
        self._clock = clock
        self._prefix = f"test{next(self._numbers)}_"
        self._place = self._new_place()
        self._place.install()

    def stream(self, store, name="stream", **options):
        bodies = {key: value for key, value in options.items() if key == "payloads"}
        return store.stream(name, engine=self._place, **bodies)

    def close(self):
        self._place.close()

    def _new_place(self):
        server = InTarantool._server
        return penstock.Tarantool(
            server.host, server.port, user=server.user, password=server.password, prefix=self._prefix,
            timeout="30s", clock=self._clock,
        )  # fmt: skip


class InTarantoolAndS3(InTarantool):
    """The same with bodies in a bucket."""

    name = "tarantool-s3"
    _s3 = None

    def __init__(self, tmp_path, clock):
        super().__init__(tmp_path, clock)
        if InTarantoolAndS3._s3 is None:
            starting = s3_server()
            InTarantoolAndS3._s3 = starting.__enter__()
            atexit.register(starting.__exit__, None, None, None)
        s3 = InTarantoolAndS3._s3
        self._payloads = Payloads(
            place=s3.table("bodies"), options={"endpoint": s3.endpoint, "region": "us-east-1"}
        )
        self._before = dict(os.environ)
        os.environ.update(s3.options)

    def stream(self, store, name="stream", **options):
        return super().stream(store, name, payloads=self._payloads)

    def close(self):
        super().close()
        os.environ.clear()
        os.environ.update(self._before)


ENGINES = [Embedded, InTarantool, pytest.param(InTarantoolAndS3, marks=pytest.mark.slow)]


class Streams:
    """A store with streams, which can be closed and opened again as after a restart."""

    def __init__(self, open_store, engine, clock):
        self._open_store = open_store
        self.engine = engine
        self.clock = clock
        self.store = open_store(clock=clock)

    def stream(self, name="stream", **options):
        return self.engine.stream(self.store, name, **options)

    def restart(self):
        """Everything anew, from what was stored."""
        self.store.close()
        self.store = self._open_store(clock=self.clock)


def is_slow(parameters):
    """Engines elsewhere do not depend on the interface: one of the two is enough for every day."""
    return parameters.get("interface") is AsyncInterface and parameters.get("streams") is InTarantool


@pytest.fixture(params=ENGINES, ids=lambda kind: kind.name)
def streams(request, open_store, clock, tmp_path):
    engine = request.param(tmp_path, clock)
    yield Streams(open_store, engine, clock)
    engine.close()


@pytest.fixture
def stream(streams):
    return streams.stream()
