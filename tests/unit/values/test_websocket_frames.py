"""WebSocket frames: RFC 6455, without sockets."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.websocket_frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    BadFrame,
    Frames,
    WebSocketFrame,
    accept_token,
    close_code,
    close_frame,
    frame,
    is_key,
    masked_payload,
)

MASK = b"\x37\xfa\x21\x3d"


def client(limit=2**20):
    return Frames(from_client=True, limit=limit)


def test_the_examples_of_the_standard():
    assert accept_token("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert frame(TEXT, b"Hello") == bytes.fromhex("810548656c6c6f")
    assert frame(TEXT, b"Hello", MASK) == bytes.fromhex("818537fa213d7f9f4d5158")
    server = Frames(from_client=False, limit=100)
    assert server.feed(bytes.fromhex("010348656c")) == []
    assert server.feed(bytes.fromhex("80026c6f")) == [WebSocketFrame(TEXT, b"Hello")]
    assert frame(BINARY, bytes(256))[:4] == bytes.fromhex("827e0100")
    assert frame(BINARY, bytes(65536))[:10] == bytes.fromhex("827f0000000000010000")


def test_keys_of_the_handshake():
    assert is_key("dGhlIHNhbXBsZSBub25jZQ==")
    assert not any(map(is_key, ("", "abc", "dGhlIHNhbXBsZQ==", "ä", "x" * 24)))


@given(
    st.lists(st.tuples(st.sampled_from([TEXT, PING, PONG]), st.text(max_size=40)), max_size=8),
    st.integers(1, 17),
)
def test_what_was_sent_comes_out_however_it_is_cut(messages, step):
    sent = [
        WebSocketFrame(opcode, text.encode()[:125].decode(errors="ignore").encode())
        for opcode, text in messages
    ]
    data = b"".join(frame(*each, MASK) for each in sent)
    frames, got = client(), []
    for at in range(0, len(data), step):
        got += frames.feed(data[at : at + step])
    assert got == sent


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_masking_twice_changes_nothing(payload, mask):
    assert masked_payload(masked_payload(payload, mask), mask) == payload


def fragment(opcode, payload, *, final):
    whole = bytearray(frame(opcode, payload, MASK))
    whole[0] = opcode | (0x80 if final else 0)
    return bytes(whole)


def test_fragments_are_joined_and_control_frames_come_between():
    frames = client()
    data = fragment(TEXT, "ä".encode()[:1], final=False) + frame(PING, b"?", MASK)
    assert frames.feed(data + fragment(0, "ä".encode()[1:], final=True)) == [
        WebSocketFrame(PING, b"?"),
        WebSocketFrame(TEXT, "ä".encode()),
    ]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(TEXT, b"not masked"), 1002),
        (b"\xc1\x80" + MASK, 1002),
        (b"\x83\x80" + MASK, 1002),
        (b"\x80\x80" + MASK, 1002),
        (fragment(TEXT, b"a", final=False) + fragment(TEXT, b"b", final=True), 1002),
        (fragment(PING, b"a", final=False), 1002),
        (b"\x89\xfe\x00\x7e" + MASK + bytes(126), 1002),
        (frame(TEXT, b"\xff", MASK), 1007),
        (frame(TEXT, bytes(101), MASK), 1009),
        (b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff", 1009),
        (fragment(TEXT, bytes(60), final=False) + fragment(0, bytes(60), final=True), 1009),
    ],
)
def test_what_the_standard_forbids_is_refused(data, code):
    with pytest.raises(BadFrame) as refused:
        client(limit=100).feed(data)
    assert refused.value.code == code


def test_close_codes():
    assert close_code(b"") == 1005
    assert close_code(close_frame(4401, "no")[2:]) == 4401
    for wrong in (b"\x03", (1005).to_bytes(2, "big"), (5000).to_bytes(2, "big"), b"\x03\xe8\xff"):
        with pytest.raises(BadFrame):
            close_code(wrong)
    assert len(close_frame(1000, "ä" * 200)) <= 127
    assert client().feed(frame(CLOSE, b"", MASK) + b"anything")[0].opcode == CLOSE


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_understood_or_refused(data):
    try:
        for opcode, payload in client(limit=100).feed(data):
            assert opcode in (TEXT, BINARY, CLOSE, PING, PONG)
            assert len(payload) <= 125
    except BadFrame:
        pass
