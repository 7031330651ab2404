"""A topic's bodies: values too large for the log, stored before the messages that refer to them.

A body is written and synced, then its message is appended with a reference in the value's place. So a message
that can be seen always has its body; a crash between the two leaves a body that nobody refers to, for the
sweep. Offsets are given when the message is appended, after the body: a slow upload never makes a smaller
offset appear behind a larger one (W000-1).

Small bodies that are appended together to one partition share an object. That keeps a pack within one
partition, its messages side by side, so retention can tell when the last of them is gone.
"""

from __future__ import annotations

import io
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeGuard, cast

from penstock import references
from penstock.clock import Clock
from penstock.errors import InvalidOption, PenstockError, WrongType
from penstock.files import Files
from penstock.log.frame import RAW
from penstock.log.frame_encode import MessageColumns
from penstock.options import BodyLocation, TopicOptions
from penstock.parse import MIB, all_are, utc
from penstock.payloads.files import FileBodies
from penstock.payloads.names import checked_name
from penstock.payloads.open import open_topic_bodies
from penstock.payloads.store import GRACE_NS, Body, BodyStore
from penstock.references import Reference, Referenced

logger = logging.getLogger("penstock.bodies")

#: A pack is not made larger than this, so that it goes up in one request.
_PACK_BYTES = 8 * MIB
#: Objects of one append that are under way together.
_AT_ONCE = 16


class StoredBodies(NamedTuple):
    """The messages of a batch, with references in the place of large values."""

    columns: MessageColumns
    #: Objects that were made for them, and the places of the messages whose bodies are in each.
    made: dict[str, list[int]]
    #: Bodies that were stored before the messages came, likewise.
    given: dict[str, list[int]]

    def unused(self, stored: Iterable[int]) -> list[str]:
        """Objects none of whose messages are among these places."""
        there = set(stored)
        both = [*self.made.items(), *self.given.items()]
        return [name for name, places in both if there.isdisjoint(places)]


