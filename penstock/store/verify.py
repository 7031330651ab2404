"""Checking a whole store: `state.db`, every partition, that positions point at something, and what waits.

Nothing is created and nothing is altered, also while others write. Damage in one place does not
keep the rest from being checked: without a readable `state.db` the folders are checked as they lie.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from types import MappingProxyType
from typing import NamedTuple

from penstock.clock import Clock
from penstock.delay.journal import damaged_entries
from penstock.delay.verify import FolderVerifier
from penstock.errors import DataError, NotAStore, PenstockError, UnknownFormat, UnknownTopic
from penstock.files import Files
from penstock.findings import Checked, Finding, damage, note
from penstock.log.folder import Folder
from penstock.log.log import Log
from penstock.log.staging import PlacedPiece
from penstock.log.verify import PartitionVerifier, missing_gates
from penstock.log.verify_staging import abandoned, committed
from penstock.parse import topic_name
from penstock.payloads.store import losses
from penstock.state.consumers import Consumers, Position
from penstock.state.database import Database
from penstock.state.topics import TopicRecord, Topics
from penstock.state.transactions import StoredPartition, Transactions
from penstock.topic.body_trim import Referring, references_between
from penstock.topic.delayed import DELAY, PUBLISH, RETRIES, SESSIONS
from penstock.topic.identity import holds_messages, is_dropped
from penstock.topic.open_topic import OpenTopic


def body_findings(topic: OpenTopic) -> Iterator[Finding]:
    """Messages of a topic whose bodies are gone or too short; a place that does not answer is noted."""
    bodies = topic.bodies
    if not bodies.is_used:
        return
    referring = [each for number in topic.numbers() for each in _referring(topic, number)]
    sizes: dict[int, dict[str, int]] = {}
    for place, store in bodies.stores().items():
        try:
            sizes[place] = {found.name: found.size for found in store.list()}
        except PenstockError as error:
            yield note(topic.folder, None, f"bodies were not checked: {error}")._replace(topic=topic.name)
            referring = [each for each in referring if each.reference.place != place]
    for each, reference in losses(((each, each.reference) for each in referring), sizes):
        if each.offset < topic.log(each.partition).bounds().start:
            continue  # retention took both meanwhile
        what = f"body {reference.name!r} of {reference.size} bytes is missing or too short"
        found = damage(topic.folder, None, what, each.offset, each.offset + 1)
        yield found._replace(topic=topic.name, partition=each.partition)


def _referring(topic: OpenTopic, number: int) -> Iterator[Referring]:
    log = topic.log(number)
    bounds = log.bounds()
    return references_between(log, bounds.start, bounds.end)


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
                yield found._replace(topic=place.topic, partition=place.partition)
        except UnknownFormat as error:
            yield damage(place.path, None, error.args[0])
        except FileNotFoundError:
            pass  # the consumer, or the topic, was dropped just now
        self._checked.waiting += verifier.messages
        self._checked.bytes += verifier.bytes

    def _names_in(self, path: str) -> list[str]:
        return sorted(self._files.listdir(path)) if self._files.exists(path) else []


class _Known(NamedTuple):
    """What `state.db` says of a topic; without it only the name is known."""

    name: str
    id: int = 0
    partitions: frozenset[int] = frozenset()
    sync: str = "disk"
    positions: tuple[Position, ...] = ()
    #: Where each partition ended when others were added.
    gates: Mapping[int, Collection[int]] = MappingProxyType({})
    #: What committed transactions have still to append, by partition.
    pieces: Mapping[int, Sequence[PlacedPiece]] = MappingProxyType({})
    #: The first offset that readers get, by partition: what comes before it is over by its age.
    starts: Mapping[int, int] = MappingProxyType({})


def _unless_over(finding: Finding, start: int) -> Finding:
    """Make damage among messages that have expired a note: they go with their segment."""
    first, stop = finding.first, finding.stop
    if finding.severity != "damage" or first is None or stop is None or not first < stop <= start:
        return finding
    return finding._replace(severity="note", what=f"{finding.what}; its messages are over by their age")


class StoreVerifier:
    """Checks the store in a folder, or one topic of it. Take `findings` once; `checked` counts along."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        topic: str | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = os.path.abspath(path)
        self.checked = Checked()
        self._files = files or Files()
        self._clock = clock or Clock()
        self._knows_all = False
        self._topic = None if topic is None else topic_name(topic)
        self._state = os.path.join(self.path, "state.db")
        self._topics = os.path.join(self.path, "topics")
        if not self._files.exists(self._state) and not self._files.exists(self._topics):
            raise NotAStore(f"there is no store in {self.path}")

    def findings(self, progress: Callable[[], None] = lambda: None) -> Iterator[Finding]:
        """Everything that is wrong, topic by topic; empty when nothing is. `progress` is called now and then.

        Raises `UnknownTopic`, and `UnknownFormat` for a store that a newer Penstock wrote.
        """
        known: list[_Known] = []
        self._progress = progress
        folders = self._folders()
        yield from self._state_findings(known)
        if not self._knows_all:
            listed = {each.name for each in known}
            known += [_Known(name) for name in folders if name not in listed and not name.startswith(".")]
        if self._topic is not None and self._topic not in [each.name for each in known]:
            raise UnknownTopic(self._topic, tuple(each.name for each in known))
        for each in known:
            if self._topic in (None, each.name):
                yield from self._topic_findings(each)
        if self._knows_all and self._topic is None:
            yield from self._strangers(folders, {each.name for each in known})
        waiting = WaitingVerifier(
            self.path,
            self._files,
            self.checked,
            {str(each.id): each.name for each in known},
            progress=progress,
        )
        yield from waiting.findings(self._topic)

    # state.db

    def _state_findings(self, known: list[_Known]) -> Iterator[Finding]:
        """Check the database and fill `known`, as far as it can be read."""
        if not self._files.exists(self._state):
            yield damage(self._state, None, "state.db is missing: names, options and positions are lost")
            return
        try:
            database = Database(self._state, self._files, create=False, read_only=True)
        except UnknownFormat:
            raise
        except PenstockError as error:
            yield damage(self._state, 0, f"state.db cannot be read: {error.args[0]}")
            return
        with closing(database):
            try:
                for problem in database.check():
                    yield damage(self._state, None, f"state.db: {problem}")
                yield from self._learn(database, known)
            except DataError as error:
                self._knows_all = False
                yield damage(self._state, None, error.args[0])

    def _learn(self, database: Database, known: list[_Known]) -> Iterator[Finding]:
        """Read the tables; positions are read here, before the ends they are compared with."""
        topics, consumers, transactions = Topics(database), Consumers(database), Transactions(database)
        try:
            _ = topics.store_id
        except DataError as error:
            yield damage(self._state, None, f"{error.args[0]}: {error.hint}")
        self._knows_all = True
        for name in topics.names():
            try:
                record = topics.find(name)
            except DataError:
                yield damage(self._state, None, f"the options of topic {name!r} cannot be understood")
                self._knows_all = False
                continue
            positions = tuple(consumers.positions(record.id))
            options = record.options
            gates: dict[int, set[int]] = {}
            for parents in topics.partitions.gates_before_rows(record.id).values():
                for parent, end in parents.items():
                    gates.setdefault(parent, set()).add(end)
            begun = topics.partitions.begun(record.id)
            numbers = {*record.rows.numbers, *(number for each in begun for number in each.children)}
            topic = _Known(name, record.id, frozenset(numbers), options.sync, positions, gates)
            starts = {
                number: self._start(
                    record, StoredPartition(topics, consumers, transactions, record.id, number)
                )
                for number in (record.rows.numbers if options.retention_ns is not None else ())
            }
            known.append(topic._replace(pieces=transactions.pieces(record.id), starts=starts))

    def _start(self, record: TopicRecord, state: StoredPartition) -> int:
        """The first offset of a partition that readers get; 0 when that cannot be found out."""
        path = os.path.join(self._topics, record.name, "parts", f"{state.partition:06d}")
        with suppress(PenstockError, OSError):
            log = Log(
                path, topic=record.name, topic_id=record.id, partition=state.partition,
                options=record.options, files=self._files, clock=self._clock, state=state, read_only=True,
            )  # fmt: skip
            with closing(log):
                return log.bounds().start
        return 0

    # Topics.

    def _topic_findings(self, topic: _Known) -> Iterator[Finding]:
        self.checked.topics += 1
        parts = os.path.join(self._topics, topic.name, "parts")
        there = sorted(self._files.listdir(parts)) if self._files.exists(parts) else []
        numbers = {int(name) for name in there if name.isdecimal()}
        for number in sorted(numbers | topic.partitions):
            path = os.path.join(parts, f"{number:06d}")
            for finding in self._partition_findings(path, topic, number):
                yield finding._replace(topic=topic.name, partition=number)

    def _partition_findings(self, path: str, topic: _Known, number: int) -> Iterator[Finding]:
        end, pieces = 0, topic.pieces.get(number, ())
        folder = Folder(
            path, topic_id=topic.id, partition=number, files=self._files, clock=self._clock, read_only=True
        )
        with closing(folder):
            try:
                verifier = PartitionVerifier(folder, self.checked, sync=topic.sync, progress=self._progress)
                for finding in verifier.findings():
                    yield _unless_over(finding, topic.starts.get(number, 0))
                end = verifier.end
                yield from missing_gates(folder, topic.gates.get(number, ()))
                yield from abandoned(folder, {piece.file for piece in pieces})
            except FileNotFoundError:
                yield note(path, None, "no folder: nothing was written here yet, or it was removed")
            for piece in pieces:
                yield from committed(folder, piece, end, self._state)
        if topic.id and number not in topic.partitions:
            yield note(path, None, "a partition the topic does not have: an interrupted change left it")
        for position in topic.positions:
            if position.partition == number and position.position > end:
                yield damage(
                    self._state,
                    None,
                    f"consumer {position.consumer!r} stands at {position.position}, beyond the end ({end})",
                    end,
                    position.position,
                )

    def _folders(self) -> list[str]:
        return sorted(self._files.listdir(self._topics)) if self._files.exists(self._topics) else []

    def _strangers(self, folders: list[str], names: set[str]) -> Iterator[Finding]:
        """Folders without a topic: a drop was interrupted or is going on, or `state.db` forgot the topic."""
        for name in folders:
            if name in names:
                continue
            path = os.path.join(self._topics, name)
            removable = name.startswith(".") or is_dropped(self._files, path)
            if removable or not holds_messages(self._files, path):
                what = "a dropped topic: the next program that opens the store for writing removes this"
                yield note(path, None, what)
            else:
                yield damage(path, None, "state.db has forgotten this topic: penstock repair takes it back")
