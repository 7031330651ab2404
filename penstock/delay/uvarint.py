"""Numbers of variable length: ULEB128, seven bits a byte, lowest first; the top bit says more follow."""

from __future__ import annotations


def encode(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode(data: bytes, at: int) -> tuple[int, int]:
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
