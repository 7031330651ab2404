"""A topic's policy for its sessions, kept as a small JSON file beside them."""

from __future__ import annotations

import os

import msgspec

from penstock.consume.policy import Retry
from penstock.errors import Corrupt
from penstock.files import Files
from penstock.options import seconds

_NAME = "policy.json"


class _Stored(msgspec.Struct):
    first_s: float
    factor: float
    limit_s: float
    attempts: int
    jitter: float


def read_policy(folder: str, files: Files) -> Retry:
    """The policy that was declared; the default when none was."""
    path = os.path.join(folder, _NAME)
    if not files.exists(path):
        return Retry()
    fd = files.open(path, write=False)
    try:
        data = files.pread(fd, files.size(fd), 0)
    finally:
        files.close(fd)
    try:
        found = msgspec.json.decode(data, type=_Stored)
    except msgspec.DecodeError as error:
        raise Corrupt(path, 0, f"not a policy: {error}") from None
    return Retry(
        first=found.first_s, factor=found.factor, limit=found.limit_s, attempts=found.attempts,
        jitter=found.jitter,
    )  # fmt: skip


def write_policy(folder: str, files: Files, policy: Retry) -> None:
    """Replace it: whoever reads meanwhile gets the one before or the one after."""
    stored = _Stored(
        seconds("first", policy.first), policy.factor, seconds("limit", policy.limit), policy.attempts,
        policy.jitter,
    )  # fmt: skip
    draft = os.path.join(folder, f"{_NAME}.{os.getpid()}.tmp")
    fd = files.open(draft, create=True)
    try:
        files.pwrite(fd, msgspec.json.encode(stored), 0)
        files.sync(fd)
    finally:
        files.close(fd)
    files.rename(draft, os.path.join(folder, _NAME))
    files.sync_dir(folder)
