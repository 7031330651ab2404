"""The lzop codec: the file format of the `lzop` program, which reads and writes the same bytes.

All numbers are big-endian. Behind the magic a header (versions, method, flags, mode, time, name) with its
Adler-32; then blocks of at most 256 KiB, each with its lengths and the Adler-32 of what it unpacks to;
then a length of zero. A block that would not become smaller is stored as it is.
"""

from __future__ import annotations

import importlib
from functools import cache
from struct import Struct
from typing import Any
from zlib import adler32, crc32

from penstock.codecs import limits
from penstock.codecs.limits import Damaged
from penstock.errors import MissingExtra

_MAGIC = b"\x89LZO\x00\r\n\x1a\n"
_HEAD = Struct(">HHHBBIIIIB")
_OLD_HEAD = Struct(">HHBIIIB")  # before version 0.940: no version needed, no level, a shorter time
_U32 = Struct(">I")
_VERSION, _LIBRARY, _NEEDED = 0x1040, 0x20A0, 0x0940
_LZO1X_1, _LEVEL = 1, 3
_METHODS = (1, 2, 3)  # how LZO1X was made; all unpack alike

_ADLER_OF_VALUE, _ADLER_OF_PACKED = 1 << 0, 1 << 1
_CRC_OF_VALUE, _CRC_OF_PACKED = 1 << 8, 1 << 9
_EXTRA_FIELD, _MULTIPART, _FILTER, _CRC_OF_HEADER = 1 << 6, 1 << 10, 1 << 11, 1 << 12
_UNIX = 3 << 24

_BLOCK_BYTES = 256 * 1024
_BLOCK_BYTES_MAX = 64 * 1024 * 1024


@cache
def _library() -> Any:
    try:
        return importlib.import_module("lzallright").LZOCompressor
    except ImportError:
        raise MissingExtra("LZO (lzallright)", "codecs") from None


def _header() -> bytes:
    flags = _ADLER_OF_VALUE | _UNIX
    fields = _HEAD.pack(_VERSION, _LIBRARY, _NEEDED, _LZO1X_1, _LEVEL, flags, 0o100644, 0, 0, 0)
    return _MAGIC + fields + _U32.pack(adler32(fields))


def encode(value: bytes) -> bytes:
    """Pack a value as a file that the `lzop` program reads."""
    packer = _library()()
    parts = [_header()]
    for at in range(0, len(value), _BLOCK_BYTES):
        block = value[at : at + _BLOCK_BYTES]
        packed = packer.compress(block)
        if len(packed) >= len(block):
            packed = block
        parts += (_U32.pack(len(block)), _U32.pack(len(packed)), _U32.pack(adler32(block)), packed)
    parts.append(_U32.pack(0))
    return b"".join(parts)


def decode(stored: bytes) -> bytes:
    """Whatever `lzop` has written, but for filters and several files in one."""
    unpack = _library().decompress
    reader = _Reader(stored)
    flags = _read_header(reader)
    parts, total = [], 0
    while size := reader.number():
        packed_size = reader.number()
        if not 0 < packed_size <= size <= _BLOCK_BYTES_MAX:
            raise Damaged(f"a block of {packed_size} bytes for {size}")
        total += size
        limits.refuse_beyond(total)
        adler = reader.number() if flags & _ADLER_OF_VALUE else None
        crc = reader.number() if flags & _CRC_OF_VALUE else None
        if packed_size < size:  # checksums of the packed bytes say nothing that the others do not
            reader.take(4 * bool(flags & _ADLER_OF_PACKED) + 4 * bool(flags & _CRC_OF_PACKED))
        packed = reader.take(packed_size)
        block = packed if packed_size == size else unpack(packed, size)
        wrong = (adler is not None and adler32(block) != adler) or (crc is not None and crc32(block) != crc)
        if len(block) != size or wrong:
            raise Damaged("a block does not match its checksum")
        parts.append(block)
    return b"".join(parts)


class _Reader:
    """Takes one thing after another from the bytes; raises `Damaged` where they end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        part = self._data[self.at : self.at + count]
        if len(part) < count:
            raise Damaged("it ends in the middle")
        self.at += count
        return part

    def number(self) -> int:
        found: int = _U32.unpack(self.take(4))[0]
        return found

    def since(self, begin: int) -> bytes:
        return self._data[begin : self.at]


def _read_header(reader: _Reader) -> int:
    """The header, checked; its flags."""
    if reader.take(len(_MAGIC)) != _MAGIC:
        raise Damaged("it does not begin as an lzop file does")
    begin = reader.at
    version = int.from_bytes(reader.take(2), "big")
    reader.at = begin
    if version >= _NEEDED:
        _, _, needed, method, _, flags, *_ = _HEAD.unpack(reader.take(_HEAD.size))
    else:
        _, _, method, flags, *_ = _OLD_HEAD.unpack(reader.take(_OLD_HEAD.size))
        needed = version
    if needed > _VERSION or method not in _METHODS or flags & (_FILTER | _MULTIPART):
        raise Damaged(f"version {needed:#x}, method {method}, flags {flags:#x} are not read here")
    reader.take(reader.since(begin)[-1])  # the file's name
    checksum = crc32 if flags & _CRC_OF_HEADER else adler32
    if checksum(reader.since(begin)) != reader.number():
        raise Damaged("its header does not match its checksum")
    if flags & _EXTRA_FIELD:
        reader.take(reader.number())
        reader.number()
    return int(flags)
