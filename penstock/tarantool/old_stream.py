"""A MiniToolStream as its makers left it: its rows in Tarantool, and its bodies by their plain names."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import BodyMissing, DataError, InvalidOption, UsageError
from penstock.parse import MIB
from penstock.payloads.open import open_bodies
from penstock.tarantool.connection import Link
from penstock.tarantool.engine import DIGEST_HEADER

_AT_ONCE = 1000

#: What a field is called, in one version or another.
_NAMES = {
    "sequence": ("sequence", "seq", "id"),
    "subject": ("subject", "channel", "topic"),
    "object_name": ("object_name", "object_key", "minio_key", "s3_key", "key"),
    "create_at": ("create_at", "created_at", "timestamp", "time"),
    "headers": ("headers",),
    "body": ("data_msgpack", "data"),
}
_NEEDED = ("sequence", "subject", "object_name", "create_at")
#: Fields that became headers later.
_AS_HEADERS = {"content_type": "content-type", "content-type": "content-type", "size": "size"}

_SPACES = """
local found = {}
for _, name in ipairs({'message', 'messages', 'sequences', 'consumers', 'penstock'}) do
    local space = box.space[... .. name]
    if space ~= nil then
        local fields, key = {}, {}
        for i, field in ipairs(space:format()) do fields[i] = field.name end
        for i, part in ipairs(space.index[0].parts) do key[i] = part.fieldno end
        found[name] = {count = space:len(), fields = fields, key = key}
    end
