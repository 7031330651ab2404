"""R, the record in `rate`: how fast a partition is written to, and how far its quota is used up.

    0 u32 CRC-32 of what follows · 4 u8 version (1) · 5 u8 samples · 6 u16 (zero) · 8 u64 boot
    16 u64 arrival · 24 u64 waited · 32 u64 segment · 40 u64 bytes before it
    48 ten times [u64 time | u64 bytes], the oldest sample first; those not taken yet are zero

Times are nanoseconds of the monotonic clock, which all processes share: R is valid for one boot of the
machine. It is written in place by one `pwrite`, under the append lock; anyone reads it, and takes a damaged
one for none. Only topics that measure or limit their writes have it. Nothing is lost with it: measuring
begins anew.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.files import OpenFile
from penstock.log.folder import Folder, file_bytes
from penstock.log.rate_policy import SAMPLES, RateSample
from penstock.log.records import AppendRecord

RATE = "rate"
_VERSION = 1
_FIELDS = Struct(f"<BBHQQQQQ{2 * SAMPLES}Q")
RATE_BYTES = 4 + _FIELDS.size


class RateRecord(NamedTuple):
    """R: when the quota will have caught up, and how many bytes there were at some moments."""

    #: When all that was written would have been written at the quota's speed.
    arrival: int = 0
    #: For how long writers were held back, all of them together.
    waited: int = 0
    #: A segment, and how many bytes all before it had: so bytes since the partition began are known.
    segment: int = -1
    before: int = 0
    samples: tuple[RateSample, ...] = ()

    def pack(self, boot: int) -> bytes:
        """The record as bytes, with its checksum."""
        numbers = [number for each in self.samples for number in each]
        numbers += [0] * (2 * SAMPLES - len(numbers))
        fields = _FIELDS.pack(
            _VERSION, len(self.samples), 0, boot, self.arrival, self.waited, max(self.segment, 0),
            self.before, *numbers,
        )  # fmt: skip
        return crc32(fields).to_bytes(4, "little") + fields


def parse_rate(data: bytes, boot: int) -> RateRecord | None:
    """R from its bytes; None when it is not sound, or of another boot."""
    if len(data) != RATE_BYTES or crc32(data[4:]) != int.from_bytes(data[:4], "little"):
        return None
    version, count, _, made, arrival, waited, segment, before, *numbers = _FIELDS.unpack_from(data, 4)
    if version != _VERSION or made != boot or count > SAMPLES:
        return None
    pairs = zip(numbers[0::2], numbers[1::2], strict=True)
    samples = tuple(RateSample(*pair) for pair in pairs)[:count]
    return RateRecord(arrival, waited, segment, before, samples)


class RateFile:
    """The file of R; opened when it is used, and made by the first that writes to it."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._file: OpenFile | None = None

    def read(self) -> RateRecord:
        """R as it is; an empty one where there is none."""
        folder = self._folder
        try:
            file = self._file or self._open(create=False)
        except FileNotFoundError:
            return RateRecord()
        return parse_rate(folder.files.pread(file.fd, RATE_BYTES, 0), folder.boot) or RateRecord()

    def write(self, record: RateRecord) -> None:
        """Write R. The append lock is held."""
        file = self._file or self._open(create=True)
        self._folder.files.pwrite(file.fd, record.pack(self._folder.boot), 0)

    def close(self) -> None:
        """Close the file, unless a thread is reading it; the next use opens it again."""
        self._file = None

    def _open(self, *, create: bool) -> OpenFile:
        folder = self._folder
        fd = folder.files.open(folder.name(RATE), create=create, write=not folder.read_only)
        self._file = file = OpenFile(folder.files, fd)
        return file


def counted(record: RateRecord, a: AppendRecord, folder: Folder) -> RateRecord:
    """R with its segment being the active one; what was rolled since is added up from the files."""
    if record.segment == a.segment:
        return record
    if record.segment < 0:
        return record._replace(segment=a.segment, before=0)
    rolled = [base for base in folder.segments() if record.segment <= base < a.segment]
    before = record.before + sum(file_bytes(folder, base) for base in rolled)
    return record._replace(segment=a.segment, before=before)
