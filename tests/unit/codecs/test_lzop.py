"""The lzop container: what the `lzop` program writes is read here, and the other way round."""

import os
import struct
import subprocess
from zlib import adler32, crc32

import pytest

from penstock.codecs import lzop
from penstock.codecs.limits import Damaged
from tests.kit.patience import PATIENCE_S
from tests.require import module, require

lzallright = module("lzallright")

NOISE = os.urandom(300_000)
VALUES = [b"", b"x", b"hello " * 100, b"long " * 200_000, NOISE, NOISE[:262_144], bytes(262_145)]


def run_lzop(*arguments: str, given: bytes) -> bytes:
    require("lzop")
    done = subprocess.run(
        ["lzop", *arguments], input=given, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("value", VALUES, ids=len)
def test_values_come_back(value):
    assert lzop.decode(lzop.encode(value)) == value


@pytest.mark.parametrize("value", VALUES, ids=len)
def test_the_program_reads_what_we_write(value):
    assert run_lzop("-d", "-c", given=lzop.encode(value)) == value
    run_lzop("-t", given=lzop.encode(value))


@pytest.mark.parametrize("options", [("-1",), ("-3",), ("-9",), ("--crc32",), ("-F",)], ids=" ".join)
@pytest.mark.parametrize("value", VALUES, ids=len)
def test_we_read_what_the_program_writes(value, options):
    assert lzop.decode(run_lzop("-c", *options, given=value)) == value


def test_the_bytes_are_those_of_the_format():
    header = struct.pack(">HHHBBIIIIB", 0x1040, 0x20A0, 0x0940, 1, 3, 0x03000001, 0o100644, 0, 0, 0)
    block = struct.pack(">III", 3, 3, adler32(b"abc")) + b"abc"  # too short to become shorter
    expected = b"\x89LZO\0\r\n\x1a\n" + header + struct.pack(">I", adler32(header)) + block + bytes(4)
    assert lzop.encode(b"abc") == expected


def test_a_header_with_a_name_a_crc_and_an_extra_field_is_read():
    flags = 0x03000000 | 1 | 1 << 6 | 1 << 12
    header = struct.pack(">HHHBBIIIIB", 0x1040, 0x20A0, 0x0940, 1, 5, flags, 0o100644, 9, 0, 4) + b"name"
    extra = struct.pack(">I", 2) + b"zz" + struct.pack(">I", 0)
    block = struct.pack(">III", 3, 3, adler32(b"abc")) + b"abc" + bytes(4)
    whole = b"\x89LZO\0\r\n\x1a\n" + header + struct.pack(">I", crc32(header)) + extra + block
    assert lzop.decode(whole) == b"abc"


WHOLE = lzop.encode(b"hello " * 1000)


@pytest.mark.parametrize("length", [0, 5, 9, 20, 37, 38, 41, 45, 49, 60, len(WHOLE) - 4, len(WHOLE) - 1])
def test_what_ends_in_the_middle_is_damaged(length):
    with pytest.raises(Damaged):
        lzop.decode(WHOLE[:length])


@pytest.mark.parametrize("byte", [0, 9, 13, 15, 16, 20, 33, 38, 41, 45, 49, 53, 60, len(WHOLE) - 6])
def test_a_changed_byte_is_noticed(byte):
    spoiled = bytearray(WHOLE)
    spoiled[byte] ^= 0x40
    with pytest.raises((Damaged, lzallright.LZOError, lzallright.InputNotConsumed)):
        lzop.decode(bytes(spoiled))


@pytest.mark.parametrize(("size", "packed"), [(2**31, 10), (10, 11), (10, 0), (65 * 2**20, 100)])
def test_lengths_that_make_no_sense_are_refused_before_anything_is_allocated(size, packed):
    with pytest.raises(Damaged, match="a block of"):
        lzop.decode(lzop._header() + struct.pack(">III", size, packed, 0) + bytes(packed))
