"""What a sweep finds, whichever engine looked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock.payloads.stores import Found

Kind = Literal["orphan", "loss", "partly dead", "unfinished"]


@dataclass(frozen=True)
class Finding:
    """A body without a message, a message without a body, a pack some of whose messages are gone, …"""

    kind: Kind
    #: "files" or an s3:// address.
    place: str
    #: Of the body; of one that was never finished, of its file.
    name: str
    #: Of an orphan all of it, of a pack what is dead, of a loss what its message misses.
    bytes: int
    #: When the body was stored, in nanoseconds since 1970; None for one that is not there.
    stored: int | None = None
    #: The message that has lost its body.
    partition: int | None = None
    offset: int | None = None


@dataclass(frozen=True)
class Counts:
    """How much was found."""

    #: Bodies there are (a pack is one), and their bytes.
    bodies: int = 0
    bytes: int = 0
    #: Messages whose value lies outside the log.
    messages: int = 0
    #: Bodies without a message.
    orphans: int = 0
    orphan_bytes: int = 0
    #: The same, younger than the grace: their messages may be on their way.
    young: int = 0
    #: Packs some of whose messages are gone, and how many bytes of them nobody refers to.
    partly_dead: int = 0
    dead_bytes: int = 0
    #: Messages whose body is not there, or too short.
    losses: int = 0
    #: Messages whose body lies at a place that is not this topic's: nothing is said of them.
    elsewhere: int = 0


class Orphan(NamedTuple):
    """A body that may go."""

    place: str
    body: Found


class Evidence(NamedTuple):
    """What an engine found; `findings` are the first ones of each kind, `orphans` are all."""

    counts: Counts
    findings: list[Finding]
    orphans: Iterable[Orphan]
