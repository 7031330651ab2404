"""Settings: what can be chosen, its unit, its default, and what follows from it.

Durations are given as seconds or as text ("2ms", "30s", "7d"), sizes as bytes or as text
("64KiB", "1MiB"); both are parsed here and nowhere else. Names are checked here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from penstock import codecs
from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption, WrongType

FILES = "files"
_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
#: Words by which an option is known as a secret, which is not kept.
_SECRET = ("secret", "token", "password", "access_key", "credential", "signature")


class BodyLocation(NamedTuple):
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
    earlier: tuple[BodyLocation, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:

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
        earlier = (BodyLocation(address, tuple(map(tuple, options))) for address, options in self.earlier)  # type: ignore[arg-type]
        object.__setattr__(self, "earlier", tuple(earlier))

    @property
    def places(self) -> tuple[BodyLocation, ...]:
        """The present place, then those before it."""
        return BodyLocation(self.place, tuple(sorted(self.options.items()))), *self.earlier

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


KIB = 1024
MIB = 1024 * KIB

#: A frame may not be larger than this, so that a damaged length never makes a reader allocate wildly.
FRAME_BYTES_MAX = 16 * MIB
#: A key is an address, not data.
KEY_BYTES_MAX = 4 * KIB
#: All headers of one message together.
HEADERS_BYTES_MAX = 32 * KIB
#: Producer ids and groups, in characters (S001-41, S001-42).
ID_CHARACTERS_MAX = 2048
#: Seqnos go from 0 to what 63 bits hold.
SEQNO_MAX = 2**63 - 1
#: Most a topic may have: six digits name a partition's folder.
PARTITIONS_MAX = 10_000

#: Entries in a topic's list of codecs (B001-07).
CODECS_MAX = 100

#: The first and last moment that fit into 64 bits of nanoseconds.
TIME_MIN_NS = -(2**63)
TIME_MAX_NS = 2**63 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Duration = float | str | timedelta
Size = int | str
Sync = Literal["disk", "os"]

#: What is to wait longer is a mistake, not a plan.
WAIT_MAX_S = 365 * 86400.0
#: Where to read from or to: an offset, an offset per partition, "earliest", "latest" (after the end),
#: "last" (the last message there is), an age ("2h" ago), or a moment.
Place = int | Mapping[int, int] | str | datetime

_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|µs|ms|s|m|min|h|d|w)\s*")
_SECONDS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0,
    "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB|K|M|G|T)?\s*", re.IGNORECASE)
_BYTES = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, kw_only=True)
class TopicOptions:
    """What a topic promises. Kept in the store; `alter` changes what may change."""

    #: How many logs the topic is divided into. One gives a total order; more let writers go in parallel.
    partitions: int = 1
    #: Messages older than this many seconds are removed; None keeps them for ever.
    retention_s: float | None = None
    #: Each partition is held to about this many bytes, oldest segments go first; None is no limit.
    max_bytes: int | None = None
    #: "disk": acknowledged means it survives a power cut. "os": it survives a crash of the process.
    sync: Sync = "disk"
    #: A segment is the unit that is deleted and repacked; smaller ones free space sooner.
    segment_bytes: int = 64 * MIB
    #: A segment older than this is sealed with the next write, so that quiet topics age out too.
    segment_age_s: float = 86400.0
    #: The largest value stored in the log itself.
    max_message_bytes: int = MIB
    #: How a key chooses its partition: "range" (splits move half a range), "diskq" or "kafka".
    partitioner: str = "range"
    #: Which codecs a writer may use, by name, custom ones by number; empty allows all.
    codecs: tuple[str, ...] = ()
    #: "zstd" compresses each batch as a whole before it is stored; None stores it as it is.
    compress: str | None = None
    #: "key" lets messages be read by their key or its beginning; None saves the space that takes.
    index: str | None = None
    #: Messages of some keys live shorter than `retention_s`: (pattern, seconds), as in `penstock.lifetimes`.
    key_retention: tuple[tuple[str, float], ...] = ()
    #: Where values lie that are too large for the log, and from what size on; None keeps all in the log.
    payloads: Payloads | None = None

    def __post_init__(self) -> None:
        whole("partitions", self.partitions, 1, PARTITIONS_MAX)
        whole("segment_bytes", self.segment_bytes, 4 * KIB, 2048 * MIB)
        whole("max_message_bytes", self.max_message_bytes, 1, FRAME_BYTES_MAX - MIB)
        if self.max_bytes is not None:
            whole("max_bytes", self.max_bytes, 1, 2**62)
        if self.segment_age_s is None:
            raise WrongType("segment_age takes seconds or text like '7d', not None")
        one_of("sync", self.sync, ("disk", "os"))
        one_of("partitioner", self.partitioner, ("range", "diskq", "kafka"))
        object.__setattr__(self, "codecs", codec_list(self.codecs))
        if self.compress is not None:
            one_of("compress", self.compress, ("zstd",))
        if self.index is not None:
            one_of("index", self.index, ("key",))
        object.__setattr__(self, "key_retention", tuple((text, age) for text, age in self.key_retention))
        self._check_key_retention()
        object.__setattr__(self, "payloads", payloads(self.payloads))

    def _check_key_retention(self) -> None:
        if self.key_retention and self.index != "key":
            raise InvalidOption('key_retention needs index="key"', hint="give the topic one, or no lifetimes")
        kept = self.retention_s
        for text, age in self.key_retention:
            if kept is not None and age > kept:
                raise InvalidOption(
                    f"key_retention[{text[:60]!r}], {age:g} s, is longer than retention, {kept:g} s",
                    hint='raise retention, and give the other keys the pattern "*"',
                )

    @property
    def inline_bytes(self) -> int:
        """Values up to this size lie in the log."""
        if self.payloads is None or self.payloads.above is None:
            return self.max_message_bytes
        return min(int(self.payloads.above), self.max_message_bytes)

    @property
    def value_bytes(self) -> int:
        """The largest value that can be written, wherever it lies."""
        if self.payloads is None or self.payloads.above is None:
            return self.max_message_bytes
        return max(int(self.payloads.max_body), self.inline_bytes)

    @property
    def retention_ns(self) -> int | None:
        return None if self.retention_s is None else round(self.retention_s * NANOSECONDS)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def altered(self, changes: Mapping[str, Any]) -> TopicOptions:
        """These with changes as a user spells them; raises `InvalidOption` for what stays as it is."""
        fields = topic_changes(changes)
        if fields.get("sync", self.sync) != self.sync:
            raise InvalidOption(
                "sync cannot be changed later", hint="a writer may choose its own: writer(sync=…)"
            )
        if "payloads" in fields:
            fields["payloads"] = payloads_after(self.payloads, fields["payloads"])
        return replace(self, **fields)


#: What `create_topic` and `alter` call an option, where it is not the field's own name.
_SPOKEN = {"retention": "retention_s", "segment_age": "segment_age_s"}
_PARSERS = {"retention_s": "duration", "segment_age_s": "duration"}
_SIZES = ("max_bytes", "segment_bytes", "max_message_bytes")
#: Options of `create_topic` that later parts bring; asking for them today is answered clearly.
_NOT_YET: dict[str, tuple[Any, ...]] = {"autopartitioning": ("disabled", None)}


def topic_changes(spoken: Mapping[str, Any]) -> dict[str, Any]:
    """Turn options as a user spells them into fields of `TopicOptions`, each checked."""
    known = {field.name for field in fields(TopicOptions)}
    changes: dict[str, Any] = {}
    for name, value in spoken.items():
        if name in _NOT_YET:
            if value not in _NOT_YET[name]:
                raise InvalidOption(f"{name}={value!r} is not supported by this version")
            continue
        field = _SPOKEN.get(name, name)
        if field not in known or (field in _SPOKEN.values() and name == field):
            options = sorted((known - set(_SPOKEN.values())) | set(_SPOKEN) | set(_NOT_YET))
            raise InvalidOption(f"unknown topic option {name!r}", hint=f"options: {', '.join(options)}")
        if field in _PARSERS:
            value = None if value is None else seconds(name, value)
        elif field in _SIZES:
            value = None if value is None else size(name, value)
        elif field == "codecs":
            value = codec_list(value)
        elif field == "key_retention":
            value = _key_retention(value)
        elif field == "payloads":
            value = payloads(value)
        elif field == "compress" and value == "zstd":
            codecs.encoder(codecs.ZSTD)  # a missing library is said now, not with the first message
        changes[field] = value
    return changes


def _key_retention(given: object) -> tuple[tuple[str, float], ...]:
    from penstock.log.key_retention import rules_of  # it stands on keys, which stand on what is here

    return rules_of(given)


def codec_list(given: object) -> tuple[str, ...]:
    """A list of codecs by the names that last, each once, by number; None is an empty one."""
    if given is None:
        return ()
    if isinstance(given, (str, int)) or not isinstance(given, Iterable):
        raise WrongType(f"codecs takes a list of names or numbers, not {type(given).__name__}")
    numbers = sorted({codecs.number_of(each) for each in given})
    if len(numbers) > CODECS_MAX:
        raise InvalidOption(f"{len(numbers)} codecs: {CODECS_MAX} are allowed")
    return tuple(map(codecs.lasting_name, numbers))


def seconds(name: str, value: Duration) -> float:
    """A duration in seconds from a number, a timedelta or text such as "2ms" or "7d"."""
    if isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None:
            raise InvalidOption(
                f"{name}={value!r} is not a duration", hint='write it like "30s", "2h" or "7d"'
            )
        result = float(match[1]) * _SECONDS[match[2]]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        result = float(value)
    else:
        raise WrongType(f"{name} takes seconds or text like '7d', not {type(value).__name__}")
    if not 0 <= result < 1e10:
        raise InvalidOption(f"{name}={value!r} must be between 0 and 300 years")
    return result


def wait_seconds(name: str, value: Duration) -> float:
    """How long something is to wait: more than nothing, and no longer than a year."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0:
        raise InvalidOption(f"{name}={value!r} is negative", hint="a wait is longer than nothing")
    found = seconds(name, value)
    if found == 0:
        raise InvalidOption(f"{name}={value!r} is no wait", hint="leave it out for at once")
    if found > WAIT_MAX_S:
        raise InvalidOption(f"{name}={value!r} is more than a year", hint="a year at most")
    return found