end
return found
"""
_PAGE = """
local name, after, limit = ...
local options = {iterator = after ~= nil and 'GT' or 'ALL', limit = limit}
return box.space[name].index[0]:select(after, options)
"""
_COUNTER = "local found = box.space[... .. 'penstock']:get('sequence') return found ~= nil and found[2] or 0"


@dataclass(frozen=True, slots=True)
class OldMessage:
    """A message as it was found."""

    sequence: int
    subject: str
    object_name: str
    create_at: int
    headers: dict[str, str]
    #: Its body, where the message itself had it.
    body: bytes | None = None
    #: The digest of its body, where Penstock stored it.
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class _Space:
    name: str
    count: int
    fields: tuple[str, ...]
    key: tuple[int, ...]


class OldStream:
    """The messages and positions of a MiniToolStream, or of a stream in Tarantool."""

    def __init__(self, link: Link, prefix: str = "") -> None:
        self._link = link
        found = link.eval(_SPACES, prefix)
        spaces = {name: _space(prefix + name, found[name]) for name in found}
        messages = spaces.get("message") or spaces.get("messages")
        if messages is None:
            raise UsageError(
                f"Tarantool {link.address} has no space {prefix}message, nor {prefix}messages",
                hint="see that it is the right instance, and that the user may read its spaces",
            )
        self._messages = messages
        self._consumers = spaces.get("consumers")
        self._counter = link.eval(_COUNTER, prefix) if "penstock" in spaces else 0
        self._places = _places(messages)

    @property
    def layout(self) -> str:
        """The names of its spaces, as people know it by."""
        return "message, consumers" if self._messages.name.endswith("message") else "messages, sequences"

    @property
    def is_global(self) -> bool:
        """Whether one sequence counts for all subjects."""
        return self._messages.key == (self._places["sequence"] + 1,)

    @property
    def count(self) -> int:
        """How many messages there are."""
        return self._messages.count

    def messages(self, after: int = 0) -> Iterator[OldMessage]:
        """All messages with a sequence above `after`; those of subjects that count for themselves, all."""
        place: Any = [after] if self.is_global and after else None
        while page := self._page(self._messages, place):
            yield from map(self._message, page)
            place = [page[-1][number - 1] for number in self._messages.key]

    def get(self, sequence: int) -> OldMessage | None:
        """The message of a sequence that counts for all."""
        found = next(self.messages(sequence - 1), None)
        return found if found is not None and found.sequence == sequence else None

    def positions(self) -> list[tuple[str, str, int]]:
        """(durable name, subject, last sequence read) of all consumers."""
        found: list[tuple[str, str, int]] = []
        if self._consumers is None:
            return found
        place = None
        while page := self._page(self._consumers, place):
            found += [(each[0], each[1], each[2]) for each in page]
            place = page[-1][:2]
        return found

    def last_sequence(self, positions: Sequence[tuple[str, str, int]]) -> int:
        """The highest sequence that was ever given, as far as anything there tells."""
        newest = self._link.eval(
            "local m = box.space[...].index[0]:max() return m and m[1]", self._messages.name
        )
        read = [last for _, _, last in positions if last < 2**53]
        return max([self._counter, newest or 0, *read])

    def _page(self, space: _Space, after: Any) -> list[Any]:
        return list(self._link.eval(_PAGE, space.name, after, _AT_ONCE))

    def _message(self, found: Any) -> OldMessage:
        def field(name: str) -> Any:
            place = self._places.get(name)
            return found[place] if place is not None and place < len(found) else None

        headers = _texts(field("headers"))
        for place, name in enumerate(self._messages.fields):
            if name in _AS_HEADERS and place < len(found) and found[place] is not None:
                headers.setdefault(_AS_HEADERS[name], str(found[place]))
        body = field("body")
        return OldMessage(
            field("sequence"), field("subject"), field("object_name") or "", int(field("create_at")), headers,
            body.encode() if isinstance(body, str) else body, headers.pop(DIGEST_HEADER, None),
        )  # fmt: skip


def _space(name: str, found: Any) -> _Space:
    return _Space(name, found["count"], tuple(found["fields"]), tuple(found["key"]))


def _places(space: _Space) -> dict[str, int]:
    """Where each field lies in a tuple."""
    found = {
        field: space.fields.index(name)
        for field, names in _NAMES.items()
        for name in reversed(names)
        if name in space.fields
    }
    missing = [field for field in _NEEDED if field not in found]
    if missing:
        raise DataError(
            f"space {space.name} has no field for {', '.join(missing)}: it has {', '.join(space.fields)}",
            hint="give its fields such names with space:format(), and try again",
        )
    return found


def _texts(headers: Any) -> dict[str, str]:
    """Headers as a stream has them; an empty array was meant as none."""
    return {str(name): str(value) for name, value in headers.items()} if isinstance(headers, dict) else {}


#: Bodies that are fetched at the same time.
_BODIES_AT_ONCE = 16
#: Larger ones pass through a file, so that memory does not grow with them.
IN_MEMORY_BYTES = MIB

#: A body, or the file it lies in.
Body = bytes | Path
Fetch = Callable[[str], Body]


class OldBodies:
    """Where the bodies are: `s3://bucket/prefix`, or a folder. Names are used as they are."""

    def __init__(self, place: str) -> None:
        self._plain = self._bucket(place) if place.startswith("s3://") else _folder(place)
        self._own = open_bodies(place, exact=True)
        self._downloads = tempfile.TemporaryDirectory(prefix="penstock-migration-")

    def fetch(self, messages: Iterable[OldMessage]) -> list[Body | None]:
        """The bodies of messages, in their order; None for one that is missing."""
        with ThreadPoolExecutor(_BODIES_AT_ONCE, thread_name_prefix="penstock-bodies") as threads:
            return list(threads.map(self._body, messages))

    def done(self, body: Body) -> None:
        """Remove the download of a body that was stored."""
        if isinstance(body, Path) and body.parent == Path(self._downloads.name):
            body.unlink()

    def close(self) -> None:
        """Remove the folder of downloads."""
        self._downloads.cleanup()

    def _body(self, message: OldMessage) -> Body | None:
        if message.body is not None:
            return message.body
        if not message.object_name:
            return b""
        try:
            if message.digest is None:
                return self._plain(message.object_name)
            with self._own.open(message.object_name) as opened:
                return self._passed(iter(lambda: opened.read(IN_MEMORY_BYTES), b""))
        except BodyMissing:
            return None

    def _bucket(self, place: str) -> Fetch:
        bodies = open_bodies(place, exact=True)

        def fetch(name: str) -> Body:
            with bodies.open(name) as opened:
                return self._passed(iter(lambda: opened.read(IN_MEMORY_BYTES), b""))

        return fetch

    def _passed(self, pieces: Iterator[bytes]) -> Body:
        """Return a small body as bytes; download a large one into a file."""
        first, second = next(pieces, b""), next(pieces, b"")
        if not second:
            return first
        file, path = tempfile.mkstemp(dir=self._downloads.name)
        with open(file, "wb") as opened:
            opened.writelines((first, second))
            opened.writelines(pieces)
        return Path(path)


def _folder(place: str) -> Fetch:
    root = Path(place).resolve()
    if not root.is_dir():
        raise InvalidOption(f"{place} is not a folder", hint="name the folder that holds the bodies")

    def fetch(name: str) -> Body:
        path = Path(os.path.normpath(root / name.lstrip("/")))
        if not path.is_relative_to(root) or not path.is_file():
            raise BodyMissing(name, str(root))
        return path if path.stat().st_size > IN_MEMORY_BYTES else path.read_bytes()

    return fetch
