"""Subjects, durable names and sequences of a stream: what they may be, and what a pattern asks for.

    "orders"      that subject
    "images.*"    all subjects that begin with "images."
    "*"           all subjects

The star ends a pattern and is no part of any subject, so that a text is never both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.errors import InvalidOption, MessageTooLarge, WrongType
from penstock.parse import ID_CHARACTERS_MAX, KEY_BYTES_MAX, identifier, whole

#: Sequences are offsets plus one, and offsets have 63 bits.
SEQUENCE_MAX = 2**63 - 1
#: What may be asked for: the original's sequences are unsigned.
ASKED_MAX = 2**64 - 1
#: More are not asked for in one call; the caller asks again behind the last one.
LIMIT_MAX = 1_000_000

#: Headers that carry what is no header for the users of a stream. A body that lies in the message itself,
#: under a name that its publisher gave:
OBJECT_HEADER = "penstock-object"
#: A body that lies elsewhere, under this name:
ELSEWHERE_HEADER = "penstock-elsewhere"
_RESERVED = "penstock-"


class SubjectQuery(NamedTuple):
    """Which subjects are asked for: one, or all that begin with a text."""

    text: str
    is_prefix: bool = False

    def takes(self, subject: str) -> bool:
        """Whether the subject is asked for."""
        return subject.startswith(self.text) if self.is_prefix else subject == self.text


EVERYTHING = SubjectQuery("", is_prefix=True)


def asked(pattern: object) -> SubjectQuery:
    """What a subject or a pattern asks for."""
    if type(pattern) is str and pattern and "*" not in pattern:
        return SubjectQuery(checked_subject(pattern))
    if isinstance(pattern, str) and pattern.endswith("*") and pattern.count("*") == 1:
        return EVERYTHING if pattern == "*" else SubjectQuery(checked_subject(pattern[:-1]), is_prefix=True)
    return SubjectQuery(checked_subject(pattern))


def checked_pattern(pattern: object) -> str:
    """A subject or a pattern, as it was given and as positions are stored; raises for what is neither."""
    if type(pattern) is str and pattern and len(pattern) <= KEY_BYTES_MAX // 4 and "*" not in pattern:
        return pattern
    wanted = asked(pattern)
    return f"{wanted.text}*" if wanted.is_prefix else wanted.text


def checked_subject(subject: object) -> str:
    """A subject that messages may have: any text without a star, up to what a key may be."""
    if not isinstance(subject, str):
        raise WrongType(f"a subject is a str, not {type(subject).__name__}")
    if not subject:
        raise InvalidOption("the subject is empty", hint='a pattern for all subjects is "*"')
    if "*" in subject:
        raise InvalidOption(
            f"subject {subject[:60]!r} holds a star", hint='a star only ends a pattern, as in "images.*"'
        )
    # A character has four bytes at most, so most subjects need not be encoded to be measured.
    if len(subject) > KEY_BYTES_MAX // 4 and len(_utf8("the subject", subject)) > KEY_BYTES_MAX:
        raise MessageTooLarge(f"a subject is over the limit of {KEY_BYTES_MAX} bytes")
    return subject


def checked_durable(name: object) -> str:
    """The name of a durable consumer: any text but the empty one."""
    if type(name) is str and name and len(name) <= ID_CHARACTERS_MAX and name.isascii():
        return name
    return identifier("durable_name", name)


def checked_sequence(name: str, sequence: object, least: int = 1) -> int:
    """A sequence number within what there can ever be."""
    if type(sequence) is int and least <= sequence <= SEQUENCE_MAX:
        return sequence
    return whole(name, sequence, least, SEQUENCE_MAX)


def asked_sequence(name: str, sequence: object) -> int:
    """A sequence number to look for: any of 64 bits, also one that no message ever has."""
    if type(sequence) is int and 0 <= sequence <= ASKED_MAX:
        return sequence
    return whole(name, sequence, 0, ASKED_MAX)


def checked_limit(limit: object, least: int = 1) -> int:
    """How many messages are asked for."""
    return whole("limit", limit, least, LIMIT_MAX)


def checked_object_name(name: object) -> str:
    """The name of a body: any text but the empty one, slashes included."""
    if not isinstance(name, str):
        raise WrongType(f"object_name is a str, not {type(name).__name__}")
    if not name:
        raise InvalidOption("object_name is empty", hint="publish() takes a message without a body")
    return name


def own_sequence(name: str) -> int | None:
    """The sequence in a name of our own making, `<subject>_<sequence>`; None in any other."""
    digits = name.rpartition("_")[2]
    if not digits.isdecimal() or not digits.isascii() or len(digits) > len(str(SEQUENCE_MAX)):
        return None
    return int(digits) if 0 < int(digits) <= SEQUENCE_MAX else None


def checked_stream_headers(headers: Mapping[Any, Any] | None) -> Mapping[str, str] | None:
    """Headers of a stream's message: text under text; None when there are none."""
    if headers is None:
        return None
    if type(headers) is not dict and not isinstance(headers, Mapping):
        raise WrongType(f"headers are a mapping of names to values, not {type(headers).__name__}")
    for name, value in headers.items():
        if type(name) is not str or type(value) is not str:
            raise WrongType(
                f"header {name!r} is {type(value).__name__}: headers of a stream are text under text",
                hint="str() makes text of a number",
            )
        if name.startswith(_RESERVED):
            raise InvalidOption(
                f"header {name!r} begins as Penstock's own do", hint="choose another name for it"
            )
    return headers or None


def _utf8(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidOption(f"{what} holds a lone surrogate and cannot be stored as UTF-8") from None
