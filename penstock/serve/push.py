"""A push, from its request to the disk: parsed, gathered with others, stored with one sync, answered.

While one group is on its way to the disk the next one gathers, so the busier the server the larger its
groups. Pushes are stored in the order in which they came. Each is all or none, and one that cannot be stored
is the only one that fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from penstock.errors import InvalidOption, PenstockError, TopicReplaced, UsageError
from penstock.events.event import Pushed
from penstock.events.events import Events
from penstock.keys import stored_key
from penstock.serve import limits
from penstock.serve.access import Grant
from penstock.serve.encoded_event import AUDIENCE
from penstock.serve.http_messages import PendingReply, Refusal, Request

_NULL = b"null"


class _Event(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: str | list[Any]
    data: msgspec.Raw = msgspec.Raw(_NULL)
    audience: str | list[str] | None = None


class Push(NamedTuple):
    """Events as they are stored."""

    keys: list[bytes]
    values: list[bytes]
    headers: list[Mapping[str, bytes] | None] | None

    @property
    def size(self) -> int:
        """The bytes of its keys and values."""
        if len(self.keys) == 1:
            return len(self.keys[0]) + len(self.values[0])
        return sum(map(len, self.keys)) + sum(map(len, self.values))


_one_or_many = msgspec.json.Decoder(_Event | list[_Event])
_one = msgspec.json.Decoder(_Event)


def read_push(request: Request, grant: Grant, topic: str) -> Push:
    """The events of a request; raises for the first that cannot be stored or is not allowed."""
    body = request.body
    if not body.strip():
        raise InvalidOption("there is nothing to push", hint='{"key": "news", "data": {"text": "hello"}}')
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise InvalidOption(f"the body is not UTF-8 at byte {error.start}") from None
    events = _events(body, request.headers.get("content-type", "").lower())
    if not events:
        raise InvalidOption("there is nothing to push", hint="an array with at least one event")
    keys = [stored_key(event.key) for event in events]
    grant.require_push(topic, keys)
    headers: list[Mapping[str, bytes] | None] | None = None
    for event in events:
        if event.audience is not None:
            headers = [_header(event.audience) for event in events]
            break
    return Push(keys, [bytes(event.data) for event in events], headers)


def _events(body: bytes, kind: str) -> list[_Event]:
    try:
        if "ndjson" not in kind and "jsonl" not in kind:
            try:
                found = _one_or_many.decode(body)
                return found if isinstance(found, list) else [found]
            except msgspec.DecodeError:
                if "json" in kind or b"\n" not in body.strip():
                    raise
        return _lines(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidOption(
            f"that is no event: {error}", hint='{"key": …, "data": …}, an array of these, or one a line'
        ) from None


def _lines(body: bytes) -> list[_Event]:
    events = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if line.strip():
            try:
                events.append(_one.decode(line))
            except msgspec.DecodeError as error:
                raise InvalidOption(
                    f"line {number} is no event: {error}", hint="nothing was stored"
                ) from None
    return events


def _header(audience: str | list[str] | None) -> Mapping[str, bytes] | None:
    return None if audience is None else {AUDIENCE: msgspec.json.encode(audience)}


Outcome = Pushed | Exception
#: With the seconds it took.
Timed = tuple[list[Outcome], float]


class DiskSpeed:
    """Whether storing is so quick that the loop may wait for it: a change of threads costs more CPU."""

    def __init__(self) -> None:
        self._quick = 0

    @property
    def is_quick(self) -> bool:
        """Whether the disk has been quick for a while."""
        return self._quick >= limits.QUICK_STORES

    def took(self, seconds: float) -> None:
        """Note how long it took to store a group: a slow one counts against those that follow."""
        self._quick = self._quick + 1 if seconds < limits.TURN_S else 0


def timed(find: Callable[..., Events], topic: str, pushes: Sequence[Push]) -> Timed:
    """Call `store_together`; return its result and how long it took."""
    began = monotonic()
    return store_together(find, topic, pushes), monotonic() - began


def store_at_once(events: Events, pushes: Sequence[Push]) -> list[Outcome] | None:
    """Store a group without waiting for anything but the disk; return None if nothing was stored.

    Raises `UsageError` when one of them cannot be stored, and then none is.
    """
    pushed = events.push_without_waiting(*_joined(pushes))
    return None if pushed is None else _shares(pushed, pushes)


def store_together(find: Callable[..., Events], topic: str, pushes: Sequence[Push]) -> list[Outcome]:
    """Append pushes and make them durable: the ids, or the error, of each. Called in a thread."""
    try:
        return _stored(find(topic), pushes)
    except TopicReplaced:  # by another process: what has the name now gets it
        return _stored(find(topic, anew=True), pushes)


def _stored(events: Events, pushes: Sequence[Push]) -> list[Outcome]:
    try:
        return _shares(events.push_stored(*_joined(pushes)), pushes)
    except UsageError as error:  # nothing was stored, because of one of them
        return [error] if len(pushes) == 1 else [_stored_alone(events, push) for push in pushes]


def _shares(pushed: Pushed, pushes: Sequence[Push]) -> list[Outcome]:
    """The ids of each push of a group."""
    outcomes: list[Outcome] = []
    first = pushed.first
    for push in pushes:
        following = first + len(push.keys)
        outcomes.append(Pushed(pushed.epoch, first, following - 1))
        first = following
    return outcomes


def _stored_alone(events: Events, push: Push) -> Outcome:
    try:
        return events.push_stored(*push)
    except UsageError as error:
        return error


def _joined(pushes: Sequence[Push]) -> Push:
    if len(pushes) == 1:
        return pushes[0]
    headers = None
    if any(push.headers is not None for push in pushes):
        headers = [header for push in pushes for header in push.headers or [None] * len(push.keys)]
    return Push(
        [key for push in pushes for key in push.keys], [value for push in pushes for value in push.values],
        headers,
    )  # fmt: skip


T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class PushStore(Protocol):
    """Where pushes go."""

    def find(self, topic: str, *, anew: bool = False) -> Events:
        """The events of a topic; `anew` when it turned out that it was dropped. Called in a thread."""

    def start(self, call: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Have a call made in a thread."""

    def stored(self, topic: str) -> None:
        """Deliver what is new in a topic."""


