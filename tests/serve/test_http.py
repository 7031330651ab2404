"""HTTP as it comes over the wire: order, limits, and what is no HTTP."""

import json
import re
import socket
from urllib.parse import quote

import pytest

from tests.kit.server import frame
from tests.serve.kit import Ws, read_all


@pytest.fixture
def server(port):
    """Our own parser; within an app of one's own it is uvicorn's."""
    return port


def post(body: str, more: str = "") -> bytes:
    head = f"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{more}\r\n{body}".encode()


def answers(data: bytes) -> list[tuple[int, dict]]:
    """Statuses and bodies of what a connection received."""
    found = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        found.append((int(head.split()[1]), json.loads(rest[:length])))
        data = rest[length:]
    return found


def said(server, data: bytes) -> list[tuple[int, dict]]:
    with server.connect() as connection:
        connection.sendall(data)
        return answers(read_all(connection))


def test_pipelined_requests_are_answered_in_order(server, key):
    bodies = [json.dumps({"key": key, "data": n}) for n in range(50)]
    requests = b"".join(map(post, bodies[:-1])) + post(bodies[-1], "Connection: close\r\n")
    found = said(server, requests)
    assert [status for status, _ in found] == [200] * 50
    ids = [answer["first"] for _, answer in found]
    assert ids == sorted(ids)


def test_a_long_poll_holds_up_what_is_pipelined_behind_it(server, key):
    cursor = server.now()
    poll = f"GET /v1/events?key={quote(key)}&cursor={cursor}&timeout=0.3 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    found = said(server, poll.encode() + post('{"key":"x"}', "Connection: close\r\n"))
    assert [sorted(answer)[0] for _, answer in found] == ["events", "epoch"]


def test_a_request_that_comes_byte_by_byte(server, key):
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in post(json.dumps({"key": key}), "Connection: close\r\n"):
            connection.sendall(bytes((byte,)))
        assert answers(read_all(connection))[0][0] == 200


def test_chunked_bodies_and_expectations(server, key):
    body = json.dumps({"key": key}).encode()
    with server.connect() as connection:
        connection.sendall(
            b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            b"Expect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        connection.sendall(b"5\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (body[:5], len(body) - 5, body[5:]))
        assert answers(read_all(connection))[0][0] == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /v1/events?key=%ff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /v1/events?key=a HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n", 400),
        (b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    ],
)
def test_what_cannot_be_understood_is_answered_and_the_connection_ends(server, request_, status):
    ((found, answer),) = said(server, request_)
    assert found == status
    assert answer["error"]["message"]


def test_ten_thousand_keys_in_one_url_get_a_clear_answer(server):
    url = "/v1/events?" + "&".join(f"key=key-{n}" for n in range(10_000))
    status, answer, _ = server.ask("GET", url)
    assert status == 414
    assert "WebSocket" in answer["error"]["hint"]
    heard = Ws(server, [])
    heard.say(subscribe=[f"key-{n}" for n in range(10_000)])
    server.push("key-9999", 1)
    heard.until(1)
    heard.say(subscribe=["one too many"])
    while not heard.errors:
        heard.hear()
    assert heard.errors[0]["status"] == 400
    heard.close()


def test_a_chunked_body_over_the_limit_is_refused(server):
    with server.connect() as connection:
        connection.sendall(
            b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        try:
            for _ in range(10):
                connection.sendall(b"100000\r\n" + bytes(2**20) + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        data = read_all(connection)
        assert not data or answers(data)[0][0] == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("DELETE", "/v1/events", 405),
        ("GET", "/v1/events", 400),
        ("GET", "/v1/events?key=a&cursor=nonsense", 400),
        ("GET", "/v1/events?key=a&cursor=x&rewind=1", 400),
        ("GET", "/v1/events?key=a&rewind=-1", 400),
        ("GET", "/v1/events?key=a&timeout=soon", 400),
        ("GET", "/v1/events?key=a&timeout=nan", 400),
        ("GET", "/v1/events?key=a&timout=5", 400),
        ("GET", "/v1/events?key=%5Bnot-json", 400),
        ("GET", "/v1/events?key=a&topic=unknown", 404),
        ("GET", "/v1/events?key=a&topic=no%2Fname", 400),
        ("GET", "/v1/events?key=a&limit=0", 400),
        ("GET", "/v1/events/presence", 400),
        ("GET", "/health", 200),
    ],
)
def test_routes(server, method, path, status):
    found, answer, _ = server.ask(method, path)
    assert found == status, answer
    if status != 200:
        assert answer["error"]["status"] == status


@pytest.mark.parametrize(
    "body",
    [
        "", "nonsense", "5", "[]", "{}", '{"key": null}', '{"key": 5}', '{"key": "k", "dat": 1}',
        '[{"key": "k"}, {"key": 7}]', '{"key": "k", "data": NaN}', '{"key": "k"} {"key": "k"}',
        '{"key": "k"}\n{"key": 5}', '{"key": {"a": 1}}', '{"key": [{"a": 1}]}', b'{"key": "\xff"}',
        '{"key": "' + "k" * 5000 + '"}', "[" * 100_000, '{"key": "k", "audience": 5}',
    ],
)  # fmt: skip
def test_of_a_push_that_makes_no_sense_nothing_is_stored(server, body):
    before = server.now()
    status, answer, _ = server.ask("POST", "/v1/events", body)
    assert status in (400, 413), answer
    assert answer["error"]["message"]
    assert server.now() == before


