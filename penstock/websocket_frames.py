"""WebSocket frames (RFC 6455), as functions of bytes: no sockets, no waiting.

    0                   1                   2                   3
    FIN RSV×3 opcode×4 | MASK length×7 | (16 or 64 bits of length) | (mask, 4 bytes) | payload

What a client sends is masked, what a server sends is not. A message may come in several frames, with
control frames (close, ping, pong) between them. `Frames` puts it together again and refuses what the standard
forbids; extensions are never agreed on, so reserved bits are an error.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import NamedTuple

from penstock.errors import DataError

_CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_KNOWN = (_CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG)
_CONTROL_BYTES_MOST = 125
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

NORMAL, GOING_AWAY, PROTOCOL, UNSUPPORTED, NO_STATUS = 1000, 1001, 1002, 1003, 1005
INVALID_DATA, POLICY, TOO_BIG, INTERNAL, RESTART, TRY_LATER = 1007, 1008, 1009, 1011, 1012, 1013
#: Codes that may stand in a close frame besides those from 3000 to 4999.
_CLOSE_CODES = frozenset((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014))


class BadFrame(DataError):
    """The other side broke the rules; `code` is what to close with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message, hint="the connection is closed; open a new one")
        self.code = code


class WebSocketFrame(NamedTuple):
    """A whole message, or a control frame."""

    opcode: int
    payload: bytes


def accept_token(key: str) -> str:
    """What a server answers to `Sec-WebSocket-Key`."""
    return base64.b64encode(hashlib.sha1(key.encode("ascii", "replace") + _GUID).digest()).decode()


def is_key(key: str) -> bool:
    """Whether a text may be a `Sec-WebSocket-Key`: 16 bytes in base64."""
    try:
        return len(base64.b64decode(key.encode("ascii"), validate=True)) == 16
    except ValueError:
        return False


def frame(opcode: int, payload: bytes, mask: bytes = b"") -> bytes:
    """One whole frame; with a mask of four bytes as clients send it."""
    length = len(payload)
    masked = 0x80 if mask else 0
    if length < 126:
        head = bytes((0x80 | opcode, masked | length))
    elif length < 65536:
        head = struct.pack("!BBH", 0x80 | opcode, masked | 126, length)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, masked | 127, length)
    return head + mask + masked_payload(payload, mask) if mask else head + payload


def close_frame(code: int, reason: str = "", mask: bytes = b"") -> bytes:
    """A close frame; what is too long of the reason is cut."""
    text = reason.encode()[: _CONTROL_BYTES_MOST - 2].decode(errors="ignore").encode()
    return frame(CLOSE, struct.pack("!H", code) + text, mask)


def close_code(payload: bytes) -> int:
    """The code in a close frame; raises `BadFrame` for what may not be one."""
    if not payload:
        return NO_STATUS
    code: int = struct.unpack_from("!H", payload)[0] if len(payload) > 1 else 0
    if code not in _CLOSE_CODES and not 3000 <= code < 5000:
        raise BadFrame(PROTOCOL, f"{code} is not a code to close with")
    _require_text(payload[2:])
    return code


def masked_payload(payload: bytes, mask: bytes) -> bytes:
    """Masked, or unmasked again: as one large number, which is the quickest way in Python."""
    length = len(payload)
    repeated = (mask * (length // 4 + 1))[:length]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(repeated, "little")).to_bytes(length, "little")


class Frames:
    """What comes in on one connection, put together to messages.

    `from_client` says which side sends: a client must mask, a server must not. `limit` is the most bytes a
    message may have.
    """

    __slots__ = ("_buffer", "_from_client", "_limit", "_opcode", "_parts", "_size")

    def __init__(self, *, from_client: bool, limit: int) -> None:
        self._from_client = from_client
        self._limit = limit
        self._buffer = b""
        self._opcode = 0  # of the message that is under way
        self._parts: list[bytes] | None = None
        self._size = 0

    def feed(self, data: bytes) -> list[WebSocketFrame]:
        """Take in bytes; the messages and control frames they complete. Raises `BadFrame`."""
        buffer = self._buffer + data if self._buffer else data
        found: list[WebSocketFrame] = []
        at = 0
        while (taken := self._one(buffer, at)) is not None:
            at, opcode, is_final, payload = taken
            whole = self._joined(opcode, is_final, payload)
            if whole is not None:
                found.append(whole)
                if opcode == CLOSE:
                    at = len(buffer)  # nothing counts behind it
        self._buffer = buffer[at:]
        return found

    def _one(self, buffer: bytes, at: int) -> tuple[int, int, bool, bytes] | None:
        """The frame that begins at `at`: where it ends, its opcode, whether it is final, its payload."""
        if len(buffer) - at < 2:
            return None
        first, second = buffer[at], buffer[at + 1]
        opcode, is_final, is_masked, length = first & 0x0F, bool(first & 0x80), second & 0x80, second & 0x7F
        self._check_head(first, opcode, is_final, bool(is_masked), length)
        at += 2
        if length >= 126:
            size = 2 if length == 126 else 8
            if len(buffer) - at < size:
                return None
            length = int.from_bytes(buffer[at : at + size], "big")
            at += size
        if length + (0 if opcode & 0x8 else self._size) > self._limit:
            raise BadFrame(TOO_BIG, f"a message is over the limit of {self._limit} bytes")
        behind = at + (4 if is_masked else 0) + length
        if len(buffer) < behind:
            return None
        if not is_masked:
            return behind, opcode, is_final, buffer[at:behind]
        return behind, opcode, is_final, masked_payload(buffer[at + 4 : behind], buffer[at : at + 4])

    def _check_head(self, first: int, opcode: int, is_final: bool, is_masked: bool, length: int) -> None:
        if first & 0x70:
            raise BadFrame(PROTOCOL, "reserved bits are set")
        if opcode not in _KNOWN:
            raise BadFrame(PROTOCOL, f"there is no opcode {opcode}")
        if is_masked is not self._from_client:
            raise BadFrame(PROTOCOL, "a client masks its frames, a server does not")
        if opcode & 0x8 and (not is_final or length > _CONTROL_BYTES_MOST):
            raise BadFrame(PROTOCOL, "a control frame is one frame of at most 125 bytes")
        if opcode == _CONTINUATION and self._parts is None:
            raise BadFrame(PROTOCOL, "there is nothing to continue")
        if opcode in (TEXT, BINARY) and self._parts is not None:
            raise BadFrame(PROTOCOL, "a message begins before the last one ended")

    def _joined(self, opcode: int, is_final: bool, payload: bytes) -> WebSocketFrame | None:
        """The message that this frame completes, if it does."""
        if opcode & 0x8:
            return WebSocketFrame(opcode, payload)
        if self._parts is None:
            if is_final:
                return _checked(opcode, payload)
            self._opcode, self._parts, self._size = opcode, [payload], len(payload)
            return None
        self._parts.append(payload)
        self._size += len(payload)
        if not is_final:
            return None
        parts, self._parts, self._size = self._parts, None, 0
        return _checked(self._opcode, b"".join(parts))


def _checked(opcode: int, payload: bytes) -> WebSocketFrame:
    if opcode == TEXT:
        _require_text(payload)
    return WebSocketFrame(opcode, payload)


def _require_text(payload: bytes) -> None:
    try:
        payload.decode()
    except UnicodeDecodeError:
        raise BadFrame(INVALID_DATA, "text is not UTF-8") from None
