"""`penstock.asgi`: what is its own. What it shares with the port is in tests that run on both."""

import asyncio
import http.client
import json
import signal
import time

import pytest

import penstock
from penstock import aio
from tests.kit.patience import PATIENCE_S
from tests.serve.kit import SECRET, Mounted, Sse, Ws, served, token

ALL = {"prefixes": [""]}


def test_it_lives_under_a_path_beside_the_apps_own_routes(tmp_path):
    with served(tmp_path / "data", '{"at": "/live"}', kind=Mounted) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        connection.request("GET", "/own")
        assert connection.getresponse().read() == b"the app's own"
        connection.request("GET", "/live/penstock.js")
        answer = connection.getresponse()
        assert (answer.status, b"export class Events" in answer.read()) == (200, True)
        assert answer.headers["Content-Type"].startswith("text/javascript")
        connection.close()
        status, pushed, _ = server.ask("POST", "/live/v1/events", '{"key": "k", "data": 1}')
        assert (status, pushed["first"]) == (200, 1)
        events = server.ask("GET", "/live/v1/events?key=k&rewind=1")[1]["events"]
        assert [event["data"] for event in events] == [1]
        assert server.ask("GET", "/live/nonsense")[0] == 404


def test_bodies_come_in_pieces_and_have_a_limit(mounted, key):
    body = json.dumps([{"key": key, "data": "x" * 1000} for _ in range(500)]).encode()
    pieces = (body[at : at + 10_000] for at in range(0, len(body), 10_000))
    connection = http.client.HTTPConnection("127.0.0.1", mounted.port, timeout=PATIENCE_S)
    connection.request("POST", "/v1/events", pieces, encode_chunked=True)
    answer = json.loads(connection.getresponse().read())
    assert answer["last"] - answer["first"] == 499
    connection.close()
    assert mounted.ask("POST", "/v1/events", b"[" + b" " * 2**23 + b"]")[0] == 413


def test_an_idempotency_key_and_foreign_pages(mounted, key):
    first = mounted.ask("POST", "/v1/events", json.dumps({"key": key}), Idempotency_Key=key)[1]
    assert mounted.ask("POST", "/v1/events", json.dumps({"key": key}), Idempotency_Key=key)[1] == first
    assert mounted.ask("GET", "/v1/events?key=a", Origin="http://evil.example")[0] == 403
    assert mounted.ask("GET", "/v1/events?key=a", Host="evil.example")[0] == 403
    with pytest.raises(AssertionError, match="403"):
        Ws(mounted, ["a"], headers="Origin: http://evil.example\r\n")


def test_keys_change_on_a_live_connection_and_that_is_told(mounted, key):
    heard = Ws(mounted, [[key, 1]])
    heard.say(subscribe=[[key, 2]], unsubscribe=[[key, 1]], ref=7)
    while 7 not in heard.refs:
        heard.hear()
    mounted.push_many(([key, 1], "gone"), ([key, 2], "two"))
    heard.until(1)
    assert heard.data == ["two"]
    heard.close()


def test_a_slow_client_gets_everything(mounted, key):
    heard = Ws(mounted, [key], receive_bytes=4096)
    for first in range(0, 5000, 500):
        mounted.push_many(*((key, {"n": n, "text": "x" * 100}) for n in range(first, first + 500)))
    heard.until(5000, timeout=60)
    assert [data["n"] for data in heard.data] == list(range(5000))
    heard.close()


def test_tokens(tmp_path, key):
    options = json.dumps({"token_secret": SECRET, "allow_host": ["app.example"]})
    with served(tmp_path / "data", options, kind=Mounted) as server:
        assert server.ask("GET", "/v1/events?key=a")[0] == 401
        good = f"Bearer {token(subscribe=ALL, push=ALL)}"
        assert server.ask("GET", "/v1/events?key=a", Authorization=good, Host="app.example")[0] == 200
        with pytest.raises(AssertionError, match="401"):
            Ws(server, [key], token="nonsense")
        heard = Ws(server, [key], waits=False)
        heard.say(token=token(subscribe=ALL))
        while heard.cursor is None:
            heard.hear()
        server.ask("POST", "/v1/events", json.dumps({"key": key}), Authorization=good)
        heard.until(1)
        heard.close()
        short = Ws(server, [key], token=token(subscribe=ALL, exp=time.time() + 1))
        assert short.until_closed() == 1008
        short.close()


def test_a_server_that_ends_does_not_wait_for_streams(tmp_path):
    with served(tmp_path / "data", kind=Mounted) as server:
        streams = [Sse(server, ["k"]), Ws(server, ["k"])]
        assert server.end() == -signal.SIGTERM  # uvicorn ends so
        for each in streams:
            each.close()


def scope(**more):
    return {"type": "http", "method": "GET", "path": "/v1/events", "query_string": b"key=k",
            "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 5000), **more}  # fmt: skip


async def asked(app, **more):
    """The status of one request that is made without a server."""
    requests, sent = [{"type": "http.request"}], []

    async def receive():
        return requests.pop() if requests else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    await app(scope(**more), receive, send)
    return sent[0]["status"]


def test_strangers_need_a_token_or_an_app_that_knows_them(tmp_path):
    async def run(store):
        elsewhere = {"client": ("192.0.2.7", 5000)}
        app, trusting = penstock.asgi(store), penstock.asgi(store, trusted=True)
        found = [await asked(app), await asked(app, **elsewhere), await asked(trusting, **elsewhere)]
        found.append(await asked(app, headers=[(b"host", b"localhost\r\nx: y")]))
        await app.aclose()
        await trusting.aclose()
        return found

    with penstock.open(tmp_path / "data") as store:
        assert asyncio.run(run(store)) == [200, 403, 200, 400]


def test_an_async_store_will_do_and_the_lifespan_ends_it(tmp_path):
    async def run():
        said, told = asyncio.Queue(), asyncio.Queue()
        async with aio.open(tmp_path / "data") as store:
            app = penstock.asgi(store)
            life = asyncio.create_task(app({"type": "lifespan"}, said.get, told.put))
            await said.put({"type": "lifespan.startup"})
            assert (await told.get())["type"] == "lifespan.startup.complete"
            assert await asked(app) == 200
            await said.put({"type": "lifespan.shutdown"})
            assert (await told.get())["type"] == "lifespan.shutdown.complete"
            await life
            await store.events()  # it is still open

    asyncio.run(run())


def test_what_it_cannot_be_is_refused(tmp_path):
    with penstock.open(tmp_path / "data") as store:
        with pytest.raises(penstock.InvalidOption):
            penstock.asgi(store, token_secret="short")
        with pytest.raises(penstock.InvalidOption):
            asyncio.run(penstock.asgi(store)({"type": "smtp"}, None, None))
