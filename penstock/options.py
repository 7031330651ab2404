"""Settings of a topic: what can be chosen, its unit, its default, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from penstock import codecs
from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption, MissingExtra, WrongType
from penstock.growth_rules import DISABLED, growth_mode, refuse_disabling, refuse_growth, refuse_total_order
from penstock.parse import FRAME_BYTES_MAX, KIB, MIB, PARTITIONS_MAX, Duration, one_of, seconds, size, whole

FILES = "files"
_GIB = 1024 * MIB
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
    above: int | str | None = 64 * KIB
    #: Bodies up to this size, written together, share an object; 0 gives each its own.
    pack: int | str = MIB
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
        whole("payloads.pack", self.pack, 0, 64 * MIB)
        whole("payloads.max_body", self.max_body, 1, 1024 * _GIB)
        object.__setattr__(self, "options", _checked_options(self.place, self.options))
        earlier = (BodyLocation(address, tuple(map(tuple, options))) for address, options in self.earlier)  # type: ignore[arg-type]
        object.__setattr__(self, "earlier", tuple(earlier))

    @property
    def places(self) -> tuple[BodyLocation, ...]:
        """The present place, then those before it."""
        return BodyLocation(self.place, tuple(sorted(self.options.items()))), *self.earlier

    def after(self, before: Payloads | None) -> Payloads:
        """Return these payloads with the places that the topic had before."""
        kept = () if before is None else before.places
        return replace(self, earlier=tuple(each for each in kept if each.address != self.place))

    def ended(self) -> Payloads:
        """Return these with no value going outside any more; bodies that lie there are still found."""
        return replace(self, above=None)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as they are stored."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.place}, above {'never' if self.above is None else self.above}"


def payloads(given: object) -> Payloads | None:
    """Return the option `payloads` as users spell it (a place, a mapping, or `Payloads`), parsed."""
    if given is None or isinstance(given, Payloads):
        return given
    if isinstance(given, str):
        return Payloads(place=given)
    if isinstance(given, Mapping):
        return Payloads(**given)
    raise WrongType(f"payloads takes a place or Payloads(…), not {type(given).__name__}")


def require_library(chosen: Payloads | None) -> None:
    """Raise `MissingExtra` for a place in S3 where nothing is installed that speaks to it."""
    if chosen is not None and chosen.place != FILES:
        require_obstore()


def require_obstore() -> None:
    """Raise `MissingExtra` unless obstore is there, which is not loaded for it."""
    if find_spec("obstore") is None:
        raise MissingExtra("obstore, which speaks to S3,", "s3")


def payloads_after(before: Payloads | None, wanted: Payloads | None) -> Payloads | None:
    """What a topic's payloads become: bodies that lie somewhere are found there for as long as it lives."""
    if wanted is None:
        return None if before is None else before.ended()
    return wanted.after(before)


def checked_address(address: object) -> str:
    """Return the address of a place for bodies; raise for one that is wrong, or that holds a credential."""
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


#: Entries in a topic's list of codecs (B001-07).
CODECS_MAX = 100


Sync = Literal["disk", "os"]


#: All of them are read whenever one looks whether they changed.
RULES_MOST = 1000

#: A pattern as text, and seconds.
Rule = tuple[str, float]


