"""Bodies of topics that were dropped: deleted after the topic, and again by the next program if it fails.

What a dropped topic has somewhere is noted in `payloads/dropped/<topic id>` before the topic goes.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable

import msgspec

from penstock.errors import PenstockError
from penstock.files import Files
from penstock.log.index import read_whole, replace
from penstock.payload_options import FILES, Place
from penstock.payloads.opening import open_topic_bodies
from penstock.payloads.stores import BodyStore
from penstock.topic.partitions import PAYLOADS, Partitions

logger = logging.getLogger("penstock.store")

_decoder = msgspec.json.Decoder(list[tuple[str, list[tuple[str, str]]]])


class DroppedBodies:
    """The notes of one store."""

    def __init__(self, store: str, store_id: Callable[[], str], files: Files) -> None:
        self._root = os.path.join(store, PAYLOADS)
        self._folder = os.path.join(self._root, "dropped")
        self._store_id = store_id
        self._files = files

    def note(self, partitions: Partitions) -> None:
        """Before a topic goes: where its bodies lie."""
        chosen = partitions.options.payloads
        if chosen is None:
            return
        self._files.make_dirs(self._folder)
        replace(self._files, self._path(partitions.record.id), msgspec.json.encode(chosen.places))
        self._files.sync_dir(self._folder)
        self._files.sync_dir(self._root)

    def delete(self, topic_id: int) -> bool:
        """Delete what a topic that is gone has left; False when some place does not answer."""
        path = self._path(topic_id)
        data = read_whole(self._files, path)
        if not data:
            return True  # it had no bodies, or another process was quicker
        try:
            noted = _decoder.decode(data)
            places = [Place(address, tuple(options)) for address, options in noted]
            for place in places:
                _delete_all(open_topic_bodies(place, self._root, self._store_id(), topic_id, self._files))
                if place.address == FILES:
                    shutil.rmtree(os.path.join(self._root, str(topic_id)), ignore_errors=True)
            self._files.unlink(path)
        except FileNotFoundError:
            return True
        except (PenstockError, OSError, msgspec.DecodeError) as error:
            logger.warning("bodies of a dropped topic are still there, they go later: %s", error)
            return False
        return True

    def resume(self, is_gone: Callable[[int], bool]) -> threading.Thread | None:
        """Go on, in the background, where a program that died stopped."""
        if not self._files.exists(self._folder):
            return None
        noted = [int(name) for name in self._files.listdir(self._folder) if name.isdecimal()]
        waiting = [number for number in noted if is_gone(number)]
        if not waiting:
            return None
        thread = threading.Thread(
            target=lambda: [self.delete(number) for number in waiting], name="penstock-dropped", daemon=True
        )
        thread.start()
        return thread

    def _path(self, topic_id: int) -> str:
        return os.path.join(self._folder, str(topic_id))


def _delete_all(bodies: BodyStore) -> None:
    bodies.delete(found.name for found in bodies.list())
