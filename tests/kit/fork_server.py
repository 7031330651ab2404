"""Python processes that start at once: a server that has imported Penstock forks each one asked for.

A new interpreter needs a third of a second until it has imported a store, and twice that for the command;
the suite starts hundreds. What is forked is a process like any other: it has its own pid, may
be stopped and killed, runs `-m module …` or `-c code …` as `__main__`, and ends as an interpreter ends.
The server opens nothing and has one thread, so nothing but the imports is shared.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

from tests.kit.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]

#: Imported once, for all; and a verb of the command is run, which imports the rest of it.
PRELOADED = ("penstock.store.open", "penstock.consume.reader", "tests.kit.system", "tests.kit.topics")
#: As much as a pipe holds, so that nobody has to wait until it is taken.
INPUT_BYTES_MAX = 1 << 16
_NUMBER = struct.Struct("<q")
_ASKED_BYTES_MAX = 1 << 20


class Forked:
    """A process that the server forked; of `subprocess.Popen` what tests use."""

    #: As those of a process whose output goes to files.
    stdout = stderr = None

    def __init__(self, pid: int, status: socket.socket, stdin: IO[bytes]) -> None:
        self.pid = pid
        self.stdin = stdin
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = _received(self._status)
            self._status.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.poll()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and that is on its way to us
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """The server as the process sees it that asks."""

    def __init__(self) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.fork_server", str(there.fileno())],
                cwd=ROOT, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        self._control = here
        self.owner = os.getpid()
        atexit.register(self._close)

    def fork(
        self, words: Sequence[str], cwd: str | os.PathLike[str], env: Mapping[str, str], fds: list[int]
    ) -> tuple[int, socket.socket]:
        """The pid of a new process, and where its exit code will come."""
        status, there = socket.socketpair()
        asked = json.dumps([list(words), os.fspath(cwd), dict(env)]).encode()
        assert len(asked) < _ASKED_BYTES_MAX
        with there:
            socket.send_fds(self._control, [asked], [*fds, there.fileno()])
        return _received(status), status

    def _close(self) -> None:
        """Let the server end, when the process that asks ends."""
        self._control.close()
        if self.owner == os.getpid():
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


_server: _Server | None = None


def start(
    words: Sequence[str],
    *,
    stdout: IO[bytes],
    stderr: IO[bytes],
    cwd: str | os.PathLike[str] = ROOT,
    env: Mapping[str, str] | None = None,
) -> Forked:
    """Start `python WORDS`: `[-W error] -m module …` or `-c code …`."""
    global _server
    if _server is None or _server.owner != os.getpid():
        _server = _Server()
    read, write = os.pipe()
    try:
        fds = [read, stdout.fileno(), stderr.fileno()]
        pid, status = _server.fork(words, cwd, os.environ if env is None else env, fds)
    except BaseException:
        os.close(write)
        raise
    finally:
        os.close(read)
    return Forked(pid, status, os.fdopen(write, "wb"))


def run(
    words: Sequence[str],
    *,
    cwd: str | os.PathLike[str] = ROOT,
    env: Mapping[str, str] | None = None,
    input: bytes = b"",
    timeout: float = PATIENCE_S,
    as_one: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """Run `python WORDS` to its end; with `as_one` errors stand among the output."""
    assert len(input) <= INPUT_BYTES_MAX
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(words, stdout=out, stderr=out if as_one else err, cwd=cwd, env=env)
        try:
            try:
                process.stdin.write(input)
                process.stdin.close()
            except BrokenPipeError:
                pass  # it did not want it
            code = process.wait(timeout)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(words), code, out.read(), err.read())


def _received(status: socket.socket) -> int:
    data = status.recv(_NUMBER.size, socket.MSG_WAITALL)
    assert len(data) == _NUMBER.size, "the fork server is gone"
    return int(_NUMBER.unpack(data)[0])


# The server.


class _Child(NamedTuple):
    pid: int
    status: socket.socket


def _serve(control: socket.socket) -> list[str] | None:
    """Fork until nobody asks any more. In each child this returns what it is to run, in the server None."""
    children: dict[int, _Child] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in children:
                poll.unregister(fd)
                _reap(fd, children.pop(fd))
                continue
            asked, fds, *_ = socket.recv_fds(control, _ASKED_BYTES_MAX, 4)
            if not asked:
                return None
            status = socket.socket(fileno=fds[3])
            pid = os.fork()
            if pid == 0:
                control.close()
                return _settle(asked, fds, [*children.values(), _Child(0, status)])
            for each in fds[:3]:
                os.close(each)
            status.send(_NUMBER.pack(pid))
            pidfd = os.pidfd_open(pid)
            children[pidfd] = _Child(pid, status)
            poll.register(pidfd, select.POLLIN)


def _reap(pidfd: int, child: _Child) -> None:
    os.close(pidfd)
    code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    try:
        child.status.send(_NUMBER.pack(code))
    except BrokenPipeError:
        pass  # who asked for it has forgotten it
    child.status.close()


def _settle(asked: bytes, fds: list[int], others: list[_Child]) -> list[str]:
    """In the child: have its own input, output, folder and environment, and nothing of the server's."""
    for child in others:
        child.status.close()
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
        os.close(fd)
    words, cwd, env = json.loads(asked)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return words


def _become(words: list[str]) -> None:
    """Run a program as `__main__`."""
    if words[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        words = words[2:]
    kind, program, *arguments = words
    sys.argv = [kind, *arguments]
    if kind == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        assert kind == "-c", kind
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(program, "<string>", "exec"), space)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for _name in PRELOADED:
        import_module(_name)
    with redirect_stderr(io.StringIO()):
        import_module("penstock.cli").main(["-s", os.devnull, "topic", "list"])
    _asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if _asked is not None:
        _become(_asked)
