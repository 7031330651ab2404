"""What Tarantool's errors mean to whoever called."""

from __future__ import annotations

from penstock.errors import (
    InvalidOption,
    NotDurable,
    PenstockError,
    ReadOnly,
    Unavailable,
    UsageError,
)

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
