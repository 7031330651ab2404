"""zstd from other writers: several frames, frames that do not say how large they are, and worse."""

import io

import pytest

from penstock.codecs import zstd
from penstock.codecs.limits import Damaged
from tests.require import module

zstandard = module("zstandard")

TEXT = b"some text " * 10_000


def streamed(value: bytes) -> bytes:
    """As a program writes it that does not know the size beforehand."""
    packed = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(packed, closefd=False) as stream:
        stream.write(value)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        (streamed(TEXT), TEXT),
        (streamed(b""), b""),
        (zstd.encode(b""), b""),
        (zstd.encode(TEXT) + zstd.encode(b"more"), TEXT + b"more"),
        (streamed(TEXT) + zstd.encode(b"more") + streamed(b"") + streamed(b"end"), TEXT + b"moreend"),
        (memoryview(zstd.encode(TEXT)), TEXT),
    ],
)
def test_it_is_unpacked(stored, value):
    assert zstd.decode(stored) == value


@pytest.mark.parametrize("packed", [zstd.encode(TEXT), streamed(TEXT), zstd.encode(b"a") + streamed(TEXT)])
def test_what_ends_in_the_middle_or_goes_on_too_long_is_refused(packed):
    for stored in (packed[:-3], packed[:-20], packed[: len(packed) // 2], packed + b"\0", packed + b"junk"):
        with pytest.raises((Damaged, zstandard.ZstdError)):
            zstd.decode(stored)


@pytest.mark.parametrize("packed", [zstd.encode(bytes(10_000_000)), streamed(bytes(10_000_000))])
def test_what_would_become_too_large_is_refused(packed):
    assert len(packed) < 2000
    with pytest.raises(Damaged, match="more than 1000 bytes"):
        zstd.decode(packed, 1000)
    assert len(zstd.decode(packed, 10_000_000)) == 10_000_000
