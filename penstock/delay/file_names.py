"""Names: `<folder>/<ΔT>/<ΔT>@<yyyymmddHH>-<number>.data`, ΔT in seconds, the time in UTC.

The number is the counter of the state id at which the file was made: it is never given twice and grows, so
it is the order in which the files of a delay were made, whatever the clock did.
"""

from __future__ import annotations

import os
import re
import time
from typing import NamedTuple

DATA, SUMS = ".data", ".sums"
LOCK = "lock"
_NAME = re.compile(r"([0-9]+(?:\.[0-9]{1,3})?)@[0-9]{10}-([0-9]{12,20})\.data")


class Made(NamedTuple):
    """What a file's name tells."""

    delay_ms: int
    number: int


def delay_name(delay_ms: int) -> str:
    """A delay in seconds, without zeros at the end: "30", "0.05"."""
    whole, rest = divmod(delay_ms, 1000)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)


def file_name(delay_ms: int, now_ms: int, number: int) -> str:
    hour = time.strftime("%Y%m%d%H", time.gmtime(now_ms // 1000))
    return f"{delay_name(delay_ms)}@{hour}-{number:012d}{DATA}"


def parse(name: str) -> Made | None:
    """None when no file of ours has such a name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    whole, _, rest = match[1].partition(".")
    delay_ms = int(whole) * 1000 + int(rest.ljust(3, "0") or 0)
    return Made(delay_ms, int(match[2]))


def made(name: str) -> Made:
    """The same for a name that comes from the states."""
    found = parse(name)
    assert found is not None, name
    return found


def data_path(folder: str, name: str) -> str:
    return os.path.join(folder, delay_name(made(name).delay_ms), name)


def sums_path(folder: str, name: str) -> str:
    return data_path(folder, name).removesuffix(DATA) + SUMS
