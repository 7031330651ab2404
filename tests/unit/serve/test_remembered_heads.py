"""Heads that came before: what is made of a request does not depend on whether its head was known."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.require import require

# ruff: noqa: E402 - what follows cannot be imported without the extra.
require("server")

from penstock.serve import http_messages
from tests.unit.serve.test_http_connection import Host, connected, statuses

PUSH = b"POST /v1/events?topic=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"


@pytest.fixture(autouse=True)
def nothing_known():
    http_messages._known.clear()


def push(body: bytes) -> bytes:
    return PUSH % (len(body), body)


def asked(host):
    return [
        (each.method, each.path, each.query, each.headers, each.body, each.keep_alive, each.upgrade)
        for each in host.asked
    ]


def heard(*pieces: bytes):
    """What a server understands of bytes that come in such pieces, and answers."""
    host = Host()
    connection, transport = connected(host)
    for piece in pieces:
        if not transport.closed:
            connection.data_received(piece)
    return asked(host), statuses(transport), transport.closed


def test_a_head_that_came_before_is_not_parsed_again():
    heard(push(b"one"))
    host = Host()
    connection, transport = connected(host)
    connection._parser = "nobody parses"
    connection.data_received(push(b"two") + push(b"six"))
    assert [request.body for request in host.asked] == [b"two", b"six"]
    assert host.asked[0].query == {"topic": ["a"]}
    assert statuses(transport) == [200, 200]


def test_what_follows_a_known_head_is_parsed():
    heard(push(b"one"))
    found, answered, _ = heard(push(b"two") + b"GET /b HTTP/1.1\r\n\r\n" + push(b"other"), push(b"six"))
    assert [each[4] for each in found] == [b"two", b"", b"other", b"six"]
    assert answered == [200] * 4


def test_a_body_that_is_not_whole_is_waited_for():
    heard(push(b"one"))
    found, _, _ = heard(push(b"two")[:-1], b"o", push(b"six"))
    assert [each[4] for each in found] == [b"two", b"six"]


def test_the_rest_of_a_request_is_never_taken_for_one():
    heard(push(b"one"))
    assert heard(b"P", push(b"two"))[1:] == ([400], True)
    found, answered, _ = heard(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(push(b"x")), push(b"x"))
    assert ([each[4] for each in found], answered) == ([push(b"x")], [200])


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\nContent-Length: 2\n\n",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 02\r\n\r\n",
        b"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nX: " + b"x" * 4000 + b"\r\n\r\n",
    ],
)
def test_only_plain_heads_are_kept(head):
    heard(head + b"ok")
    heard(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
    assert http_messages._known == {}


def test_few_heads_are_kept():
    for number in range(3 * http_messages._HEADS_MOST):
        heard(b"POST /%d HTTP/1.1\r\nContent-Length: 2\r\n\r\nok" % number)
    assert 0 < len(http_messages._known) <= http_messages._HEADS_MOST


REQUESTS = st.sampled_from(
    [
        push(b"one"), push(b"two"), push(b""), push(b"\r\n\r\n"), push(push(b"in")),
        b"GET /a HTTP/1.1\r\n\r\n", b"\r\n", b"P", b"POST / HTTP/1.1\nContent-Length: 4\n\n\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    ]
)  # fmt: skip


@settings(max_examples=200)
@given(st.lists(REQUESTS, max_size=8), st.integers(1, 200))
def test_any_requests_mean_the_same_to_one_who_has_seen_them(requests, step):
    data = b"".join(requests)
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    http_messages._known.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_messages, "_HEAD_BYTES_MOST", 0)  # nothing is kept
        expected = heard(*pieces)
    for request in requests:
        heard(request)
    assert heard(*pieces) == expected
