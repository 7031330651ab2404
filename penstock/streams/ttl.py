"""How long messages of a stream live: a default, subjects with a time of their own, and who sees to it.

The settings are kept with the stream and hold for all who have it open. The cleanup is a thread of each
process that started it; several of them do no harm, the second finds nothing left to delete.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from penstock.errors import Closed, InvalidOption, PenstockError, WrongType
from penstock.parse import Duration, seconds
from penstock.streams.engine import Deleted, StreamEngine, Ttl
from penstock.streams.subjects import EVERYTHING, SubjectQuery, asked

logger = logging.getLogger("penstock.stream")

#: How long `stop_ttl_cleanup` waits for a sweep that is under way (B000-03).
_STOP_WAIT_S = 5.0
#: Settings that others changed are noticed within this time, however long the interval.
_NOTICE_S = 60.0


class TtlStatus(TypedDict):
    """How long messages live, and whether this process sees to it."""

    enabled: bool
    default_ttl: float
    check_interval: float
    fiber_running: bool
    channels: dict[str, float]
    #: Why the last sweep of this process failed; empty when it did not.
    last_error: str


class TtlCleanup:
    """The part of a stream that deletes messages when they have expired."""

    def __init__(self, engine: StreamEngine) -> None:
        self.engine = engine
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._last_error = ""
        self._mutex = threading.Lock()

    def configure_ttl(
        self, *, enabled: bool | None = None, default_ttl: Duration | None = None,
        check_interval: Duration | None = None, channels: Mapping[str, Duration] | None = None,
    ) -> TtlStatus:  # fmt: skip
        """Choose how long messages live; what is left out stays as it is.

        `channels` gives subjects, or patterns ("images.*"), a time of their own, longer or shorter; the
        longest text that fits a subject counts. It replaces the channels there were.
        """
        was = self.engine.ttl()
        ttl = Ttl(
            was.enabled if enabled is None else _truth(enabled),
            was.default_s if default_ttl is None else _life("default_ttl", default_ttl),
            was.check_interval_s if check_interval is None else _life("check_interval", check_interval),
            was.channels if channels is None else _channels(channels),
        )
        self.engine.set_ttl(ttl)
        return self.get_ttl_status()

    def start_ttl_cleanup(self, on_deleted: Callable[[list[Deleted]], None] | None = None) -> bool:
        """Have a thread of this process delete what is too old, now and at each interval; False if one runs.

        `on_deleted` is called in that thread with what went, for bodies that the stream does not keep
        itself; what it failed for is given to it again.
        """
        with self._mutex:
            if self._thread is not None and self._thread.is_alive():
                return False
            self.engine.ttl()  # says now, not in the thread, that the store is closed
            self._stopping = threading.Event()
            self._thread = threading.Thread(
                target=self._clean, args=(self._stopping, on_deleted), name="penstock-ttl", daemon=True
            )
            self._thread.start()
            return True

    def stop_ttl_cleanup(self) -> bool:
        """End that thread, waiting up to 5 seconds for a sweep under way; False when none ran."""
        with self._mutex:
            thread, self._thread = self._thread, None
            self._stopping.set()
        if thread is None or not thread.is_alive():
            return False
        thread.join(_STOP_WAIT_S)
        return True

    def get_ttl_status(self) -> TtlStatus:
        """How long messages live, and whether this process sees to it."""
        ttl = self.engine.ttl()
        return TtlStatus(
            enabled=ttl.enabled,
            default_ttl=ttl.default_s,
            check_interval=ttl.check_interval_s,
            fiber_running=self._thread is not None and self._thread.is_alive(),
            channels=dict(ttl.channels),
            last_error=self._last_error,
        )

    def delete_expired(self) -> tuple[int, list[Deleted]]:
        """Delete what the TTL says, now: how many, and which. Nothing while it is not enabled."""
        deleted = self.engine.sweep() if self.engine.ttl().enabled else []
        return len(deleted), deleted

    def _clean(self, stopping: threading.Event, on_deleted: Callable[[list[Deleted]], None] | None) -> None:
        """The loop of the thread; a sweep that fails is reported by `get_ttl_status` and tried again."""
        left: list[Deleted] = []
        interval = _NOTICE_S
        while not stopping.is_set():
            try:
                interval = self.engine.ttl().check_interval_s
                if not left:  # or what the caller failed for would count as dealt with
                    left = self.delete_expired()[1]
                if left and on_deleted is not None:
                    on_deleted(left)
                left, self._last_error = [], ""
            except Closed:
                return
            except Exception as error:  # the caller's function may raise anything; it is called again
                self._last_error = f"{type(error).__name__}: {error}"
                logger.exception("a sweep of stream %s failed", self.engine.name)
                interval = min(interval, _NOTICE_S)
            self._rest(stopping, interval)

    def _rest(self, stopping: threading.Event, interval_s: float) -> None:
        """Wait for the next sweep; a shorter interval that somebody chose meanwhile counts."""
        waited = 0.0
        while waited < interval_s and not stopping.wait(min(_NOTICE_S, interval_s - waited)):
            waited += min(_NOTICE_S, interval_s - waited)
            try:
                interval_s = min(interval_s, self.engine.ttl().check_interval_s)
            except PenstockError:
                return  # the sweep says what is wrong


def lifetimes(ttl: Ttl) -> dict[str, float]:
    """How long messages live, by subject or pattern; the most telling pattern counts, "*" takes the rest."""
    return {"*": ttl.default_s, **ttl.channels} if ttl.enabled else {}


def lives(ttl: Ttl) -> list[tuple[SubjectQuery, float]]:
    """How long messages live, the most telling pattern first; the last one takes all other subjects."""
    chosen = [(asked(pattern), life) for pattern, life in ttl.channels.items()]
    chosen.sort(key=lambda each: (each[0].is_prefix, -len(each[0].text)))
    return [*chosen, (EVERYTHING, ttl.default_s)]


def _channels(given: Any) -> dict[str, float]:
    if not isinstance(given, Mapping):
        raise WrongType(f"channels is a mapping of subjects to times, not {type(given).__name__}")
    for pattern in given:
        asked(pattern)
    return {pattern: _life(f"the TTL of {pattern!r}", life) for pattern, life in given.items()}


def _life(name: str, given: Duration) -> float:
    found = seconds(name, given)
    if found <= 0:
        raise InvalidOption(f"{name}={given!r} would let nothing live", hint="a time is longer than nothing")
    return found


def _truth(given: object) -> bool:
    if not isinstance(given, bool):
        raise WrongType(f"enabled is True or False, not {type(given).__name__}")
    return given