class _Waiting(NamedTuple):
    push: Push
    size: int
    pending: PendingReply


class Groups:
    """The pushes that wait for the disk."""

    def __init__(self, storage: PushStore, fail: Callable[[PendingReply, Exception], None]) -> None:
        self._storage = storage
        self._fail = fail
        self._groups: dict[str, _Group] = {}
        self._count = 0
        self._bytes = 0

    @property
    def is_busy(self) -> bool:
        """Whether pushes wait to be stored."""
        return self._count > 0

    def require_room(self) -> None:
        """Raise when so much waits for the disk that clients should come back later."""
        if self._count >= limits.PUSHES_WAITING_MOST or self._bytes > limits.PUSH_BYTES_WAITING_MOST:
            raise Refusal(429, "too much waits for the disk", "push again in a second", retry_s=1)

    def add(self, topic: str, push: Push, pending: PendingReply) -> None:
        """Have a push stored, and answered when it is durable."""
        group = self._groups.get(topic)
        if group is None:
            group = self._groups[topic] = _Group(topic, self._storage, self._answer)
        size = push.size
        self._count += 1
        self._bytes += size
        group.add(_Waiting(push, size, pending))

    def _answer(self, group: Sequence[_Waiting], outcomes: Sequence[Outcome]) -> None:
        self._count -= len(group)
        self._bytes -= sum(each.size for each in group)
        for each, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Pushed):
                each.pending.reply(200, _encode(outcome))
            else:
                self._fail(each.pending, outcome)
        # Those of one connection go out in one write.
        for connection in dict.fromkeys(each.pending.connection for each in group):
            connection.settle()


