"""The Lua that makes a stream in a Tarantool: one text, to be sent or to be loaded from a file."""

from __future__ import annotations

import re
from importlib.resources import files

from penstock.errors import InvalidOption

#: Grows with every change to the Lua. A client works with its own version and with every later one.
VERSION = 1

#: The functions that MiniToolStream's clients call; in Lua they are globals as well.
SEED_FUNCTIONS = (
    "publish_message", "get_message_by_sequence", "get_messages_by_subject",
    "get_latest_sequence_for_subject", "update_consumer_position", "get_consumer_position",
    "get_consumers_by_subject", "delete_old_messages", "get_message_by_sequence_decoded",
    "get_subject_message_count", "get_new_messages_count", "check_new_messages",
)  # fmt: skip
#: Those that are ours; they are called `penstock.publish` and so on.
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
