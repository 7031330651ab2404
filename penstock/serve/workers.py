"""Several serving processes on one port, and the supervisor that starts them again.

    supervisor ── holds the port's lock, forks workers, forks a new one for each that dies
      ├─ worker 0 ── its own store, loop and listening socket (SO_REUSEPORT): the kernel shares out clients
      └─ worker 1 …

A lock file is taken before the port: the kernel would let any process of the same user join in silently.
SIGTERM and Ctrl-C end the workers, which drain. If the supervisor is killed its pipe closes, and the workers
drain too.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType

from penstock.errors import InvalidOption, PenstockError
from penstock.serve import limits
from penstock.serve.server import ServeOptions, listening_socket, run

logger = logging.getLogger("penstock.serve")

#: A worker that lived less than this is not restarted at once.
_SHORT_LIFE_S = 2.0
_REST_MOST_S = 5.0
_READY = b"r"
_LOOK_S = 0.05


class Supervisor:
    """Starts workers and keeps them running; `run` returns when it was asked to stop."""

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self._workers: dict[int, tuple[int, float]] = {}  # pid → its number, when it was started
        self._folder = ""
        self._is_stopping = False
        #: It was Ctrl-C that ended it.
        self.was_interrupted = False
        self._rest_s = 0.0
        self._alive = (-1, -1)

    def run(self, on_ready: Callable[[str], None]) -> None:
        """Serve; `on_ready` gets the address once clients are answered."""
        require_server_extra()
        with _port(self._options) as port:
            self._options = replace(self._options, port=port)
            self._alive = os.pipe()
            self._folder = tempfile.mkdtemp(prefix="penstock-serve-")
            before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
            try:
                self._start_all()
                if not self._is_stopping:
                    on_ready(self.address)
                self._look_after()
            finally:
                self._end_all()
                for number, handler in before.items():
                    signal.signal(number, handler)
                shutil.rmtree(self._folder, ignore_errors=True)
                for fd in self._alive:
                    os.close(fd)

    @property
    def address(self) -> str:
        """The URL under which the port is reached."""
        host = self._options.host
        scheme = "http" if self._options.tls_certificate is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._options.port}"

    # Inside.

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping = True
        self.was_interrupted |= number == signal.SIGINT
        for pid in list(self._workers):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _start_all(self) -> None:
        waiting = [self._start(number) for number in range(self._options.workers)]
        for told in waiting:
            try:
                if os.read(told, 1) != _READY and not self._is_stopping:
                    raise InvalidOption("a worker could not start", hint="see what it said above")
            finally:
                os.close(told)

    def _start(self, number: int) -> int:
        """Fork a worker; return a descriptor that becomes readable when it is ready."""
        told, tells = os.pipe()
        pid = os.fork()
        if not pid:
            os._exit(self._be_worker(number, tells))
        os.close(tells)
        self._workers[pid] = number, time.monotonic()
        return told

    def _be_worker(self, number: int, tells: int) -> int:
        """Run a worker in the forked child; nothing of the parent is cleaned up here."""
        try:
            os.close(self._alive[1])
            for each in (signal.SIGTERM, signal.SIGINT):
                signal.signal(each, signal.SIG_DFL)
            listener = listening_socket(self._options.host, self._options.port)
            run(
                self._options, listener, ready=lambda: _tell(tells), own=f"{number}.sock",
                folder=self._folder, parent=self._alive[0],
            )  # fmt: skip
        except PenstockError as error:
            logger.error("%s", error)
            return 1
        except KeyboardInterrupt:
            return 130
        except BaseException:
            logger.exception("a worker failed")
            return 1
        return 0

    def _look_after(self) -> None:
        while not self._is_stopping:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                time.sleep(_LOOK_S)  # waiting in the kernel could outlast a request to stop
                continue
            ended = self._workers.pop(pid, None)
            if ended is not None and not self._is_stopping:
                self._restart(*ended, pid, os.waitstatus_to_exitcode(status))

    def _restart(self, number: int, started: float, pid: int, code: int) -> None:
        logger.warning("worker %d ended with %d and is started again", pid, code)
        lived_s = time.monotonic() - started
        self._rest_s = min(self._rest_s * 2 + 0.1, _REST_MOST_S) if lived_s < _SHORT_LIFE_S else 0.0
        if self._rest_s:
            time.sleep(self._rest_s)
        if not self._is_stopping:
            os.close(self._start(number))

    def _end_all(self) -> None:
        """Ask all workers to end, wait, and kill those that do not."""
        self._stop(0, None)
        deadline = time.monotonic() + limits.DRAIN_S + 5.0
        while self._workers:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            self._workers.pop(pid, None)
            if not pid:
                if time.monotonic() > deadline:
                    for each in self._workers:
                        os.kill(each, signal.SIGKILL)
                time.sleep(_LOOK_S)


def require_server_extra() -> None:
    """Raise `MissingExtra` before anything is started."""
    from importlib.util import find_spec

    from penstock.errors import MissingExtra

    for name in ("uvloop", "httptools"):
        if find_spec(name) is None:
            raise MissingExtra(name, "server")


def _tell(tells: int) -> None:
    with suppress(BrokenPipeError):
        os.write(tells, _READY)
    os.close(tells)


@contextmanager
def _port(options: ServeOptions) -> Iterator[int]:
    """Take the port for this server alone, until it ends."""
    with _lock(options.port):
        _refuse_taken(options)
        try:
            reserved = listening_socket(options.host, options.port)
        except OSError as error:
            raise _no_port(options, error) from None
        with reserved:
            port: int = reserved.getsockname()[1]
            if options.port:
                yield port
            else:
                with _lock(port):
                    yield port


def _refuse_taken(options: ServeOptions) -> None:
    """Raise when anybody listens there, also if they would let us join."""
    if not options.port:
        return
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        raise _no_port(options, error) from None


def _no_port(options: ServeOptions, error: OSError) -> PenstockError:
    where = f"{options.host} port {options.port}"
    if error.errno == errno.EADDRINUSE:
        return InvalidOption(f"{where} is taken by another program", hint="--port chooses another one")
    return InvalidOption(f"cannot listen on {where}: {error.strerror or error}", hint="see --host and --port")


@contextmanager
def _lock(port: int) -> Iterator[None]:
    """Hold the lock of a port while a server has it; port 0 needs none."""
    if not port:
        yield
        return
    path = os.path.join(tempfile.gettempdir(), f"penstock-{os.getuid()}-{port}.lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidOption(
                f"another penstock serves on port {port}", hint="--port chooses another one"
            ) from None
        yield
    finally:
        os.close(fd)
