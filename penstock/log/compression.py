"""Whole frames, compressed: the body becomes one zstd frame, an extension says how long it was.

The body's checksum is that of the bytes as they are stored, so frames are checked, found and recovered
without unpacking them. A frame that would not become smaller is stored as it is.
"""

from __future__ import annotations

from struct import Struct

from penstock.codecs import ZSTD, zstd
from penstock.codecs.limits import Damaged
from penstock.errors import DataError, UnknownFormat
from penstock.log.columns import Buffer
from penstock.options import FRAME_BYTES_MAX

#: The last extension of a compressed frame: length of the body before, codec, zero.
_EXTENSION = Struct("<IHH")


def pack(body: memoryview) -> tuple[bytes, bytes] | None:
    """The body compressed, and the extension that says so; None when it does not pay."""
    stored = zstd.encode_frame(body)
    if len(stored) + _EXTENSION.size >= len(body):
        return None
    return stored, _EXTENSION.pack(len(body), ZSTD, 0)


def require() -> None:
    """Raise `MissingExtra` unless compressed frames can be read in this process."""
    zstd.library()


def unpacked_length(extensions: Buffer) -> int:
    """How long the body was before, as the frame's extensions say."""
    return _fields(extensions)[0]


def unpack(stored: Buffer, extensions: Buffer, base: int) -> bytes:
    """The body of the compressed frame that begins with offset `base`."""
    length, codec = _fields(extensions)
    if codec != ZSTD:
        raise UnknownFormat(
            f"the frame at offset {base} is compressed with codec {codec}",
            hint="it was written by a newer Penstock: upgrade",
        )
    try:
        if length > FRAME_BYTES_MAX:
            raise Damaged(f"{length} bytes are more than a frame may have")
        body = zstd.decode(stored, length)
        if len(body) != length:
            raise Damaged(f"it has {len(body)} bytes instead of {length}")
    except (Damaged, zstd.library().ZstdError) as error:
        raise DataError(f"the frame at offset {base} cannot be unpacked: {error}") from error
    return body


def _fields(extensions: Buffer) -> tuple[int, int]:
    if len(extensions) < _EXTENSION.size:
        raise DataError("a compressed frame does not say how")
    length, codec, _ = _EXTENSION.unpack(extensions[-_EXTENSION.size :])
    return length, codec
