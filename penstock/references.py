"""`Reference`: what the log holds in place of a value outside it; how that value is fetched and checked.

A message whose value was too large has the codec `reference`, and as its stored value:

    0   u8   version, 1
    1   u8   zero
    2   u16  codec of the body
    4   u32  how many offsets behind this one the last message of the same pack is at most
    8   u64  place: which of the topic's places it lies in (`place_id`)
    16  u64  first byte of the body in its object
    24  u64  length
    32  32   SHA-256 of the body
    64       name of the object, UTF-8

Places make themselves known to the process when their topic is opened, so the holder of a message can ask
for its value, as with codecs. Bytes are only given out when their digest is right, so it does not matter
which of two places of the same id (a store and its copy) gave them.
"""

from __future__ import annotations

import io
import threading
import weakref
from collections.abc import Callable
from struct import Struct
from typing import BinaryIO, NamedTuple, Protocol, TypeVar, cast

from penstock.errors import BodyMissing, Corrupt, UnknownFormat

#: Not among the codecs that a writer may choose, nor among the users' own.
CODEC, CODEC_NAME = 20_000, "reference"

T = TypeVar("T")

_HEAD = Struct("<BBHIQQQ32s")
_VERSION = 1
#: Neighbours of a packed body are fetched with it, up to so many bytes.
_AHEAD_BYTES = 1 << 20
#: So many places of one id are kept: a store and its copies.
_ALIKE = 4


class Reference(NamedTuple):
    """Where a message's body lies, and what it must be."""

    place: int
    name: str
    start: int
    size: int
    sha256: bytes
    #: Number of the codec that packed the body.
    codec: int = 1
    #: The last message of the same pack is at most so many offsets behind this one.
    left: int = 0

    @property
    def is_packed(self) -> bool:
        """Whether other messages may have their bodies in the same object."""
        return self.left > 0 or self.start > 0

    def packed(self) -> Referenced:
        """Return the reference as the log stores it."""
        fields = _VERSION, 0, self.codec, self.left, self.place, self.start, self.size, self.sha256
        return Referenced(_HEAD.pack(*fields) + self.name.encode())


class Referenced(bytes):
    """A reference as it is stored, on its way into the log."""


def unpack(stored: bytes) -> Reference:
    """A stored reference; raises `UnknownFormat` for one that a newer Penstock wrote."""
    if len(stored) <= _HEAD.size or stored[0] != _VERSION:
        raise UnknownFormat("a reference to a body is of a kind that this version does not know")
    _, _, codec, left, place, start, size, digest = _HEAD.unpack_from(stored)
    return Reference(place, stored[_HEAD.size :].decode(), start, size, digest, codec, left)


