"""Where a Tarantool is: what `store.stream(…, engine=Tarantool(…))` is given."""

from __future__ import annotations

import os
from typing import Any

from penstock.clock import Clock
from penstock.errors import ConflictError, UsageError
from penstock.options import Duration, seconds, whole
from penstock.payloads.stores import BodyStore
from penstock.tarantool.bodies import Bodies
from penstock.tarantool.engine import TarantoolEngine
from penstock.tarantool.link import Link
from penstock.tarantool.migration import Migrated, Progress, migrate, survey
from penstock.tarantool.oldrows import OldStream
from penstock.tarantool.source import VERSION, checked_prefix, install_text


class Tarantool:
    """A Tarantool instance that keeps a stream's messages and positions.

    `prefix` stands before the names of its spaces and functions, one for each stream beyond the first.
    `timeout` is how long a call tries to reach it and waits for an answer. `clock` is for tests.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 3301, *, user: str | None = None,
        password: str | None = None, prefix: str = "", timeout: Duration = "10s", clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self.host = host
        self.port = whole("port", port, 1, 65535)
        self.prefix = checked_prefix(prefix)
        self._clock = clock
        self._link = Link(host, port, user, password, seconds("timeout", timeout))

    def install(self, *, allow: str | None = None) -> int:
        """Make spaces and functions, or bring them up to date; the version there is now.

        Needs a user that may do everything; `allow` names one that may call the functions afterwards.
        """
        return int(self._link.eval(install_text(self.prefix, allow)))

    def check(self) -> dict[str, Any]:
        """What is there: versions, WAL mode, counts. Raises when the functions are missing or too old."""
        about: dict[str, Any] = self._link.call(f"{self.prefix}penstock.about")
        if about["version"] < VERSION:
            raise UsageError(
                f"Tarantool {self._link.address} has version {about['version']} of the functions, "
                f"this needs {VERSION}",
                hint=f"penstock stream engine install --tarantool {self._link.address}",
            )
        return about

    def open(self, name: str, bodies: BodyStore) -> TarantoolEngine:
        """The stream, whose bodies are in `bodies`; the first to open it gives it its name."""
        self.check()
        bound = self._link.call(f"{self.prefix}penstock.bind", name)
        if bound != name:
            raise ConflictError(
                f"Tarantool {self._link.address} keeps stream {bound!r} there, not {name!r}",
                hint="give this one a prefix of its own: Tarantool(…, prefix=…), and install with it",
            )
        return TarantoolEngine(self._link, self.prefix, name, Bodies(bodies), self._clock)

    def survey(self, name: str) -> Migrated:
        """What `migrate` would find, of a MiniToolStream as of a stream of ours; nothing is written."""
        return survey(OldStream(self._link, self.prefix), name)

    def migrate(
        self, path: str | os.PathLike[str], name: str, *, bodies: str | None = None,
        on_progress: Progress | None = None, **options: Any,
    ) -> Migrated:  # fmt: skip
        """Bring all messages and positions into the stream `name` of the store at `path` (docs/tarantool.md).

        Sequences and times stay. Run it again to go on where it was killed, or for what is new since; stop
        those who publish before the last run. The store is had exclusively meanwhile. `bodies` is where the
        bodies are (`s3://bucket/prefix`, or a folder), to be copied; without it messages only name them.
        `options` are those of the topic, which keeps messages for ever unless they say otherwise.
        """
        source = OldStream(self._link, self.prefix)
        return migrate(source, path, name, bodies=bodies, on_progress=on_progress, **options)

    def close(self) -> None:
        """End the connection; streams that were opened with it end with it."""
        self._link.close()

    def __enter__(self) -> Tarantool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        prefix = f", prefix={self.prefix!r}" if self.prefix else ""
        return f"Tarantool({self.host!r}, {self.port}{prefix})"