class _Group:
    """The pushes to one topic."""

    def __init__(
        self, topic: str, storage: PushStore, answer: Callable[[Sequence[_Waiting], Sequence[Outcome]], None]
    ) -> None:
        self._topic = topic
        self._storage = storage
        self._answer = answer
        self._waiting: list[_Waiting] = []
        #: From when the group is complete until it is stored.
        self._is_sending = False
        #: So many pushes may come together: those that were just answered again, and those that waited.
        self._expected = 1
        self._timer: asyncio.TimerHandle | None = None
        self._disk = DiskSpeed()

    def add(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if not self._is_sending:
            self._gather()

    def _gather(self) -> None:
        """Send when as many have come as may, or a moment has passed."""
        loop = asyncio.get_running_loop()
        if len(self._waiting) < self._expected:
            if self._timer is None:
                self._timer = loop.call_later(limits.GROUP_WAIT_S, self._send)
            return
        if self._timer is not None:
            self._timer.cancel()
        self._is_sending = True
        loop.call_soon(self._send)  # not now: others may have come with the same turn of the loop

    def _send(self) -> None:
        self._is_sending, self._timer = True, None
        count = _group_length(self._waiting)
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        pushes = [each.push for each in group]
        is_small = count < limits.GROUP_PUSHES_LEAST and sum(each.size for each in group) < limits.QUICK_BYTES
        if is_small and self._disk.is_quick:
            outcomes = self._stored_at_once(pushes)
            if outcomes is not None:
                self._finish(group, outcomes)
                return
        try:
            under_way = self._storage.start(timed, self._storage.find, self._topic, pushes)
        except PenstockError as error:  # the store is closed
            self._is_sending = False
            self._answer(group, [error] * len(group))
        else:
            under_way.add_done_callback(partial(self._sent, group))

    def _stored_at_once(self, pushes: Sequence[Push]) -> list[Outcome] | None:
        """Store pushes in the loop; None when a thread has to do it."""
        began = monotonic()
        try:
            return store_at_once(self._storage.find(self._topic), pushes)
        except (UsageError, TopicReplaced):
            return None  # nothing was stored: because of one of them, or they go to another topic
        except Exception as error:  # noqa: BLE001 - as in a thread: whatever it is, each is answered
            return [error] * len(pushes)
        finally:
            self._disk.took(monotonic() - began)

    def _sent(self, group: Sequence[_Waiting], under_way: asyncio.Future[Timed]) -> None:
        """Take the result of a thread that stored a group, or failed."""
        if under_way.cancelled():
            error: BaseException | None = Refusal(503, "the server ends", "connect again")
        else:
            error = under_way.exception()
        if error is None:
            outcomes, seconds = under_way.result()
            self._disk.took(seconds)
        else:
            assert isinstance(error, Exception)
            outcomes = [error] * len(group)
        self._finish(group, outcomes)

    def _finish(self, group: Sequence[_Waiting], outcomes: Sequence[Outcome]) -> None:
        """Answer a group, deliver it, and go on to the next one."""
        self._expected = min(len(group) + len(self._waiting), limits.GROUP_PUSHES_LEAST)
        is_large = len(self._waiting) >= limits.GROUP_PUSHES_LEAST
        if is_large:
            self._send()  # first, so that the disk works while we answer and deliver
        self._answer(group, outcomes)
        self._storage.stored(self._topic)
        if not is_large:  # who was answered may push again with the next turn of the loop, and so share
            self._is_sending = False
            if self._waiting:
                self._gather()


def _group_length(waiting: Sequence[_Waiting]) -> int:
    """How many pushes are stored together: as many as fit into one frame, one at least."""
    events = size = 0
    for count, each in enumerate(waiting):
        events += len(each.push.keys)
        size += each.size
        if count and (events > limits.GROUP_EVENTS_MOST or size > limits.GROUP_BYTES_MOST):
            return count
    return len(waiting)
