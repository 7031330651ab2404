"""The topics of a store: found by name or id, created, opened once each, dropped with all they have.

The bodies of a dropped topic are deleted after it, and again by the next program if that fails: where they
lie is noted in `payloads/dropped/<topic id>` before the topic goes.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import Any

import msgspec

from penstock.clock import Clock
from penstock.errors import DataError, ForgottenTopic, InvalidOption, PenstockError, TopicReplaced
from penstock.files import Files, read_whole, refusal, replace
from penstock.options import FILES, BodyLocation, TopicOptions
from penstock.payloads.open import open_topic_bodies
from penstock.payloads.store import BodyStore
from penstock.state.consumers import Consumers
from penstock.state.topics import TopicRecord, Topics
from penstock.state.transactions import Transactions
from penstock.topic.delayed import DelaysMessages
from penstock.topic.housekeeper import Housekeeper
from penstock.topic.identity import holds_messages, is_dropped, keep_identity
from penstock.topic.open_topic import PAYLOADS, OpenTopic

logger = logging.getLogger("penstock.store")

_GONE = ".dropped-"


class TopicFolders:
    """`topics/` of a store."""

    def __init__(self, root: str, files: Files) -> None:
        self._root = root
        self._files = files

    def path(self, name: str) -> str:
        """Return the path of a topic's folder."""
        return os.path.join(self._root, name)

    def put_away(self, folder: str) -> None:
        """Rename a folder out of the way, if it is there."""
        if self._files.exists(folder):
            self._files.rename(folder, os.path.join(self._root, _GONE + secrets.token_hex(8)))
            self._files.sync_dir(self._root)

    def look_abandoned(self, names: list[str]) -> bool:
        """Whether there seem to be folders without a topic; looked at again under the lock."""
        return any(name not in names for name in self._listing())

    def put_away_dropped(self, names: Collection[str]) -> None:
        """Move aside folders whose topic was dropped; one that was forgotten without a mark is kept."""
        forgotten = self.forgotten(names)
        for name in self._listing():
            if name not in names and name not in forgotten and not name.startswith(_GONE):
                self.put_away(self.path(name))

    def forgotten(self, names: Collection[str]) -> list[str]:
        """Folders that hold messages, are none of these topics, and were not marked as dropped."""
        return [
            name
            for name in self._listing()
            if name not in names
            and not name.startswith(_GONE)
            and holds_messages(self._files, self.path(name))
            and not is_dropped(self._files, self.path(name))
        ]

    def make_room(self, name: str, notes: Mapping[str, bytes]) -> None:
        """Prepare the place of a new topic; raises `ForgottenTopic` where messages of another one lie."""
        folder = self.path(name)
        if holds_messages(self._files, folder) and not is_dropped(self._files, folder):
            raise ForgottenTopic(
                f"{folder} holds messages of a topic that state.db does not know",
                hint="penstock repair takes it back; or move the folder away",
            )
        self.put_away(folder)
        if notes:
            self._files.make_dirs(folder)
            for note, data in notes.items():
                replace(self._files, os.path.join(folder, note), data)
            self._files.sync_dir(folder)
            self._files.sync_dir(self._root)

    def remove_put_away(self) -> None:
        """Delete the folders of dropped topics, which were moved aside before."""
        for name in self._listing():
            if name.startswith(_GONE):
                shutil.rmtree(self.path(name), ignore_errors=True)

    def _listing(self) -> list[str]:
        return self._files.listdir(self._root) if self._files.exists(self._root) else []