class TopicBodies:
    """The places in which one topic has bodies, and how values get there."""

    def __init__(
        self, root: str, store_id: str, topic_id: int, options: Callable[[], TopicOptions],
        refresh: Callable[[], None], files: Files, clock: Clock,
    ) -> None:  # fmt: skip
        #: The store's folder for bodies in files.
        self.root = root
        self._store_id = store_id
        self._topic_id = topic_id
        self._options = options
        self._refresh = refresh
        self._files = files
        self._clock = clock
        self._stores: dict[BodyLocation, BodyStore] = {}
        self._known: tuple[BodyLocation, ...] = ()
        self.make_known()

    # Where they lie.

    @property
    def is_used(self) -> bool:
        """Whether the topic has, or had, values outside the log."""
        return self._options().payloads is not None

    @property
    def takes_bodies(self) -> bool:
        """Whether values go outside the log now."""
        chosen = self._options().payloads
        return chosen is not None and chosen.above is not None

    def stores(self) -> dict[int, BodyStore]:
        """Every place that the topic has or had, by the number that references have for it."""
        chosen = self._options().payloads
        places = () if chosen is None else chosen.places
        return {self._id(place): self._store(place) for place in places}

    def make_known(self) -> None:
        """Register the places of this topic, so that its messages can find their bodies."""
        chosen = self._options().payloads
        if chosen is None or chosen.places == self._known:
            return
        for number, store in self.stores().items():
            references.know(number, store)
        references.learn_from(self)
        self._known = chosen.places

    def learn(self) -> None:
        """Take up a new place that another process may have given the topic."""
        try:
            self._refresh()
        except PenstockError:
            return  # closed or dropped: nothing to be learnt here

    # Storing.

    def outside(self, value: Any, name: str | None = None) -> Any:
        """A path or an open file as what is written: a reference to its body, or its bytes if it is small.

        With a name also bytes are stored outside. Anything else is given back as it is.
        """
        if not is_file(value):
            if name is None or value is None:
                return value
            checked_name(name)
            body = value.encode() if isinstance(value, str) else value
            return self.put(body, name).packed()
        if not self.takes_bodies:
            raise WrongType(
                f"a value is bytes, str or None, not {type(value).__name__}",
                hint='on a topic with payloads="files" it may be a path or an open file',
            )
        if name is not None:
            return self.put(value, checked_name(name)).packed()
        if isinstance(value, Path):
            with value.open("rb") as file:
                return self._outside_file(file)
        return self._outside_file(value)

    def outside_all(self, values: Any) -> Any:
        """Each value of a list as `outside` makes it."""
        if not self.takes_bodies or not isinstance(values, (list, tuple)):
            return values
        if all_are(bytes, values) or not any(map(is_file, values)):
            return values
        return [self.outside(value) for value in values]

    def store_large(self, columns: MessageColumns) -> StoredBodies:
        """Store outside the log what is too large, of messages that go to one partition together."""
        limit, values = self._options().inline_bytes, columns.values
        given = {references.unpack(v).name: [p] for p, v in enumerate(values) if isinstance(v, Referenced)}
        heavy = [
            place
            for place, value in enumerate(values)
            if value is not None and len(value) > limit and not isinstance(value, Referenced)
        ]
        if not heavy and not given:
            return StoredBodies(columns, {}, {})
        codecs = columns.codecs
        numbers = [codecs] * len(values) if isinstance(codecs, int) else list(codecs)
        packs = list(self._packs(values, heavy))
        made = [_with_distances(each) for each in self._put_packs(packs, values, numbers)]
        stored = list(values)
        for each in made:
            for place, reference in each.items():
                stored[place] = reference.packed()
        for place, value in enumerate(stored):
            if isinstance(value, Referenced):
                numbers[place] = references.CODEC
        kept = columns._replace(values=stored, codecs=numbers, lengths=(None, columns.lengths[1]))
        return StoredBodies(kept, {next(iter(each.values())).name: list(each) for each in made}, given)

    def discard(self, names: Iterable[str]) -> None:
        """Remove bodies that no message will refer to; what cannot be removed now is left to the sweep."""
        wanted = list(names)
        if not wanted:
            return
        try:
            self._present().delete(wanted)
        except PenstockError as error:
            logger.warning("%d bodies without a message are left to the sweep: %s", len(wanted), error)

    def remove_leftovers(self) -> None:
        """Remove what processes that died left half written, where nobody else does."""
        for store in self.stores().values():
            if isinstance(store, FileBodies):
                store.remove_leftovers(GRACE_NS)

    # Inside.

    def _outside_file(self, file: BinaryIO) -> bytes:
        limit = self._options().inline_bytes
        begin = b""
        while len(begin) <= limit and (part := file.read(limit + 1 - len(begin))):
            if not isinstance(part, bytes):
                raise WrongType(f"the file gives {type(part).__name__}, not bytes", hint='open it with "rb"')
            begin += part
        return begin if len(begin) <= limit else self.put(_joined(begin, file)).packed()

    def put(self, body: Body, name: str | None = None, codec: int = RAW) -> Reference:
        """Store one body, to be referred to by a message that is about to be written."""
        chosen = self._options().payloads
        if chosen is None or chosen.above is None:
            raise InvalidOption("this topic keeps no bodies", hint='alter(payloads="files")')
        stored = self._present().put(self._new_name(name), body, most=int(chosen.max_body))
        return Reference(self._id(chosen.places[0]), stored.name, 0, stored.size, stored.sha256, codec)

    def _packs(self, values: Sequence[bytes | None], heavy: Sequence[int]) -> Iterator[list[int]]:
        """Choose which bodies share an object; their order stays."""
        chosen = self._options().payloads
        limit = 0 if chosen is None else int(chosen.pack)
        pack: list[int] = []
        weight = 0
        for place in heavy:
            size = len(values[place] or b"")
            if size > limit:
                yield [place]
                continue
            if pack and weight + size > _PACK_BYTES:
                yield pack
                pack, weight = [], 0
            pack.append(place)
            weight += size
        if pack:
            yield pack

    def _put_packs(
        self, packs: Sequence[list[int]], values: Sequence[bytes | None], numbers: Sequence[int]
    ) -> list[dict[int, Reference]]:
        """Store each pack; if one fails, none stays."""

        def put(places: list[int]) -> dict[int, Reference]:
            return self._put_pack(places, [cast(bytes, values[place]) for place in places], numbers)

        if len(packs) < 2:
            return [put(places) for places in packs]
        from concurrent.futures import ThreadPoolExecutor  # seldom needed, and slow to load

        with ThreadPoolExecutor(_AT_ONCE, "penstock-bodies") as pool:
            tasks = [pool.submit(put, places) for places in packs]
        done = [task.result() for task in tasks if task.exception() is None]
        for task in tasks:
            if (error := task.exception()) is not None:
                self.discard(next(iter(each.values())).name for each in done)
                raise error
        return done

    def _put_pack(
        self, places: Sequence[int], bodies: Sequence[bytes], numbers: Sequence[int]
    ) -> dict[int, Reference]:
        if len(places) == 1:
            return {places[0]: self.put(bodies[0], codec=numbers[places[0]])}
        whole = self.put(b"".join(bodies), "pack")
        made: dict[int, Reference] = {}
        at = 0
        for place, body in zip(places, bodies, strict=True):
            digest = sha256(body).digest()
            made[place] = Reference(whole.place, whole.name, at, len(body), digest, numbers[place])
            at += len(body)
        return made

    def _new_name(self, name: str | None) -> str:
        """Make a name that no other body has, under the present day: a body is never replaced."""
        day = utc(self._clock.now_ns()).date().isoformat()
        unique = f"{day}/{secrets.token_hex(16)}"
        return unique if name is None else f"{unique}/{name}"

    def _present(self) -> BodyStore:
        chosen = self._options().payloads
        assert chosen is not None
        return self._store(chosen.places[0])

    def _store(self, place: BodyLocation) -> BodyStore:
        store = self._stores.get(place)
        if store is None:
            store = self._stores[place] = open_topic_bodies(
                place, self.root, self._store_id, self._topic_id, self._files
            )
        return store

    def _id(self, place: BodyLocation) -> int:
        return references.place_id(self._store_id, self._topic_id, place.address)


