"""A store: a folder of topics that any process may open."""

from __future__ import annotations

import os
import shutil
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from penstock.clock import Clock
from penstock.consume.dead_letter_topic import RETENTION, dead_name
from penstock.consume.dead_letters import DeadLetters
from penstock.consume.options import Kind, Moment, Retry, reader_options
from penstock.consume.reader import Reader, open_reader
from penstock.errors import AlreadyExists, Closed, PenstockError, UnknownTopic, close_after
from penstock.files import Files, Whereabouts, speaking
from penstock.locks import FORKED, forget_in_child, no_fork
from penstock.options import TopicOptions, topic_changes
from penstock.parse import Duration, identifier, topic_name
from penstock.place import Place
from penstock.state.consumers import Consumers
from penstock.state.database import Database, refuse_read_only
from penstock.state.pipelines import Pipelines
from penstock.state.streams import Streams
from penstock.state.topics import Topics
from penstock.state.transactions import Transactions
from penstock.store import pipelines
from penstock.store.catalogue import Catalogue, DroppedBodies, TopicFolders, refuse_other_options
from penstock.store.expiry import Expiry
from penstock.store.ownership import Ownership
from penstock.store.pipelines import Pipeline
from penstock.store.topic import Topic, several_topics
from penstock.store.transaction import Transaction
from penstock.topic.delayed import DELAY, PUBLISH, SESSIONS, forget_topic
from penstock.topic.delayed_publisher import DelayedPublisher
from penstock.topic.open_topic import OpenTopic
from penstock.topic.value_codec import coder_of
from penstock.topic.write_batch import WriteBatch

if TYPE_CHECKING:  # products stand above the store; their factories here load them when called
    from penstock.events.events import Events
    from penstock.sessions.sessions import Sessions
    from penstock.sql.session import SqlResult
    from penstock.streams.open import StreamEngineOpener
    from penstock.streams.stream import Stream


T = TypeVar("T")

#: How long `close` waits for indexes and repacking that are under way.
_CLOSE_WAIT_S = 10.0


@speaking("create_topic", "create_topic_holding", "topic", "topics", "drop_topic", "stream", "reader",
          "close", "flush_housekeeping")  # fmt: skip
