"""Checking the waiting messages of a store: every folder below `delay/` (docs/FORMAT.md)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from penstock.delay.verify import FolderVerifier
from penstock.errors import UnknownFormat
from penstock.faces.journal import damaged_entries
from penstock.files import Files
from penstock.log.findings import Checked, Finding, damage, note
from penstock.topic.delayfolders import DELAY, PUBLISH, RETRIES, SESSIONS


class _Place(NamedTuple):
    """A folder of waiting messages, and whose they are, where it is one topic's."""

    path: str
    topic: str | None = None
    partition: int | None = None


class WaitingVerifier:
    """Checks what waits in a store. `names` are its topics by id, as far as they are known."""

    def __init__(
        self, store: str, files: Files, checked: Checked, names: Mapping[str, str], *,
        progress: Callable[[], None],
    ) -> None:  # fmt: skip
        self._root = os.path.join(store, DELAY)
        self._files = files
        self._checked = checked
        self._names = names
        self._progress = progress

    def findings(self, topic: str | None) -> Iterator[Finding]:
        """Everything that is wrong with what waits; of one topic, what its consumers try again."""
        for place in self._retries():
            if topic in (None, place.topic):
                yield from self._folder(place)
        if topic is not None:
            return
        publish = os.path.join(self._root, PUBLISH)
        if self._files.exists(publish):
            yield from self._folder(_Place(publish))
        for name in self._names_in(os.path.join(self._root, SESSIONS)):
            folder = os.path.join(self._root, SESSIONS, name)
            waiting = os.path.join(folder, "waiting")
            if self._files.exists(waiting):
                yield from self._folder(_Place(waiting))
            for path, byte in damaged_entries(folder, self._files):
                yield damage(path, byte, "a damaged entry of a session that is open")

    def _retries(self) -> Iterator[_Place]:
        root = os.path.join(self._root, RETRIES)
        for topic_id in self._names_in(root):
            known = self._names.get(topic_id)
            for consumer in self._names_in(os.path.join(root, topic_id)):
                for partition in self._names_in(os.path.join(root, topic_id, consumer)):
                    path = os.path.join(root, topic_id, consumer, partition)
                    yield _Place(path, known, int(partition) if partition.isdecimal() else None)

    def _folder(self, place: _Place) -> Iterator[Finding]:
        verifier = FolderVerifier(place.path, self._files, self._progress)
        try:
            for found in verifier.findings():
                tell = damage if found.is_damage else note
                finding = tell(found.path, found.byte, found.what)
                yield finding._replace(topic=place.topic, partition=place.partition)
        except UnknownFormat as error:
            yield damage(place.path, None, error.args[0])
        except FileNotFoundError:
            pass  # the consumer, or the topic, was dropped just now
        self._checked.waiting += verifier.messages
        self._checked.bytes += verifier.bytes

    def _names_in(self, path: str) -> list[str]:
        return sorted(self._files.listdir(path)) if self._files.exists(path) else []