def rules_of(given: object) -> tuple[Rule, ...]:
    """What a user gave as `key_retention`, checked, in the order of its patterns; None is no rules."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise WrongType(
            f"key_retention takes a dict, not {type(given).__name__}", hint='such as {"progress.*": "10m"}'
        )
    if len(given) > RULES_MOST:
        raise InvalidOption(
            f"{len(given)} patterns in key_retention: {RULES_MOST} are allowed",
            hint='name the beginning that keys share: "progress.*"',
        )
    return tuple(sorted(dict(_rule(pattern, lifetime) for pattern, lifetime in given.items()).items()))


def _rule(pattern: str | Sequence[Any], lifetime: Duration) -> Rule:
    from penstock.keys import canonical, checked_key, spoken_prefix  # loads msgspec; executors have none

    if isinstance(pattern, str):
        pattern = spoken_prefix(pattern)
    elif not isinstance(pattern, (list, tuple)):
        raise WrongType(
            f"a pattern of key_retention is text or a tuple, not {type(pattern).__name__}",
            hint='"progress.*", or ("chat", 345)',
        )
    text = pattern if isinstance(pattern, str) else canonical(pattern).decode()
    checked_key(text)
    lasting = seconds(f"key_retention[{text[:60]!r}]", lifetime)
    if lasting == 0:
        raise InvalidOption(f"key_retention[{text[:60]!r}] is 0", hint="such messages could never be read")
    return text, lasting


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
    #: Messages of some keys live shorter than `retention_s`: (pattern, seconds).
    key_retention: tuple[tuple[str, float], ...] = ()
    #: Where values lie that are too large for the log, and from what size on; None keeps all in the log.
    payloads: Payloads | None = None
    #: "up" splits partitions that are written to too fast; "paused" does not for now; "disabled": never.
    autopartitioning: str = DISABLED
    #: Splits that happen by themselves make no more active partitions than this.
    max_partitions: int = 64
    #: So long a partition must be written to too fast before it is split, in seconds.
    stabilization_window_s: float = 300.0
    #: Too fast is this share of `partition_write_speed`, in per cent.
    up_utilization_percent: int = 90
    #: What the topic holds, where that needs one partition for ever; None: messages, as many as one wants.
    used_as: str | None = None
    #: So many bytes of frames a second one partition is meant for.
    partition_write_speed: int = MIB
    #: So many bytes may come at once; None is one second's worth.
    partition_write_burst: int | None = None
    #: True holds writers to that speed, those of all processes together.
    write_quota: bool = False

    def __post_init__(self) -> None:
        whole("partitions", self.partitions, 1, PARTITIONS_MAX)
        whole("segment_bytes", self.segment_bytes, 4 * KIB, 2048 * MIB)
        whole("max_message_bytes", self.max_message_bytes, 1, FRAME_BYTES_MAX - MIB)
        if self.max_bytes is not None:
            whole("max_bytes", self.max_bytes, 1, 2**62)
        whole("partition_write_speed", self.partition_write_speed, 1, 2**40)
        if self.partition_write_burst is not None:
            whole("partition_write_burst", self.partition_write_burst, 1, 2**40)
        if not isinstance(self.write_quota, bool):
            raise WrongType(f"write_quota is True or False, not {type(self.write_quota).__name__}")
        if self.segment_age_s is None:
            raise WrongType("segment_age takes seconds or text like '7d', not None")
        one_of("sync", self.sync, ("disk", "os"))
        one_of("partitioner", self.partitioner, ("range", "diskq", "kafka"))
        self._check_growth()
        object.__setattr__(self, "codecs", codec_list(self.codecs))
        if self.compress is not None:
            one_of("compress", self.compress, ("zstd",))
        if self.index is not None:
            one_of("index", self.index, ("key",))
        object.__setattr__(self, "key_retention", tuple((text, age) for text, age in self.key_retention))
        self._check_key_retention()
        object.__setattr__(self, "payloads", payloads(self.payloads))

    def _check_growth(self) -> None:
        """Refuse what cannot be together with partitions that split themselves, or with more than one."""
        mode = growth_mode(self.autopartitioning)
        object.__setattr__(self, "autopartitioning", mode)
        whole("max_partitions", self.max_partitions, 1, PARTITIONS_MAX)
        whole("up_utilization_percent", self.up_utilization_percent, 1, 100)
        if self.stabilization_window_s is None or not self.stabilization_window_s > 0:
            raise InvalidOption("stabilization_window is a time above 0", hint='write "5m"')
        refuse_total_order(self.used_as, mode, self.partitions)
        refuse_growth(
            mode, max_bytes=self.max_bytes, partitioner=self.partitioner, partitions=self.partitions,
            max_partitions=self.max_partitions,
        )  # fmt: skip

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

    @cached_property
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
    def for_writers(self) -> tuple[object, ...]:
        """All that open writers, of any process, must know at once when it changes."""
        growth = self.autopartitioning, self.max_partitions, self.stabilization_window_s
        return *growth, self.up_utilization_percent, self.partition_write_speed, self.write_limit

    @property
    def write_limit(self) -> tuple[int, int] | None:
        """Bytes a second and a burst that writers to a partition are held to; None where they are not."""
        if not self.write_quota:
            return None
        return self.partition_write_speed, self.partition_write_burst or self.partition_write_speed

    @property
    def retention_ns(self) -> int | None:
        """The retention in nanoseconds; None keeps messages for ever."""
        return None if self.retention_s is None else round(self.retention_s * NANOSECONDS)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as they are stored."""
        return asdict(self)

    def altered(self, changes: Mapping[str, Any]) -> TopicOptions:
        """Return these with changes as users spell them; raise `InvalidOption` for what cannot be changed."""
        fields = topic_changes(changes)
        if fields.get("sync", self.sync) != self.sync:
            raise InvalidOption(
                "sync cannot be changed later", hint="a writer may choose its own: writer(sync=…)"
            )
        if "payloads" in fields:
            fields["payloads"] = payloads_after(self.payloads, fields["payloads"])
        after = replace(self, **fields)
        refuse_disabling(self.autopartitioning, after.autopartitioning)
        return after

    def using_as(self, used_as: str) -> TopicOptions:
        """Return these for a topic that holds a stream or events from now on."""
        return replace(self, used_as=used_as)


