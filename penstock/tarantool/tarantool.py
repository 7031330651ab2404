"""`Tarantool`: where an instance is, for `store.stream(…, engine=…)`; and the Lua to install there."""

from __future__ import annotations

import os
import re
from importlib.resources import files
from typing import Any

from penstock.clock import Clock
from penstock.errors import ConflictError, InvalidOption, UsageError
from penstock.parse import Duration, seconds, whole
from penstock.payloads.store import BodyStore
from penstock.tarantool.connection import Link
from penstock.tarantool.engine import TarantoolBodies, TarantoolEngine
from penstock.tarantool.migration import Migrated, Progress, migrate, survey
from penstock.tarantool.old_stream import OldStream

#: Grows with every change to the Lua. A client works with its own version and with every later one.
VERSION = 1

#: The functions that MiniToolStream's clients call; in Lua they are globals as well.
SEED_FUNCTIONS = (
    "publish_message", "get_message_by_sequence", "get_messages_by_subject",
    "get_latest_sequence_for_subject", "update_consumer_position", "get_consumer_position",
    "get_consumers_by_subject", "delete_old_messages", "get_message_by_sequence_decoded",
    "get_subject_message_count", "get_new_messages_count", "check_new_messages",
)  # fmt: skip
#: Functions of our own; in Lua they are `penstock.publish` and so on.
OWN_FUNCTIONS = (
    "about", "advance", "bind", "consumers", "consumers_of", "count", "drop_consumer", "expire", "forget",
    "get", "last", "latest", "leftovers", "move", "position", "publish", "publish_many", "rows", "set",
    "setting", "subjects", "wait",
)  # fmt: skip

_FUNCTIONS_TEXT = (
    "load.lua", "messages.lua", "subjects.lua", "consumers.lua", "expiry.lua", "seed.lua", "loaded.lua",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}|")


def install_text(prefix: str = "", user: str | None = None) -> str:
    """The Lua that makes spaces and functions, or brings them up to date.

    `prefix` stands before the name of each space and function; `user` may call them afterwards.
    """
    checked_prefix(prefix)
    if user is not None and not re.fullmatch(r"[\w.@-]{1,200}", user):
        raise InvalidOption(f"{user!r} is not the name of a user in Tarantool")
    settings = f"local prefix, version = {_quoted(prefix)}, {VERSION}\nlocal names = {_names()}\n"
    functions = settings + "".join(_text(name) for name in _FUNCTIONS_TEXT)
    given = f"local user = {'nil' if user is None else _quoted(user)}\nlocal source = [==[\n{functions}]==]\n"
    return settings + given + _text("install.lua")


def checked_prefix(prefix: str) -> str:
    """The prefix, if names can begin with it."""
    if not isinstance(prefix, str) or not _NAME.fullmatch(prefix):
        raise InvalidOption(
            f"{prefix!r} is no prefix", hint="use letters, digits and _, at most 41, not a digit first"
        )
    return prefix


def _names() -> str:
    """A Lua table: what a function is called → which of `streams` it is."""
    called = {name: name for name in SEED_FUNCTIONS} | {f"penstock.{name}": name for name in OWN_FUNCTIONS}
    return "{" + ", ".join(f"[{_quoted(call)}] = {_quoted(name)}" for call, name in called.items()) + "}"


def _quoted(text: str) -> str:
    return f"'{text}'"


def _text(name: str) -> str:
    return files("penstock.tarantool").joinpath("lua", name).read_text(encoding="utf-8")


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
        return TarantoolEngine(self._link, self.prefix, name, TarantoolBodies(bodies), self._clock)

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