def size(name: str, value: Size) -> int:
    """A size in bytes from a number or text such as "64MiB"."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise InvalidOption(f"{name}={value!r} is not a size", hint='write it like "64KiB" or "1GiB"')
        return round(float(match[1]) * _BYTES[(match[2] or "").lower()])
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise InvalidOption(f"{name}={value} is negative")
        return value
    raise WrongType(f"{name} takes bytes or text like '64MiB', not {type(value).__name__}")


def whole(name: str, value: object, least: int, most: int) -> int:
    """An integer within its limits."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongType(f"{name} takes an integer, not {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidOption(f"{name}={value} is out of range: {least} to {most}")
    return value


def one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidOption(f"{name}={value!r} is not known", hint=f"choices: {', '.join(choices)}")


def topic_name(name: object) -> str:
    """A topic's name: it is also a folder, a Kafka topic and a part of URLs, so it stays plain."""
    return _plain_name("topic", name)


def consumer_name(name: object) -> str:
    """A consumer's name, as plain as a topic's."""
    return _plain_name("consumer", name)


def pipeline_name(name: object) -> str:
    """A pipeline's name: it is also a folder."""
    return _plain_name("pipeline", name)


def _plain_name(what: str, name: object) -> str:
    if not isinstance(name, str):
        raise WrongType(f"a {what} name is a str, not {type(name).__name__}")
    if _NAME.fullmatch(name) is None:
        raise InvalidOption(
            f"{name[:60]!r} cannot be the name of a {what}",
            hint="1 to 200 letters, digits, '.', '_' or '-', not starting with '.' or '-'",
        )
    return name


def identifier(what: str, value: object) -> str:
    """A producer id or group: any text up to 2048 characters (S001-41, S001-42)."""
    if not isinstance(value, str):
        raise WrongType(f"{what} is a str, not {type(value).__name__}")
    if not 1 <= len(value) <= ID_CHARACTERS_MAX:
        raise InvalidOption(f"{what} of {len(value)} characters: 1 to {ID_CHARACTERS_MAX} are allowed")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidOption(f"{what} holds a lone surrogate and cannot be stored as UTF-8") from None
    return value


def nanoseconds(name: str, value: int | datetime) -> int:
    """A moment as nanoseconds since 1970, UTC; before 1970 is fine, past 2262 does not fit."""
    if isinstance(value, datetime):
        value = datetime_ns(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongType(f"{name} takes nanoseconds or a datetime, not {type(value).__name__}")
    if not TIME_MIN_NS <= value <= TIME_MAX_NS:
        raise InvalidOption(f"{name}={value} does not fit: moments from 1677 to 2262 can be stored")
    return value


def datetime_ns(moment: datetime) -> int:
    """Exact nanoseconds of a datetime; one without a zone is local time, as everywhere in Python."""
    aware = moment if moment.tzinfo is not None else moment.astimezone()
    delta = aware - _EPOCH
    return (delta.days * 86400 + delta.seconds) * NANOSECONDS + delta.microseconds * 1000


def utc(moment_ns: int) -> datetime:
    """A moment as a datetime, floored to the microsecond."""
    return _EPOCH + timedelta(microseconds=moment_ns // 1000)


@dataclass(frozen=True)
class Spot:
    """A `Place`, understood: a fixed end of the log, an offset, or a moment (`written_at`)."""

    kind: Literal["earliest", "latest", "last", "offset", "time"]
    value: int = 0


EARLIEST = Spot("earliest")
LATEST = Spot("latest")
LAST = Spot("last")


def spot(place: Place, partition: int, now_ns: int) -> Spot:
    """Understand a `Place` for one partition.

    A mapping that leaves the partition out means "earliest" for it: a partition added later
    begins at its beginning.
    """
    if isinstance(place, Mapping):
        if partition not in place:
            return EARLIEST
        place = place[partition]
    if isinstance(place, bool):
        raise WrongType("a place is an offset, not a bool")
    if isinstance(place, int):
        if place < 0:
            raise InvalidOption(f"offset {place} is negative", hint='offsets begin at 0; "latest" is the end')
        if place >= 2**63:
            raise InvalidOption(f"offset {place} does not fit into 63 bits")
        return Spot("offset", place)
    if isinstance(place, datetime):
        return Spot("time", nanoseconds("place", place))
    if isinstance(place, str):
        return _spot_of_text(place, now_ns)
    raise WrongType(f"a place is an offset, a name, an age or a datetime, not {type(place).__name__}")


def _spot_of_text(place: str, now_ns: int) -> Spot:
    named = {"earliest": EARLIEST, "latest": LATEST, "last": LAST}.get(place)
    if named is not None:
        return named
    if place.isdecimal():
        return spot(int(place), 0, now_ns)
    if _DURATION.fullmatch(place):
        return Spot("time", now_ns - round(seconds("place", place) * NANOSECONDS))
    try:
        return Spot("time", datetime_ns(datetime.fromisoformat(place)))
    except ValueError:
        raise InvalidOption(
            f"{place!r} is not a place",
            hint='use an offset, "earliest", "latest", "last", an age like "2h", or an ISO time',
        ) from None
