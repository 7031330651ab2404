"""CRC-32, as in zlib, gzip and PNG, by the fastest library there is.

`isal` computes the same sum with the processor's own instructions: 45 GB/s against zlib's 2.5 on 200 KB. It
comes with the `arrow` extra; without it everything works, slower. Figures: docs/decisions/0002-crc32.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from time import perf_counter_ns

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["FEW", "checked_line", "crc32", "crc32_of_few", "with_checksum"]

#: So many bytes are few.
FEW = 256
_LONG, _SHORT = bytes(4096), bytes(48)


def _short_ns(sum_of: Callable[[bytes], int]) -> int:
    """How long a few short sums take behind a long one, as they come in every program."""
    crc32(_LONG)
    began = perf_counter_ns()
    for _ in range(16):
        sum_of(_SHORT)
    return perf_counter_ns() - began


#: `crc32` for few bytes: keys, records, headers. On Intel's processors `isal` takes three times
#: as long for these once it has summed a long string, which leaves their vector units in a slow state; then
#: zlib is quicker. On AMD's it is not. So whoever starts looks, in some 50 microseconds.
crc32_of_few = crc32
if min(_short_ns(zlib.crc32) for _ in range(4)) < min(_short_ns(crc32) for _ in range(4)):
    crc32_of_few = zlib.crc32


def with_checksum(line: bytes) -> bytes:
    """A line of text as a small file holds it: the line, then its CRC-32 as eight hexadecimal digits."""
    return line + b"\n%08x\n" % crc32(line)


def checked_line(data: bytes) -> bytes | None:
    """The line that `with_checksum` made a file of; None when its checksum is wrong."""
    line, _, checksum = data.rstrip(b"\n").rpartition(b"\n")
    return line if checksum == b"%08x" % crc32(line) else None
