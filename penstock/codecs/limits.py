"""How large a packed value may become: a few bytes must not fill the memory of their reader."""

from __future__ import annotations

#: No value becomes larger than this when it is unpacked.
DECODED_BYTES_MAX = 1024 * 1024 * 1024


class Damaged(ValueError):
    """Bytes that no codec of this kind has made, or that would become too large."""


def refuse_beyond(size: int) -> None:
    """Raise `Damaged` for a value that would become larger than it may."""
    if size > DECODED_BYTES_MAX:
        raise Damaged(f"it would be more than {DECODED_BYTES_MAX} bytes")