def place_id(store: str, topic: int, address: str) -> int:
    """The number of a place for the bodies of one topic."""
    import hashlib  # here and below: it is slow to load, and every process loads this module

    digest = hashlib.blake2b(f"{store}/{topic}/{address}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


class BodySource(Protocol):
    """The part of a place of bodies that readers use (`penstock.payloads.store.BodyStore`)."""

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return a body or a part of it."""

    def open(self, name: str, start: int = 0, length: int | None = None) -> BinaryIO:
        """Open a body, or a part of it, to be read piece by piece."""


class _Chunk(NamedTuple):
    """Bytes of a pack that were fetched together."""

    place: int
    name: str
    start: int
    body: bytes


class _Latest(threading.local):
    """What a thread fetched last: the next message's body mostly lies in it."""

    def __init__(self) -> None:
        self.chunk = _Chunk(0, "", 0, b"")


_places: dict[int, list[BodySource]] = {}
_learners: weakref.WeakSet[Learner] = weakref.WeakSet()
_latest = _Latest()


class Learner(Protocol):
    """Something that may know of a place that was added elsewhere."""

    def learn(self) -> None:
        """Look for places that were added since."""

    def __hash__(self) -> int: ...


def know(place: int, bodies: BodySource) -> None:
    """Have bodies of a place found by this process."""
    known = [each for each in _places.get(place, ()) if repr(each) != repr(bodies)]
    _places[place] = [bodies, *known][:_ALIKE]


def learn_from(learner: Learner) -> None:
    """Ask it before a place is said to be unknown, for as long as it lives."""
    _learners.add(learner)


def fetch(reference: Reference, where: str) -> bytes:
    """The body, verified; raises `BodyMissing`, or `Corrupt` when it is another one, and says `where`."""
    return _first(reference, where, _fetched)


def open_body(reference: Reference, where: str) -> BinaryIO:
    """The body to be read piece by piece; verified when its end is reached without a `seek`."""
    return _first(reference, where, _opened)


def _first(reference: Reference, where: str, ask: Callable[[BodySource, Reference, str], T]) -> T:
    """What the first place that has the body answers."""
    if reference.place not in _places:
        for learner in list(_learners):
            learner.learn()
    missing = BodyMissing(
        reference.name, "any place that this process knows", message=f"{where}: ",
        hint="its place is known to processes that have opened its topic",
    )  # fmt: skip
    for bodies in _places.get(reference.place, ()):
        try:
            return ask(bodies, reference, where)
        except BodyMissing as error:
            missing = BodyMissing(reference.name, error.place, message=f"{where}: ")
    raise missing from None


def _fetched(bodies: BodySource, reference: Reference, where: str) -> bytes:
    place, name, start, size = reference[:4]
    found = _from_latest(reference)
    if not found:
        # The second body of a pack is a sign that more of it will be asked for.
        goes_on = reference.left > 0 and _latest.chunk[:2] == (place, name)
        body = bodies.get(name, start, max(size, _AHEAD_BYTES) if goes_on else size)
        found = body[:size]
        _latest.chunk = _Chunk(place, name, start, body if reference.is_packed else b"")
    import hashlib

    if len(found) != size or hashlib.sha256(found).digest() != reference.sha256:
        raise _corrupt(reference, where)
    return found


def _from_latest(reference: Reference) -> bytes:
    """The body, if it was fetched with its neighbours; b"" when it was not."""
    chunk = _latest.chunk
    at = reference.start - chunk.start
    if (chunk.place, chunk.name) != (reference.place, reference.name) or at < 0:
        return b""
    found = chunk.body[at : at + reference.size]
    return found if len(found) == reference.size else b""


def _opened(bodies: BodySource, reference: Reference, where: str) -> BinaryIO:
    raw = bodies.open(reference.name, reference.start, reference.size)
    return cast(BinaryIO, io.BufferedReader(VerifiedBody(raw, reference, where), _AHEAD_BYTES // 4))


class VerifiedBody(io.RawIOBase):
    """A body whose digest is checked at its end."""

    def __init__(self, file: BinaryIO, reference: Reference, where: str) -> None:
        self._file = file
        self._reference = reference
        self._where = where
        import hashlib

        self._digest = hashlib.sha256()
        #: Bytes that were digested, from the beginning on; -1 after a seek.
        self._digested = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        before = self._file.tell()
        at = self._file.seek(offset, whence)
        if at != before:
            self._digested = -1
        return at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        found = self._file.read(len(buffer))
        buffer[: len(found)] = found
        if self._digested >= 0:
            self._digest.update(found)
            self._digested += len(found)
            if not found or self._digested >= self._reference.size:
                self._check()
        return len(found)

    def readall(self) -> bytes:
        parts = []
        while part := self.read(_AHEAD_BYTES):
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        self._file.close()
        super().close()

    def _check(self) -> None:
        if self._digested != self._reference.size or self._digest.digest() != self._reference.sha256:
            raise _corrupt(self._reference, self._where)


def _corrupt(reference: Reference, where: str) -> Corrupt:
    return Corrupt(
        reference.name,
        reference.start,
        f"{where}: the body is not the one that was written (its digest differs),",
        hint="the messages around it can be read",
    )
