"""Whole numbers in as few bytes as they need: seven bits a byte, lowest first, a set top bit says "more"."""

from __future__ import annotations


def encode_uvarint(number: int) -> bytes:
    """Return a number as seven bits a byte, lowest first."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a byte, and the byte behind it; IndexError when the bytes end within it."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