#: Durations, by the name they have for users ("7d"), and the field that has them in seconds.
_DURATIONS = {
    "retention": "retention_s", "segment_age": "segment_age_s",
    "stabilization_window": "stabilization_window_s",
}  # fmt: skip
#: Sizes, which users spell as a number or as text ("64KiB").
_SIZES = (
    "max_bytes", "segment_bytes", "max_message_bytes", "partition_write_speed", "partition_write_burst",
)  # fmt: skip
#: What no user sets: the store knows it.
_OWN = {"used_as"}


def topic_changes(spoken: Mapping[str, Any]) -> dict[str, Any]:
    """Turn options as a user spells them into fields of `TopicOptions`, each checked."""
    known = {field.name for field in fields(TopicOptions)} - _OWN
    changes: dict[str, Any] = {}
    for name, value in spoken.items():
        field = _DURATIONS.get(name, name)
        if field not in known or name in _DURATIONS.values():
            options = sorted((known - set(_DURATIONS.values())) | set(_DURATIONS))
            raise InvalidOption(f"unknown topic option {name!r}", hint=f"options: {', '.join(options)}")
        if name in _DURATIONS:
            value = None if value is None else seconds(name, _with_unit(name, value))
        elif field in _SIZES:
            value = None if value is None else size(name, value)
        elif field == "codecs":
            value = codec_list(value)
        elif field == "key_retention":
            value = rules_of(value)
        elif field == "payloads":
            value = payloads(value)
            require_library(value)
        elif field == "compress" and value == "zstd":
            codecs.encoder(codecs.ZSTD)  # a missing library is said now, not with the first message
        changes[field] = value
    return changes


def _with_unit(name: str, value: Any) -> Any:
    """Refuse a bare number: seven days and seven seconds look alike, and what expired is gone."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise InvalidOption(
            f"{name}={value!r} has no unit",
            hint=f'write "{value:g}d", "{value:g}h" or "{value:g}s", or a timedelta',
        )
    return value


def codec_list(given: object) -> tuple[str, ...]:
    """Return codecs by the names that every process knows, each once, in the order of their numbers."""
    if given is None:
        return ()
    if isinstance(given, (str, int)) or not isinstance(given, Iterable):
        raise WrongType(f"codecs takes a list of names or numbers, not {type(given).__name__}")
    numbers = sorted({codecs.number_of(each) for each in given})
    if len(numbers) > CODECS_MAX:
        raise InvalidOption(f"{len(numbers)} codecs: {CODECS_MAX} are allowed")
    return tuple(map(codecs.lasting_name, numbers))
