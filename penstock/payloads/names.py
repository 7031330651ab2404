"""From a body's name to its path in a folder or a bucket, and back.

Names are free text; paths are not: a folder has limits on length, and "." and ".." mean something.

`EscapedNames` are those of a topic's own bodies. The parts between slashes become parts of a path. Within a
part "%xx" stands for what may not be there. Folders end in "=", so that the bodies `a` and `a/b` can both be.
What is too long for a path lies under the digest of its name, with the name beside it:

    images/2026/cat.png     images=/2026=/cat.png
    ../secret               %2E%2E=/secret
    (1000 characters)       %long/<sha256>/body  and  %long/<sha256>/name

`ExactNames` are those of a place that is shared with others: a body's name is its path, so that any client
finds it. Only what a place cannot hold lies under its digest: empty parts and parts "." and "..", control
characters, parts over 255 bytes, names that are too long, and in a folder a name within another name.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Protocol

from penstock.errors import InvalidOption, WrongType

#: Characters of a name.
NAME_CHARACTERS_MAX = 1000
#: What the part of a path may have: file systems end at 255 bytes.
_PART_BYTES_MAX = 200
#: And all of it: S3 ends at 1024 bytes, of which a prefix takes some.
_PATH_BYTES_MAX = 600
#: What a part of an exact name may have: file systems, and servers that keep objects in one, end here.
_PART_BYTES_EXACT = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

LONG = "%long"
#: Files on their way: no part of an escaped name.
TEMPORARY = "%tmp"
_BODY, _NAME = "body", "name"
_EMPTY = "%-"

#: Control characters, our own marks, a backslash (some tools take it for a slash), a dot in front, a space or
#: a dot at the end, and what obstore would not leave alone.
_UNSAFE = re.compile(r"""[\x00-\x1f\x7f%=\\{}^`\[\]"<>~#|*?:]|^\.|[. ]$""")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")


def checked_name(name: object) -> str:
    """A name that a body can have; raises `InvalidOption` for others."""
    if not isinstance(name, str):
        raise WrongType(f"a body's name is a str, not {type(name).__name__}")
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        raise InvalidOption(
            f"a body's name of {len(name)} characters: 1 to {NAME_CHARACTERS_MAX} are allowed"
        )
    if "\0" in name:
        raise InvalidOption("a body's name cannot hold a zero byte")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidOption("a body's name holds a lone surrogate and cannot be stored as UTF-8") from None
    return name


def path_of(name: str) -> str:
    """Where the body of that name lies, below its store."""
    *folders, last = checked_name(name).split("/")
    path = "/".join([*(f"{_escape(part)}=" for part in folders), _escape(last) or _EMPTY])
    parts = path.split("/")
    if len(path.encode()) > _PATH_BYTES_MAX or any(len(part.encode()) > _PART_BYTES_MAX for part in parts):
        return _digest_path(name)
    return path


def _digest_path(name: str) -> str:
    return f"{LONG}/{sha256(name.encode()).hexdigest()}/{_BODY}"


def note_of(path: str) -> str | None:
    """Where the name is noted of a body that lies at `path` under its digest; None when it needs none."""
    return path.removesuffix(_BODY) + _NAME if path.startswith(f"{LONG}/") else None


def is_body(path: str) -> bool:
    """Whether a body lies at `path`, and not a note or something on its way."""
    return not path.startswith(f"{TEMPORARY}/") and not (
        path.startswith(f"{LONG}/") and path.endswith(f"/{_NAME}")
    )


def name_of(path: str) -> str:
    """The name of the body at `path`, unless it lies under its digest."""
    *folders, last = path.split("/")
    parts = [*(part.removesuffix("=") for part in folders), "" if last == _EMPTY else last]
    return "/".join(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), part) for part in parts)


def folder_of(prefix: str) -> str:
    """The folder that holds every body whose name begins with `prefix`, but for those under their digests."""
    return "".join(f"{_escape(part)}=/" for part in prefix.split("/")[:-1])


def _escape(part: str) -> str:
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", part)


class NameScheme(Protocol):
    """How names become paths."""

    def paths(self, name: str) -> tuple[str, ...]:
        """Where the body of that name may lie: it is put at the first path that the place can hold."""

    def name_of(self, path: str) -> str:
        """The name of the body at `path`, unless it lies under its digest."""

    def folder_of(self, prefix: str) -> str:
        """The folder of all bodies whose names begin with `prefix`, but for those under their digests."""


class EscapedNames:
    """Names as paths that are safe everywhere."""

    def paths(self, name: str) -> tuple[str, ...]:
        """Return where a body may lie: its escaped name."""
        return (path_of(name),)

    def name_of(self, path: str) -> str:
        """Return the name of the body at a path."""
        return name_of(path)

    def folder_of(self, prefix: str) -> str:
        """Return the folder that holds all names with this prefix."""
        return folder_of(prefix)


class ExactNames:
    """Names that are paths themselves, of `room` bytes at most; bodies under escaped names are found too."""

    def __init__(self, room: int) -> None:
        self._room = room

    def paths(self, name: str) -> tuple[str, ...]:
        """Return where a body may lie: its exact name, its digest, its escaped name."""
        exact = (name,) if self._can_be_held(checked_name(name)) else ()
        return tuple(dict.fromkeys((*exact, _digest_path(name), path_of(name))))

    def name_of(self, path: str) -> str:
        """Return the name of the body at a path: the path itself."""
        return path

    def folder_of(self, prefix: str) -> str:
        """Return the folder that holds all names with this prefix."""
        return prefix[: prefix.rfind("/") + 1]

    def _can_be_held(self, name: str) -> bool:
        parts = name.split("/")
        return (
            len(name.encode()) <= self._room
            and parts[0] not in (LONG, TEMPORARY)
            and _CONTROL.search(name) is None
            and all(part not in ("", ".", "..") and len(part.encode()) <= _PART_BYTES_EXACT for part in parts)
        )