class Catalogue:
    """Finds topics by their records; each that is open is open once."""

    def __init__(
        self, records: Topics, consumers: Consumers, transactions: Transactions, folders: TopicFolders,
        files: Files, clock: Clock, *, read_only: bool,
    ) -> None:  # fmt: skip
        self._records = records
        self._consumers = consumers
        self._transactions = transactions
        self._folders = folders
        self._files = files
        self._clock = clock
        self._read_only = read_only
        self._mutex = threading.Lock()
        self._opened: dict[int, OpenTopic] = {}
        self.housekeeper = Housekeeper()
        #: What topics are given when they are opened: who holds their delayed messages, and their neighbours.
        self.delayed: DelaysMessages | None = None
        self.sibling_topic: Callable[[str, dict[str, Any]], OpenTopic] | None = None
        #: Raises when the store's folder is not where it was.
        self.require_place: Callable[[], None] = lambda: None
        self.on_options: Callable[[], None] = lambda: None

    def create(self, name: str, options: TopicOptions, notes: Mapping[str, bytes]) -> OpenTopic:
        """Make a topic with its partitions, and these files in its folder; raises `AlreadyExists`.

        The files are there before the topic is: none that is found lacks them, also after a crash.
        """
        record = self._records.create(
            name, options, self._clock.now_ns(), before=lambda: self._folders.make_room(name, notes)
        )
        topic = self.open(record)
        topic.logs()
        try:
            keep_identity(self._files, topic.folder, record, self._records)
        except OSError as error:
            raise refusal(topic.folder, error) from error
        return topic

    def open(self, record: TopicRecord) -> OpenTopic:
        """The topic of a record."""
        with self._mutex:
            topic = self._opened.get(record.id)
            if topic is None:
                topic = OpenTopic(
                    self._folders.path(record.name), record, self._records, self._consumers,
                    self._transactions, self._files, self._clock, read_only=self._read_only,
                )  # fmt: skip
                topic.on_roll = lambda number, opened=topic: self.housekeeper.add(opened, number)  # type: ignore[misc]
                topic.on_hot = lambda number, opened=topic: self.housekeeper.split(opened, number)  # type: ignore[misc]
                topic.on_options = self.on_options
                topic.finish_transactions = self.finish_transactions
                topic.require_place = self.require_place
                if self.sibling_topic is not None:
                    topic.sibling_topic = self.sibling_topic
                if self.delayed is not None:
                    topic.delayed = self.delayed
                if not self._read_only:
                    self._keep_identity(topic)
                self._opened[record.id] = topic
            return topic

    def _keep_identity(self, topic: OpenTopic) -> None:
        """See that the topic's folder tells what it is; if the disk refuses, the next to open it tries."""
        try:
            if self._files.exists(topic.folder):
                keep_identity(self._files, topic.folder, topic.record, self._records)
        except OSError as error:
            logger.warning("the identity of topic %s could not be kept: %s", topic.name, error)

    def by_id(self, topic_id: int) -> OpenTopic:
        """The topic of an id; raises `TopicReplaced` when it was dropped."""
        return self.open(self._records.by_id(topic_id))

    def is_gone(self, topic_id: int) -> bool:
        """Whether a topic was dropped."""
        try:
            self._records.by_id(topic_id)
        except TopicReplaced:
            return True
        return False

    def drop(self, topic: OpenTopic) -> None:
        """Remove a topic with its messages and positions; who has it open gets `TopicReplaced`."""
        record, folder = topic.record, self._folders.path(topic.name)
        topic.publish_dropped(
            lambda: self._records.drop(record.id, after=lambda: self._folders.put_away(folder))
        )
        with self._mutex:
            self._opened.pop(record.id, None)
        topic.close("the topic was dropped")
        self._folders.remove_put_away()

    def remove_abandoned(self) -> None:
        """Remove folders of topics that a process dropped and did not live to remove."""
        if self._folders.look_abandoned(self._records.names()):
            self._records.sweep(self._folders.put_away_dropped)
            self._folders.remove_put_away()

    def forgotten(self) -> list[str]:
        """Folders whose topic `state.db` has forgotten, each with what to do about it."""
        return [
            f"it has forgotten topic {name!r}, whose messages are there; penstock repair takes it back"
            for name in self._folders.forgotten(self._records.names())
        ]

    def finish_transactions(self) -> set[int]:
        """Apply what dead processes had committed; those are returned that a living process has in hand."""
        given_up: set[tuple[int, int]] = set()
        for place in {(topic_id, number) for _, topic_id, number in self._transactions.unfinished()}:
            topic_id, number = place
            try:
                self.by_id(topic_id).log(number).finish_transactions()
            except TopicReplaced:  # dropped at this moment
                given_up.add(place)
            except DataError as error:  # one lost file keeps no store from opening; `verify` names it
                logger.error("a committed transaction cannot be finished: %s", error)
                given_up.add(place)
        return {tx for tx, *place in self._transactions.unfinished() if tuple(place) not in given_up}

    def close_writers(self) -> None:
        """Close all writers, also when one of them fails."""
        with ExitStack() as writers:
            for topic in list(self._opened.values()):
                for writer in list(topic.writers):
                    writers.callback(writer.close)

    def settle(self) -> None:
        """Write everything to disk on a clean close, also for topics with sync="os"."""
        for topic in self._opened.values():
            if not self._read_only and topic.options.sync == "os":
                _settle(topic)

    def close(self) -> None:
        """Release all files."""
        for topic in self._opened.values():
            topic.close()

    def abandon(self) -> None:
        """Close in a forked child: files and locks are the parent's."""
        for topic in self._opened.values():
            topic.abandon()
        self._opened = {}


def refuse_other_options(name: str, there: TopicOptions, wanted: Mapping[str, Any]) -> None:
    """Raise when a topic that exists was asked for with other options."""
    differing = [
        f"{field}={getattr(there, field)!r} there, {value!r} asked"
        for field, value in wanted.items()
        if getattr(there, field) != value
    ]
    if differing:
        raise InvalidOption(
            f"topic {name!r} exists with other options: {'; '.join(differing)}", hint="alter() changes them"
        )


def _settle(topic: OpenTopic) -> None:
    """Make a topic durable, and give back offsets that were set aside."""
    try:
        gone = topic.topics.by_id(topic.record.id).rows.removed()
        for log in topic.opened_logs():
            if log.partition not in gone:
                log.bounds()  # says so when it was dropped: a sync would only find that its file is gone
                log.sync_all()
                log.lower_reserve()
    except TopicReplaced:
        return  # another process dropped it: there is nothing to keep


_decoder = msgspec.json.Decoder(list[tuple[str, list[tuple[str, str]]]])


class DroppedBodies:
    """The notes of a store about the bodies of dropped topics."""

    def __init__(self, store: str, store_id: Callable[[], str], files: Files) -> None:
        self._root = os.path.join(store, PAYLOADS)
        self._folder = os.path.join(self._root, "dropped")
        self._store_id = store_id
        self._files = files

    def note(self, topic: OpenTopic) -> None:
        """Note where a topic's bodies lie, before it is dropped."""
        chosen = topic.options.payloads
        if chosen is None:
            return
        self._files.make_dirs(self._folder)
        replace(self._files, self._path(topic.record.id), msgspec.json.encode(chosen.places))
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
            places = [BodyLocation(address, tuple(options)) for address, options in noted]
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
