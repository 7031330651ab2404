"""The topic option `payloads=`: when a value lies outside the log, and where.

    payloads="files"                          beside the topics, in the store's own folder
    payloads="s3://bucket/prefix"             in S3, or in what speaks like it
    payloads=Payloads(place=…, above="64KiB")

Credentials are no part of it: they come from the environment, a profile or the machine's role.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from penstock.errors import InvalidOption, WrongType

FILES = "files"
_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
#: Words by which an option is known as a secret, which is not kept.
_SECRET = ("secret", "token", "password", "access_key", "credential", "signature")


class Place(NamedTuple):
    """Where bodies lie: `files`, or an s3:// address with what it takes to get there."""

    address: str
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Payloads:
    """When a value lies outside the log, and where. Sizes are bytes, or text such as "64KiB"."""

    #: "files" is the store's own folder; or s3://bucket/prefix.
    place: str = FILES
    #: Larger values lie outside; 0 is all that have a byte. None: no more, and those outside stay readable.
    above: int | str | None = 64 * _KIB
    #: Bodies up to this size, written together, share an object; 0 gives each its own.
    pack: int | str = _MIB
    #: Larger bodies are refused.
    max_body: int | str = _GIB
    #: For S3: endpoint, region, allow_http. They are kept in the store, so they hold no secret.
    options: Mapping[str, str] = field(default_factory=dict)
    #: Where bodies lay before the place was changed; their messages still name it.
    earlier: tuple[Place, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        from penstock.options import size, whole

        checked_address(self.place)
        for name in ("above", "pack", "max_body"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, size(f"payloads.{name}", given))
            elif name != "above":
                raise WrongType(f"payloads.{name} takes bytes or text like '1MiB', not None")
        whole("payloads.pack", self.pack, 0, 64 * _MIB)
        whole("payloads.max_body", self.max_body, 1, 1024 * _GIB)
        object.__setattr__(self, "options", _checked_options(self.place, self.options))
        earlier = (Place(address, tuple(map(tuple, options))) for address, options in self.earlier)  # type: ignore[arg-type]
        object.__setattr__(self, "earlier", tuple(earlier))

    @property
    def places(self) -> tuple[Place, ...]:
        """The present place, then those before it."""
        return Place(self.place, tuple(sorted(self.options.items()))), *self.earlier

    def after(self, before: Payloads | None) -> Payloads:
        """The same, knowing the places that its topic had before."""
        kept = () if before is None else before.places
        return replace(self, earlier=tuple(each for each in kept if each.address != self.place))

    def ended(self) -> Payloads:
        """No value goes outside any more; those that did are found."""
        return replace(self, above=None)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.place}, above {'never' if self.above is None else self.above}"


def payloads(given: object) -> Payloads | None:
    """The option as a user spells it, understood."""
    if given is None or isinstance(given, Payloads):
        return given
    if isinstance(given, str):
        return Payloads(place=given)
    if isinstance(given, Mapping):
        return Payloads(**given)
    raise WrongType(f"payloads takes a place or Payloads(…), not {type(given).__name__}")


def payloads_after(before: Payloads | None, wanted: Payloads | None) -> Payloads | None:
    """What a topic's payloads become: bodies that lie somewhere are found there for as long as it lives."""
    if wanted is None:
        return None if before is None else before.ended()
    return wanted.after(before)


def checked_address(address: object) -> str:
    """A place that bodies can have; raises for one that is none, or that holds a credential."""
    if not isinstance(address, str):
        raise WrongType(f"payloads.place is a str, not {type(address).__name__}")
    if address == FILES:
        return address
    split_s3(address)
    return address


def split_s3(address: str) -> tuple[str, str]:
    """Bucket and prefix of an s3:// address."""
    parts = urlsplit(address)
    if "@" in parts.netloc:
        raise InvalidOption(
            "an s3:// address holds no credentials",
            hint="give them by the environment, a profile or the machine's role",
        )
    inside = parts.path.strip("/")
    odd = inside and any(part in ("", ".", "..") for part in inside.split("/"))
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment or odd:
        raise InvalidOption("bodies cannot lie there", hint='write it like "files" or "s3://bucket/prefix"')
    return parts.netloc, inside


def refuse_secrets(options: Mapping[str, str]) -> None:
    """Raise when an option that would be kept is a secret."""
    for name in options:
        if any(word in name.lower() for word in _SECRET):
            raise InvalidOption(
                f"option {name!r} is a secret, and options are kept in the store",
                hint="give credentials by the environment, a profile or the machine's role",
            )


def _checked_options(place: str, options: object) -> dict[str, str]:
    if not isinstance(options, Mapping):
        raise WrongType(f"payloads.options is a mapping of text to text, not {type(options).__name__}")
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise WrongType(f"payloads.options takes text by text, not {name!r}: {type(value).__name__}")
    if options and place == FILES:
        raise InvalidOption("payloads.options are for s3:// only", hint="files need none")
    refuse_secrets(options)
    return dict(options)
