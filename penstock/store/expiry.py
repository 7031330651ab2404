"""Retention that happens by itself: a thread that removes messages when they expire (S001-48, S002-27).

Every process that has a store open for writing has one such thread; the one that holds the store's
`retention` lock works, the others look once a second whether it is free. It knows for each partition when its
oldest message expires, and sleeps until the earliest of these moments. Nothing depends on it for correctness:
readers skip what has expired, and `vacuum()` removes it, too.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import NamedTuple

from penstock.clock import NANOSECONDS, Clock
from penstock.consume.removed_parents import remove_emptied
from penstock.errors import Closed, OffsetTrimmed, PenstockError, TopicReplaced
from penstock.locks import Claimed, claim, forget_in_child
from penstock.log.key_retention import KeyDurations
from penstock.log.log import Log
from penstock.log.trim import LINGER_NS
from penstock.options import TopicOptions
from penstock.state.topics import Topics
from penstock.topic.open_topic import OpenTopic
from penstock.topic.retention import vacuum_partition

logger = logging.getLogger("penstock.retention")

LOCK = "retention"
#: How often the thread looks for changed options, new partitions, and a lock that became free.
LOOK_S = 1.0
#: When a consumer holds messages back, or another process is tidying: when to try again.
_AGAIN_NS = 5 * NANOSECONDS
#: Of a message that does not expire: it is looked at again some time.
_NEVER_NS = 86400 * NANOSECONDS


class _Partition(NamedTuple):
    topic_id: int
    number: int


class Expiry:
    """Removes what has expired from all topics of a store, each partition when its time comes."""

    def __init__(self, folder: str, topics: Topics, by_id: Callable[[int], OpenTopic], clock: Clock) -> None:
        self._path = os.path.join(folder, LOCK)
        self._topics = topics
        self._by_id = by_id
        self._clock = clock
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._held = -1
        forget_in_child(self)
        #: When to look at a partition next, with the options by which that was found.
        self._due: dict[_Partition, tuple[int, TopicOptions]] = {}

    def start_if_needed(self) -> None:
        """Start the thread when some topic has messages that expire, unless time is moved by hand."""
        if not self._clock.drives_threads or not any(
            _expires(record.options) for record in self._topics.all()
        ):
            return
        with self._changed:
            if self._thread is None and not self._ended:
                self._thread = threading.Thread(
                    target=_run, args=(weakref.ref(self),), name="penstock-retention", daemon=True
                )
                self._thread.start()

    def remove_due(self) -> float:
        """Remove what has expired by now; return in how many seconds the next message expires."""
        now = self._clock.now_ns()
        current = {record.id: record for record in self._topics.all()}
        self._due = {
            key: due
            for key, due in self._due.items()
            if key.topic_id in current
            and current[key.topic_id].options == due[1]
            and key.number in current[key.topic_id].rows.numbers
        }
        for topic_id, record in current.items():
            options = record.options
            if _expires(options):
                for number in record.rows.numbers:
                    key = _Partition(topic_id, number)
                    if key not in self._due or self._due[key][0] <= now:
                        self._due[key] = self._look(key, options, now), options
        if not self._due:
            return LOOK_S
        return max(0.0, (min(due for due, _ in self._due.values()) - now) / NANOSECONDS)

    def end(self, timeout: float) -> None:
        """Stop the thread after what it is doing now."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def pause(self, seconds: float) -> bool:
        """Wait, but no longer than `end` allows; False when it is time to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended, min(seconds, LOOK_S))
            return not self._ended

    def has_lock(self) -> bool:
        """Whether this process does the work; takes the lock when it is free."""
        if self._held < 0:
            try:
                self._held = claim(self._path)
            except (Claimed, OSError):
                return False
        return True

    def let_go(self) -> None:
        """Leave the work to another process."""
        held, self._held = self._held, -1
        if held >= 0:
            os.close(held)

    def after_fork_in_child(self) -> None:
        """Stop in the child: the lock and the thread are the parent's."""
        self._changed = threading.Condition()
        self._thread, self._ended = None, True
        self.let_go()

    def _look(self, key: _Partition, options: TopicOptions, now: int) -> int:
        """Remove what has expired from one partition; returns when to look again."""
        try:
            topic = self._by_id(key.topic_id)
            log = topic.log(key.number)
            due = _oldest_expires(log, options, now)
            if due > now:
                return self._removed(topic, log, now) or due
            done = vacuum_partition(topic, key.number)
            if done is None or done.held_by:
                return now + _AGAIN_NS
            following = self._removed(topic, log, now) or _oldest_expires(log, options, now)
            return min(following, now + LINGER_NS + NANOSECONDS) if done.segments else following
        except (TopicReplaced, Closed):
            return now + _AGAIN_NS  # dropped or closed at this moment
        except (PenstockError, OSError) as error:
            logger.warning("retention of partition %d failed, it is tried again: %s", key.number, error)
            return now + _AGAIN_NS

    def _removed(self, topic: OpenTopic, log: Log, now: int) -> int:
        """Remove a split partition that is empty; return when to try again, or 0."""
        bounds = log.stored()
        if topic.tree.is_active(log.partition) or bounds.start < bounds.end:
            return 0
        remove_emptied(topic)
        return now + _AGAIN_NS


def _expires(options: TopicOptions) -> bool:
    return options.retention_s is not None or bool(options.key_retention)


def _oldest_expires(log: Log, options: TopicOptions, now: int) -> int:
    """When the oldest message of a partition expires; of an empty one, when a message of now would."""
    by_key = KeyDurations(options.key_retention)
    try:
        oldest = log.segments.message(log.stored().start)
    except OffsetTrimmed:
        return now
    if oldest is None:
        return now + _least(options.retention_ns, by_key.shortest_ns)
    return oldest.written_at + _least(options.retention_ns, by_key.of(oldest.key))


def _least(*lifetimes: int | None) -> int:
    return min((each for each in lifetimes if each is not None), default=_NEVER_NS)


def _run(expiry: weakref.ref[Expiry]) -> None:
    """The thread's loop; it does not keep a forgotten store alive."""
    goes_on = True
    while goes_on and (alive := expiry()) is not None:
        try:
            seconds = alive.remove_due() if alive.has_lock() else LOOK_S
        except (PenstockError, OSError) as error:
            logger.warning("retention failed, it is tried again: %s", error)
            seconds = LOOK_S
        goes_on = alive.pause(seconds)
        if not goes_on:
            alive.let_go()
        del alive
