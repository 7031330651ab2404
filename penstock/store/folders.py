"""The folders of topics, and how they go: renamed away first, under `state.lock`, then removed at leisure.

A folder without a topic of its name in `state.db` is what an interrupted drop left behind. It is
never taken for a new topic of the same name.
"""

from __future__ import annotations

import os
import secrets
import shutil

from penstock.files import Files

_GONE = ".dropped-"


class TopicFolders:
    """`topics/` of a store."""

    def __init__(self, root: str, files: Files) -> None:
        self._root = root
        self._files = files

    def path(self, name: str) -> str:
        return os.path.join(self._root, name)

    def put_away(self, folder: str) -> None:
        """Rename a folder out of the way, if it is there."""
        if self._files.exists(folder):
            self._files.rename(folder, os.path.join(self._root, _GONE + secrets.token_hex(8)))
            self._files.sync_dir(self._root)

    def look_abandoned(self, names: list[str]) -> bool:
        """Whether there seem to be folders without a topic; looked at again under the lock."""
        return any(name not in names for name in self._listing())

    def put_away_all_but(self, names: list[str]) -> None:
        for name in self._listing():
            if name not in names and not name.startswith(_GONE):
                self.put_away(self.path(name))

    def remove_put_away(self) -> None:
        for name in self._listing():
            if name.startswith(_GONE):
                shutil.rmtree(self.path(name), ignore_errors=True)

    def _listing(self) -> list[str]:
        return self._files.listdir(self._root) if self._files.exists(self._root) else []
