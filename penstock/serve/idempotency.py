"""`Idempotency-Key`: a push that is sent again is answered as the first time, and stored once.

What was pushed under a key is noted in the topic `<topic>.pushes`, in the transaction that stores the events:

    key     the topic's epoch, who pushed, and their key, as one hash
    value   {"digest": of the request's body, "count": n}, then again with "first": the first id

The second note comes after the commit. If the process died between the two, the ids are found by the header
that such events carry. Notes are kept for 24 hours. A file lock makes all workers take turns, so that of two
requests with one key that come at the same time only one is new.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from penstock.errors import AlreadyCommitted, InvalidOption
from penstock.events.event import Pushed
from penstock.events.events import Events
from penstock.serve.http_messages import Refusal
from penstock.serve.push import Push
from penstock.store import Store, Topic

#: The header of events that were pushed so, to find them again.
HEADER = "push"
KEY_BYTES_MOST = 255
_OPTIONS = {"index": "key", "retention": "24h"}


class _Note(msgspec.Struct):
    digest: str
    count: int
    first: int | None = None


def push_once(store: Store, events: Events, push: Push, *, key: str, who: str, body: bytes) -> Pushed:
    """Store the events unless that was done under this key before; the answer is the same."""
    if not 0 < len(key.encode()) <= KEY_BYTES_MOST:
        raise InvalidOption(f"an Idempotency-Key has 1 to {KEY_BYTES_MOST} bytes")
    name = hashlib.sha256("\0".join((events.epoch, who, key)).encode()).digest()
    digest = hashlib.sha256(body).hexdigest()
    notes = store.create_topic(f"{events.topic}.pushes", exists_ok=True, **_OPTIONS)
    with _turn(store.path):
        _settle(notes)
        found = notes.latest(name)
        if found is not None:
            note = msgspec.json.decode(found.value or b"", type=_Note)
            if note.digest != digest:
                raise Refusal(422, "this Idempotency-Key was used with another body", "use a new key")
            first = note.first or _found_again(store, events, push, name, found.written_at)
            return Pushed(events.epoch, first, first + note.count - 1)
        first = _push_new(store, events, push, notes, name, _Note(digest, len(push.values)))
    return Pushed(events.epoch, first, first + len(push.values) - 1)


def _push_new(store: Store, events: Events, push: Push, notes: Topic, name: bytes, note: _Note) -> int:
    with store.transaction() as tx:
        topic = store.topic(events.topic)
        tx.write_many(topic, push.values, keys=push.keys, headers=_signed(push, name))
        tx.write(notes, msgspec.json.encode(note), key=name)
    note.first = tx.stored[topic.name][0].first + 1
    notes.write(msgspec.json.encode(note), key=name)
    return note.first


def _signed(push: Push, name: bytes) -> Sequence[Mapping[str, bytes]]:
    return [{**(each or {}), HEADER: name} for each in push.headers or [None] * len(push.keys)]


def _found_again(store: Store, events: Events, push: Push, name: bytes, noted_at: int) -> int:
    """Find the id of the first event of a push whose process died before it could note it."""
    topic = store.topic(events.topic)
    _settle(topic)
    log = topic.open_topic.log(0)
    # The transaction's parts are stored one after the other; a minute is more than that takes.
    start = log.offset_at(noted_at - 60 * 10**9)
    for message in topic.scan(start=max(start, log.bounds().start), key=push.keys[0]).messages():
        if message.headers.get(HEADER) == name:
            return int(message.offset) + 1
    raise AlreadyCommitted("these events were pushed before and have expired", hint="go on")


def _settle(topic: Topic) -> None:
    """See what a process had committed when it died: its parts come in one after the other."""
    log = topic.open_topic.log(0)
    log.finish_transactions()
    log.sync_all()


@contextmanager
def _turn(folder: str) -> Iterator[None]:
    fd = os.open(os.path.join(folder, "pushes.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