class Store:
    """An open store. Use it with `with`, or call `close`."""

    def __init__(
        self, path: str, files: Files, clock: Clock, *, read_only: bool, exclusive: bool, temporary: bool
    ) -> None:
        self.path, self.read_only = path, read_only
        self._files, self._clock, self._temporary = files, clock, temporary
        self._closed, self._mutex = "", threading.Lock()
        self._whereabouts = Whereabouts(path)
        self._open_transactions: weakref.WeakSet[Transaction] = weakref.WeakSet()
        self._ownership = None if read_only else Ownership(path, files, exclusive=exclusive)
        try:
            self._database = Database(
                os.path.join(path, "state.db"), files, create=not read_only, read_only=read_only
            )
        except BaseException:
            if self._ownership is not None:
                self._ownership.close()
            raise
        self._records, self._consumers = Topics(self._database), Consumers(self._database)
        self._transactions = Transactions(self._database)
        self._pipelines, self._streams = Pipelines(self._database), Streams(self._database)
        folders = TopicFolders(os.path.join(path, "topics"), files)
        self._catalogue = Catalogue(
            self._records, self._consumers, self._transactions, folders, files, clock, read_only=read_only
        )
        self._catalogue.sibling_topic = self._sibling_topic
        self._catalogue.require_place = self._whereabouts.require
        self._dropped_bodies = DroppedBodies(path, lambda: self.id, files)
        self._sessions: Sessions | None = None
        self._delayed = DelayedPublisher(
            os.path.join(path, DELAY, PUBLISH), files, clock, self._catalogue.by_id, self._transactions
        )
        self._expiry = Expiry(path, self._records, self._catalogue.by_id, clock)
        self._catalogue.on_options = self._expiry.start_if_needed
        forget_in_child(self)
        if not read_only:
            try:
                self._catalogue.delayed = self._delayed
                self._catalogue.remove_abandoned()
                self._catalogue.finish_transactions()
                self._delayed.look()
                self._dropped_bodies.resume(self._catalogue.is_gone)
                self._expiry.start_if_needed()
            except BaseException:  # or its threads, and its claim on the folder, outlive it
                with suppress(PenstockError, OSError):
                    self.close()
                raise

    @property
    def clock(self) -> Clock:
        """The clock that the store's times are of; for parts of Penstock."""
        return self._clock

    @property
    def transactions(self) -> Transactions:
        """The committed transactions; for parts of Penstock."""
        return self._transactions

    @property
    def files(self) -> Files:
        """The file calls of the store; for parts of Penstock."""
        return self._files

    @property
    def pipeline_records(self) -> Pipelines:
        """What `state.db` knows of pipelines; for parts of Penstock."""
        return self._pipelines

    @property
    def stream_records(self) -> Streams:
        """What `state.db` knows of streams; for parts of Penstock."""
        return self._streams

    @property
    def id(self) -> str:
        """An id that tells this store from any other, wherever its folder is moved."""
        return self._database.store_id

    # Topics.

    @overload
    def create_topic(
        self, name: str, *, exists_ok: bool = False, type: type[T], **options: Any
    ) -> Topic[T]: ...
    @overload
    def create_topic(
        self, name: str, *, exists_ok: bool = False, type: Any, **options: Any
    ) -> Topic[Any]: ...
    @overload
    def create_topic(self, name: str, *, exists_ok: bool = False, **options: Any) -> Topic: ...
    def create_topic(self, name: str, *, exists_ok: bool = False, type: Any = None, **options: Any) -> Any:
        """Make a topic; its options are those of `TopicOptions`, such as `partitions=3, retention="7d"`.

        With `exists_ok=True` one of that name is taken as it is, unless an option given here differs:
        then `InvalidOption` names it. `type` is as for `topic`.
        """
        coder = coder_of(type)
        try:
            return Topic(self.create_topic_holding({}, name, options).open_topic, coder)
        except AlreadyExists:
            if not exists_ok:
                raise
            topic = self.topic(name, type=type)
            refuse_other_options(name, topic.options, topic_changes(options))
            return topic

    def create_topic_holding(self, notes: Mapping[str, bytes], name: str, options: dict[str, Any]) -> Topic:
        """Make a topic whose folder has these files from the start; for parts of Penstock."""
        self._require_open()
        topic_name(name)
        wanted = TopicOptions(**topic_changes(options))
        refuse_read_only(self.read_only)
        topic = Topic(self._catalogue.create(name, wanted, notes))
        self._expiry.start_if_needed()
        return topic

    @overload
    def topic(self, name: str) -> Topic: ...
    @overload
    def topic(self, name: str, *, type: type[T]) -> Topic[T]: ...
    @overload
    def topic(self, name: str, *, type: Any) -> Topic[Any]: ...
    def topic(self, name: str, *, type: Any = None) -> Any:
        """The topic of that name; raises `UnknownTopic`.

        With `type` its values are of that type, and JSON in the log: a msgspec Struct, a dataclass, a
        TypedDict, dict, list or number; `str` is stored as plain text.
        """
        self._require_open()
        return Topic(self._catalogue.open(self._records.find(topic_name(name))), coder_of(type))

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        self._require_open()
        return [self.topic(name) for name in self._records.names()]

    def drop_topic(self, name: str) -> None:
        """Remove a topic with all its messages and positions, for good.

        Readers and writers that have it open get `TopicReplaced`.
        """
        self._require_open()
        refuse_read_only(self.read_only)
        partitions = self._catalogue.open(self._records.find(topic_name(name)))
        self._dropped_bodies.note(partitions)
        self._catalogue.drop(partitions)
        forget_topic(partitions)
        self._dropped_bodies.delete(partitions.record.id)

    def transaction(self, *, name: str | None = None) -> Transaction:
        """Begin a transaction: what is written and committed in it becomes true together, or not at all.

        A `name` is never committed twice: the second one raises `AlreadyCommitted`.
        """
        self._require_open()
        refuse_read_only(self.read_only)
        if name is not None:
            identifier("a transaction's name", name)
        return Transaction(self._transactions, self.topic, self._clock.now_ns, self._open_transactions, name)

    def events(self, topic: str = "events") -> Events:
        """Live events: `push` under a key, `subscribe` to keys; the topic is made at first use.

        A topic that is there must have one partition and `index="key"`; a new one keeps events for an hour.
        """
        from penstock.events.events import OPTIONS, open_events

        return open_events(
            topic_name(topic), self.topic,
            lambda name: self.create_topic(name, exists_ok=True, **OPTIONS), self.transaction,
        )  # fmt: skip

    def stream(
        self, name: str, *,
        engine: StreamEngineOpener | None = None, bodies: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Stream:  # fmt: skip
        """A subject stream: messages under subjects in one global sequence, read by durable consumers.

        Its topic is made at first use, with one partition and `index="key"`, and keeps messages for a week
        unless `options` (those of `create_topic`, such as `sync="os"` or `retention=None`) say otherwise.
        `bodies` is where bodies lie that others stored and `publish_message` only named: a folder, or
        s3://bucket/prefix. With an `engine` the stream is kept there instead (docs/streams.md).
        """
        from penstock.streams.open import open_elsewhere, open_stream

        self._require_open()
        topic_name(name)
        if engine is not None:
            return open_elsewhere(name, engine, options, bodies, self.path)
        create = None if self.read_only else self.create_topic
        return open_stream(name, options, self.topic, create, self._streams, bodies)

    def import_diskq(
        self, path: str | os.PathLike[str], topic: str, *, owned_ok: bool = False, **options: Any
    ) -> Topic:
        """Bring a go-diskq folder into a new topic: partitions, offsets, keys, times, data, and its groups.

        Started again after a crash it goes on where it was; no message comes twice. Raises `AlreadyExists`
        for a topic that is there, `ConflictError` while a producer has the folder (`owned_ok=True` when it
        is known to be dead), `DataError` naming file and byte where an index disagrees with the data.
        `options` are those of `create_topic`, but for partitions and partitioner (docs/exchange.md).
        """
        from penstock.exchange.diskq_import import import_diskq

        self._require_open()
        return import_diskq(self, path, topic, owned_ok=owned_ok, **options).topic

    @property
    def sessions(self) -> Sessions:
        """Changeable work that is delivered again later when it was not finished (docs/retries.md)."""
        from penstock.sessions.sessions import Sessions

        self._require_open()
        refuse_read_only(self.read_only)
        with self._mutex:
            if self._sessions is None:
                folder = os.path.join(self.path, DELAY, SESSIONS)
                self._sessions = Sessions(folder, self._files, self._clock, self._add_session_letter)
            return self._sessions

    def dead_letters(self, topic: str) -> DeadLetters:
        """Messages of a topic that consumers could not handle: list, show, replay and drop them.

        So are sessions that were tried too often, by the topic they were opened with.
        """
        log, letters = self._find(topic), self._find(dead_name(topic_name(topic)))
        if log is None and letters is None:
            raise UnknownTopic(topic, tuple(self._records.names()))
        return DeadLetters(
            topic, log, lambda: self._find(dead_name(topic)),
            lambda name, letter: self.sessions.revive(name, letter),
        )  # fmt: skip

    def sql(self, text: str) -> SqlResult:
        """Rows by SQL over topics, or CREATE, ALTER, DROP TOPIC (docs/sql.md); raises `InvalidSql`."""
        from penstock.sql.session import SqlSession

        self._require_open()
        return SqlSession(self).run(text)

    # Consumers.

    def reader(
        self, topics: str | Topic | Sequence[str | Topic], *, consumer: str | None = None,
        start: Place = "earliest", partitions: Sequence[int] | None = None, follow: bool = True,
        on_gap: Literal["raise", "skip"] = "raise", create: bool = True, read_from: Moment | None = None,
        max_lag: Duration | None = None, handover: Duration = "30s", retry: Retry | None = None,
        kind: Kind = "stream", lease: Duration = "30s",
    ) -> Reader[Any]:  # fmt: skip
        """A live reader over several topics, in turn; each batch is of one topic.

        The options are those of `Topic.reader`, and hold for each topic.
        """
        self._require_open()
        if consumer is not None:
            refuse_read_only(self.read_only)
        several = several_topics(topics, self.topic, self._records)
        opened = [topic.open_topic for topic in several]
        options = reader_options(
            opened, consumer=consumer, start=start, partitions=partitions, follow=follow, on_gap=on_gap,
            create=create, read_from=read_from, max_lag=max_lag, handover=handover, retry=retry,
            kind=kind, lease=lease,
            decoders={topic.name: topic.coder.decode for topic in several if topic.coder is not None},
        )  # fmt: skip
        return open_reader(opened, options)

    def consumers(self) -> list[str]:
        """Names of all consumers."""
        self._require_open()
        return self._consumers.names()

    # Pipelines.

    def pipelines(self) -> list[Pipeline]:
        """All pipelines, by name, with how their latest run goes or went."""
        self._require_open()
        return pipelines.listed(self)

    def pipeline(self, name: str) -> Pipeline:
        """The pipeline of that name; raises `UnknownPipeline`."""
        self._require_open()
        return pipelines.shown(self, name)

    def stop_pipeline(self, name: str, *, timeout: float = 60.0) -> bool:
        """Ask a running pipeline to end behind its present batch, and wait; False when time ran out."""
        self._require_open()
        return pipelines.stop(self, name, timeout)

    def drop_pipeline(self, name: str) -> None:
        """Forget a pipeline and its checkpoint; raises `PipelineRunning` while it runs.

        Its consumer and what it wrote stay. Under the same name it begins anew.
        """
        self._require_open()
        pipelines.drop(self, name)

    # The store itself.

    def flush_housekeeping(self, timeout: float = 60.0) -> bool:
        """Append delayed messages that are due, and wait until indexes and repacking that this process owes
        are done; False when time ran out.
        """
        if not self.read_only:
            self._delayed.publish_due()
        return self._catalogue.housekeeper.finish(timeout)

    def check_state(self) -> list[str]:
        """What is wrong with `state.db`, topics that it forgot among it; empty when nothing."""
        return [*self._database.check(), *self._catalogue.forgotten()]

    def close(self) -> None:
        """Make everything durable and release the folder; open writers are closed first.

        Raises if anything could not be stored. Calling it twice is fine.
        """
        if self._closed:
            return
        try:
            self._catalogue.close_writers()  # which may hold messages that are to wait
        finally:
            try:
                self._delayed.end()
                if self._sessions is not None:
                    self._sessions.close()
            finally:
                self._close_topics()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_after(error, self.close, "the store")

    def __repr__(self) -> str:
        return f"<Store {self.path}{' (closed)' if self._closed else ''}>"

    def after_fork_in_child(self) -> None:
        """Close in the child: it opens the store anew by its path."""
        self._closed = FORKED
        self._temporary = False
        self._database.abandon()
        if self._ownership is not None:
            self._ownership.abandon()
        self._catalogue.abandon()

    # Inside.

    def _close_topics(self) -> None:
        self._expiry.end(_CLOSE_WAIT_S)
        self._catalogue.housekeeper.end(_CLOSE_WAIT_S)
        for transaction in list(self._open_transactions):
            transaction.roll_back_if_open()
        try:
            self._catalogue.settle()
        finally:
            self._closed = "it is closed"
            with no_fork():
                self._catalogue.close()
                self._database.close()
                if self._ownership is not None:
                    self._ownership.close()
            if self._temporary:
                shutil.rmtree(self.path, ignore_errors=True)

    def _find(self, topic: str) -> OpenTopic | None:
        self._require_open()
        try:
            return self.topic(topic).open_topic
        except UnknownTopic:
            return None

    def _add_session_letter(self, topic: str, letter: WriteBatch) -> None:
        self._sibling_topic(dead_name(topic), {"retention": RETENTION}).write(letter)

    def _sibling_topic(self, name: str, options: dict[str, Any]) -> OpenTopic:
        """Open a topic of this store, and make it with these options if it is not there."""
        if (found := self._find(name)) is not None:
            return found
        with suppress(AlreadyExists):  # made by another process at the same moment
            return self.create_topic(name, **options).open_topic
        return self.topic(name).open_topic

    def _require_open(self) -> None:
        if self._closed:
            raise Closed(f"store {self.path}: {self._closed}", hint="open it again")
        self._whereabouts.require()