def _with_distances(pack: dict[int, Reference]) -> dict[int, Reference]:
    """References of one pack, each knowing how far behind it the last message of the pack is."""
    last = max(pack)
    return {place: reference._replace(left=last - place) for place, reference in pack.items()}


def is_file(value: object) -> TypeGuard[Path | BinaryIO]:
    """Whether a value is to be read from a file."""
    return isinstance(value, Path) or hasattr(value, "read")


def refuse_waiting_file(value: object) -> None:
    """Raise for a file as the value of a message that waits: what waits has its value with it."""
    if is_file(value):
        raise InvalidOption(
            "what is delayed lies in the log", hint="give its bytes, or write it when it is due"
        )


def _joined(begin: bytes, rest: BinaryIO) -> BinaryIO:
    """A file whose beginning was read already."""
    return cast(BinaryIO, _Joined(begin, rest))


class _Joined(io.RawIOBase):
    def __init__(self, begin: bytes, rest: BinaryIO) -> None:
        self._begin = begin
        self._rest = rest

    def read(self, size: int = -1) -> bytes:
        if not self._begin:
            return self._rest.read(size)
        part, self._begin = self._begin[:size], self._begin[size:]
        return part


def stays_inside(values: Sequence[bytes | None], limit: int) -> bool:
    """Whether this is one message whose value lies in the log; False for several, which take the long way."""
    if len(values) != 1:
        return False
    value = values[0]
    return value is None or (value.__class__ is bytes and len(value) <= limit)
