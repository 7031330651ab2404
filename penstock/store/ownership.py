"""Who has a store open: any number of writers, or one owner (`exclusive=True`).

Every process that opens a store for writing holds a shared lock on a byte of `state.lock`; an owner
holds it exclusively. The kernel frees it when the process dies, so a dead owner never blocks anyone
(W004-08). The file `owner` only tells people who it is.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from typing import Any

from penstock.byte_lock import ByteLock
from penstock.errors import OwnedElsewhere
from penstock.files import Files

#: The byte of state.lock that tells who is there; far from the bytes anyone reads.
_PRESENCE_BYTE = 2**41


class Ownership:
    """This process's presence in a store."""

    def __init__(self, folder: str, files: Files, *, exclusive: bool) -> None:
        self._files = files
        self._path = os.path.join(folder, "owner")
        self._exclusive = exclusive
        self._fd = files.open(os.path.join(folder, "state.lock"), create=True)
        if not ByteLock(self._fd).try_lock(_PRESENCE_BYTE, shared=not exclusive):
            files.close(self._fd)
            raise self._refusal(folder)
        if exclusive:
            self._write_owner()

    def close(self) -> None:
        """Give the store up for other processes."""
        if self._fd < 0:
            return
        if self._exclusive:
            try:
                self._files.unlink(self._path)
            except FileNotFoundError:
                pass
        self._files.close(self._fd)
        self._fd = -1

    def abandon(self) -> None:
        """Close in a forked child: the lock stays with the parent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write_owner(self) -> None:
        owner = {"id": secrets.token_hex(16), "pid": os.getpid(), "host": socket.gethostname()}
        fd = self._files.open(self._path, create=True)
        try:
            self._files.truncate(fd, 0)
            self._files.pwrite(fd, json.dumps(owner).encode() + b"\n", 0)
        finally:
            self._files.close(fd)

    def _refusal(self, folder: str) -> OwnedElsewhere:
        owner = self._read_owner()
        if owner is not None:
            pid, host = owner.get("pid"), owner.get("host", "")
            return OwnedElsewhere(
                f"{folder} belongs to process {pid} on {host} (exclusive=True)", pid=pid, host=host,
                hint="read_only=True may read it meanwhile",
            )  # fmt: skip
        return OwnedElsewhere(
            f"{folder} is open in another process, so it cannot be had exclusively",
            hint="close it there first",
        )

    def _read_owner(self) -> dict[str, Any] | None:
        try:
            with open(self._path) as file:
                found = json.load(file)
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None