def test_an_event_over_the_topics_limit_is_refused(server):
    status, answer, _ = server.ask("POST", "/v1/events", json.dumps({"key": "k", "data": "x" * 2**21}))
    assert status == 413, answer


def test_lines_of_json_are_events(server, key):
    cursor = server.now()
    lines = "\n".join(json.dumps({"key": key, "data": n}) for n in range(3)) + "\n\n"
    status, answer, _ = server.ask("POST", "/v1/events", lines, Content_Type="application/x-ndjson")
    assert (status, answer["last"] - answer["first"]) == (200, 2)
    assert server.ask("POST", "/v1/events", lines)[0] == 200
    heard = server.ask("GET", f"/v1/events?key={quote(key)}&cursor={cursor}")[1]["events"]
    assert [event["data"] for event in heard] == [0, 1, 2, 0, 1, 2]


def test_an_idempotency_key_stores_once_and_answers_the_same(server, key):
    cursor, body = server.now(), json.dumps([{"key": key, "data": 1}, {"key": key, "data": 2}])
    first = server.ask("POST", "/v1/events", body, Idempotency_Key=key)[1]
    assert server.ask("POST", "/v1/events", body, Idempotency_Key=key)[1] == first
    assert server.ask("POST", "/v1/events", body + " ", Idempotency_Key=key)[0] == 422
    assert server.ask("POST", "/v1/events", body, Idempotency_Key="x" * 300)[0] == 400
    heard = server.ask("GET", f"/v1/events?key={quote(key)}&cursor={cursor}")[1]["events"]
    assert [event["id"] for event in heard] == [first["first"], first["last"]]


def test_foreign_pages_and_names_are_refused(server):
    """S002-37's first half: a page on another site must not reach this machine's port."""
    assert server.ask("GET", "/v1/events?key=a", Origin="http://evil.example")[0] == 403
    assert server.ask("POST", "/v1/events", '{"key":"a"}', Origin="null")[0] == 403
    assert server.ask("GET", "/v1/events?key=a", Host="evil.example")[0] == 403
    own = f"http://127.0.0.1:{server.port}"
    status, _, headers = server.ask("GET", "/v1/events?key=a", Origin=own)
    assert (status, headers["access-control-allow-origin"]) == (200, own)
    status, _, headers = server.ask("OPTIONS", "/v1/events", Origin=own)
    assert "Idempotency-Key" in headers["access-control-allow-headers"]
    with pytest.raises(AssertionError, match="403"):
        Ws(server, ["a"], headers="Origin: http://evil.example\r\n")


def test_a_websocket_that_breaks_the_rules_is_closed(server, key):
    for data, code in ((frame(1, b"unmasked"), 1002), (frame(2, b"binary", b"mask"), 1003)):
        heard = Ws(server, [key])
        heard.send(data)
        assert heard.until_closed() == code
        heard.close()


def test_messages_that_make_no_sense_are_answered_and_change_nothing(server, key):
    heard = Ws(server, [key])
    for wrong in ({"subscribe": 5}, {"nonsense": 1}, {"cursor": "nonsense"}, {"subscribe": [{"pre": 1}]}):
        heard.say(**wrong)
    while len(heard.errors) < 4:
        heard.hear()
    server.push(key, 1)
    heard.until(1)
    heard.close()


def test_keys_change_on_a_live_connection(server, key):
    heard = Ws(server, [[key, 1]])
    before = heard.cursor
    server.push_many(([key, 1], "one"), ([key, 2], "two, before"), ([key, 3], "nobody"))
    heard.until(1)
    heard.say(subscribe=[[key, 2], {"prefix": [key, "deep"]}], cursor=before)
    heard.until(2)
    server.push_many(([key, 2], "two"), ([key, "deep", 1], "deep"), ([key, 1], "one again"))
    heard.until(5)
    heard.say(unsubscribe=[[key, 1], {"prefix": [key, "deep"]}])
    heard.say(subscribe=[5])  # answered, so that we know that what came before it was done
    while not heard.errors:
        heard.hear()
    server.push_many(([key, 1], "gone"), ([key, "deep", 1], "gone"), ([key, 2], "stays"))
    heard.until(6)
    assert heard.data == ["one", "two, before", "two", "deep", "one again", "stays"]
    heard.close()


def test_a_message_with_a_ref_is_answered_when_it_is_done(server, key):
    """A client that is cut before has to ask again from where it stood."""
    before = server.now()
    for part in range(3):
        server.push_many(*(([key, 2], part * 1000 + n) for n in range(1000)))
    heard = Ws(server, [[key, 1]])
    heard.say(subscribe=[[key, 2]], cursor=before, ref=1)
    heard.say(unsubscribe=[[key, 1]], ref=2)
    heard.say(subscribe=5, ref=3)
    heard.say(subscribe=[[key, 3]], cursor="nonsense", ref=4)
    while len(heard.refs) < 3:
        heard.hear()
    assert heard.refs == [4, 1, 2]  # what makes no sense at all has no `ref`
    assert [error["status"] for error in heard.errors] == [400, 400]
    assert heard.data == list(range(3000))  # all that is old came before the answer
    heard.close()


def test_presence_counts_who_listens(server, key):
    def count():
        answer = server.ask("GET", f"/v1/events/presence?key={quote(key)}")[1]
        assert answer["complete"]
        return answer["keys"][0]["count"]

    assert count() == 0
    heard = [Ws(server, [key]), Ws(server, [], prefixes=[key[:10]])]
    assert count() == 2
    for each in heard:
        each.close()
    while count():
        pass
