"""Names of the files of a chain: `<folder>/<chain>/<chain>@<yyyymmddHH>-<number>.data`, the time in UTC.

A chain is called by its delay in seconds: `30s` holds messages that wait exactly 30 s, `ladder-30s` those
that wait 30 s and then go on. Files of older stores lie in `30` and are read as a ladder's.

The number is the counter of the state id at which the file was made: it is never given twice and grows, so
it is the order in which the files of a chain were made, whatever the clock did.
"""

from __future__ import annotations

import os
import re
import time
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

DATA, SUMS = ".data", ".sums"
_NAME = re.compile(r"(ladder-)?([0-9]+(?:\.[0-9]{1,3})?)(s?)@[0-9]{10}-([0-9]{12,20})\.data")


class ChainKind(IntEnum):
    """What the messages of a chain have in common."""

    #: They wait just the chain's delay.
    FIXED = 1
    #: They wait at least the chain's delay; each record says how much longer.
    LADDER = 2
    #: Like a ladder's, with the shorter checksums of older stores; read, never written.
    OLD = 3


class ChainName(NamedTuple):
    """Which chain: its delay and its kind."""

    delay_ms: int
    kind: ChainKind

    @property
    def folder(self) -> str:
        """The name of the chain's folder, and the beginning of its files' names."""
        delay = _delay(self.delay_ms)
        if self.kind is ChainKind.OLD:
            return delay
        return f"{delay}s" if self.kind is ChainKind.FIXED else f"ladder-{delay}s"

    @property
    def has_rests(self) -> bool:
        """Whether the data of its records begins with what is left to wait."""
        return self.kind is not ChainKind.FIXED


class Made(NamedTuple):
    """What a file's name tells."""

    chain: ChainName
    number: int


def rung(delay_ms: int) -> ChainName:
    """The chain of a rung of the ladder."""
    return ChainName(delay_ms, ChainKind.LADDER)


def file_name(chain: ChainName, now_ms: int, number: int) -> str:
    """Return the name of a data file: its chain, the hour it was made in, its number."""
    hour = time.strftime("%Y%m%d%H", time.gmtime(now_ms // 1000))
    return f"{chain.folder}@{hour}-{number:012d}{DATA}"


@lru_cache(maxsize=4096)
def parse(name: str) -> Made | None:
    """Parse the name of a file; None when it is not one of ours."""
    match = _NAME.fullmatch(name)
    if match is None or (match[1] and not match[3]):
        return None
    kind = ChainKind.LADDER if match[1] else ChainKind.FIXED if match[3] else ChainKind.OLD
    whole, _, rest = match[2].partition(".")
    return Made(ChainName(int(whole) * 1000 + int(rest.ljust(3, "0") or 0), kind), int(match[4]))


def made(name: str) -> Made:
    """What the name of a file that has a state tells."""
    found = parse(name)
    assert found is not None, name
    return found


def data_path(folder: str, name: str) -> str:
    """Return the path of a data file."""
    return os.path.join(folder, made(name).chain.folder, name)


def sums_path(folder: str, name: str) -> str:
    """Return the path of a data file's checksums."""
    return data_path(folder, name).removesuffix(DATA) + SUMS


def _delay(delay_ms: int) -> str:
    """A delay in seconds, without zeros at the end: "30", "0.05"."""
    whole, rest = divmod(delay_ms, 1000)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)
