"""Redis Streams under an even load: XADD without waiting for answers, XREAD in another process.

Its append-only file is synced before each answer, so this is the peer of sync="disk".
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.pacing import at_their_moments, lateness
from benchmarks.peers.program import HOST, find_module, find_program, free_port, server

_PATIENCE_S = 60.0
_STREAM = "events"


def measure(folder: Path, count: int) -> list[int]:
    """Nanoseconds from due to received, message by message."""
    redis, port = find_module("redis"), free_port()
    command = [
        find_program("redis-server"), "--bind", HOST, "--port", str(port), "--dir", str(folder.resolve()),
        "--appendonly", "yes", "--appendfsync", "always", "--save", "",
    ]  # fmt: skip
    spawn = multiprocessing.get_context("spawn")
    with server(command, port, folder), redis.Redis(HOST, port, socket_timeout=_PATIENCE_S) as client:
        here, there = spawn.Pipe()
        reader = spawn.Process(target=_receive, args=(port, count, there))
        reader.start()
        there.close()
        connection = client.connection_pool.get_connection()
        answers = threading.Thread(target=lambda: [connection.read_response() for _ in range(count)])
        try:
            here.recv()  # it is waiting
            answers.start()
            at_their_moments(
                count, lambda value: connection.send_command("XADD", _STREAM, "*", "value", value)
            )
            answers.join(_PATIENCE_S)
            late: list[int] = here.recv()
        finally:
            reader.join(_PATIENCE_S)
            reader.kill()
            client.connection_pool.release(connection)
    return late


def _receive(port: int, count: int, parent: Connection) -> None:
    """In the reading process."""
    late: list[int] = []
    place = b"0"
    with find_module("redis").Redis(HOST, port, socket_timeout=_PATIENCE_S) as client:
        parent.send("ready")
        while len(late) < count:
            found = client.xread({_STREAM: place}, count=1000, block=int(_PATIENCE_S * 500))
            now = time.monotonic_ns()
            if not found:
                break
            rows = found[0][1] if isinstance(found, list) else next(iter(found.values()))[0]
            late += [lateness(fields[b"value"], now) for _, fields in rows]
            place = rows[-1][0]
    parent.send(late)
