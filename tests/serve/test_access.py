"""S002-37: tokens, what they allow, and who sees an event."""

import json
import time

import pytest

import penstock
from tests.kit.server import ServeOptions
from tests.serve.kit import SECRET, Sse, Ws, served, token

ALL = {"prefixes": [""]}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded") / "data"
    with served(
        folder, "--workers", "1", "--token-secret", SECRET, "--allow-origin", "https://app.example"
    ) as server:
        yield server


def bearer(**claims):
    return f"Bearer {token(**claims)}"


def test_without_a_token_nothing_goes(guarded):
    for method, path in (
        ("GET", "/v1/events?key=a"),
        ("POST", "/v1/events"),
        ("GET", "/v1/events/presence?key=a"),
    ):
        status, _, headers = guarded.ask(method, path, '{"key":"a"}')
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
    assert guarded.ask("GET", "/health")[0] == 200


@pytest.mark.parametrize(
    "bad",
    [
        "nonsense",
        token(subscribe=ALL)[:-2],
        token(subscribe=ALL, exp=1),
        token(subscribe={"key": []}),
        token(subscribe=ALL, aud="others"),
        token(subscribe=5),
        __import__("jwt").encode({"subscribe": ALL, "exp": time.time() + 60}, "", algorithm="none"),
        __import__("jwt").encode({"subscribe": ALL}, SECRET, algorithm="HS256"),
    ],
)
def test_a_token_that_is_not_good_is_refused(guarded, bad):
    assert guarded.ask("GET", "/v1/events?key=a", Authorization=f"Bearer {bad}")[0] == 401
    assert guarded.ask("GET", f"/v1/events?key=a&token={bad}")[0] == 401


def test_a_token_comes_by_header_parameter_or_cookie(guarded):
    good = token(subscribe=ALL)
    assert guarded.ask("GET", "/v1/events?key=a", Authorization=f"Bearer {good}")[0] == 200
    assert guarded.ask("GET", f"/v1/events?key=a&token={good}")[0] == 200
    assert guarded.ask("GET", "/v1/events?key=a", Cookie=f"a=b; penstock_token={good}")[0] == 200
    assert good not in guarded.said()


def test_keys_and_prefixes_are_allowed_one_by_one(guarded):
    rights = {"keys": ["news", ["user", 7]], "prefixes": [["chat"]]}
    listener = bearer(subscribe=rights)
    allowed = ("key=news", 'key=["user",7]', 'key=["chat",1]', 'prefix=["chat"]', 'prefix=["chat",5]')
    refused = ("key=other", 'key=["user",8]', 'prefix=["user"]', "prefix=", 'key=news&key=["chatter"]')
    for asked, status in (*((each, 200) for each in allowed), *((each, 403) for each in refused)):
        path = f"/v1/events?{asked}".replace('"', "%22").replace("[", "%5B").replace("]", "%5D")
        assert guarded.ask("GET", path, Authorization=listener)[0] == status, asked
    body = json.dumps({"key": ["chat", 1]})
    assert guarded.ask("POST", "/v1/events", body, Authorization=listener)[0] == 403
    pusher = bearer(push=rights)
    assert guarded.ask("POST", "/v1/events", body, Authorization=pusher)[0] == 200
    both = json.dumps([{"key": ["chat", 1]}, {"key": "other"}])
    assert guarded.ask("POST", "/v1/events", both, Authorization=pusher)[0] == 403
    assert guarded.ask("GET", "/v1/events?key=news&topic=others", Authorization=listener)[0] == 403


def test_an_event_with_an_audience_is_seen_by_it_alone(guarded, key):
    heard = {
        name: Ws(guarded, [key], headers=f"Authorization: {bearer(subscribe=ALL, **claims)}\r\n")
        for name, claims in (
            ("ann", {"sub": "ann"}),
            ("bob", {"sub": "bob", "groups": ["staff"]}),
            ("nobody", {}),
        )
    }
    push = [
        {"key": key, "data": "ann", "audience": "ann"},
        {"key": key, "data": "staff and ann", "audience": ["staff", "ann"]},
        {"key": key, "data": "none", "audience": []},
        {"key": key, "data": "all"},
    ]
    status, answer, _ = guarded.ask("POST", "/v1/events", json.dumps(push), Authorization=bearer(push=ALL))
    assert status == 200, answer
    for each in heard.values():
        while "all" not in each.data:
            each.hear()
        each.close()
    assert {name: each.data for name, each in heard.items()} == {
        "ann": ["ann", "staff and ann", "all"],
        "bob": ["staff and ann", "all"],
        "nobody": ["all"],
    }
    start = guarded.ask(
        "GET", f"/v1/events?key={key}&rewind=10", Authorization=bearer(subscribe=ALL, groups=["staff"])
    )
    assert [event["data"] for event in start[1]["events"]] == ["staff and ann", "all"]


def test_the_first_message_may_bring_the_token(guarded, key):
    heard = Ws(guarded, [key], waits=False)
    heard.say(token=token(subscribe=ALL))
    while heard.cursor is None:
        heard.hear()
    guarded.ask("POST", "/v1/events", json.dumps({"key": key}), Authorization=bearer(push=ALL))
    heard.until(1)
    heard.close()
    for wrong in ({"subscribe": ["a"]}, {"token": "nonsense"}):
        heard = Ws(guarded, [key], waits=False)
        heard.say(**wrong)
        assert heard.until_closed() == 1008
        assert heard.errors[0]["status"] == 401
        heard.close()
    heard = Ws(guarded, [key], waits=False)
    heard.say(token=token(subscribe={"keys": ["other"]}))
    while not heard.errors:
        heard.hear()
    assert heard.errors[0]["status"] == 403
    heard.close()


def test_a_token_that_expires_ends_the_stream(guarded, key):
    short = token(subscribe=ALL, exp=time.time() + 2)
    socket = Ws(guarded, [key], headers=f"Authorization: Bearer {short}\r\n")
    stream = Sse(guarded, [key], token=short)
    assert socket.until_closed() == 1008
    with pytest.raises(ConnectionResetError):
        stream.until(1)
    socket.close()
    stream.close()


def test_named_origins_may_connect(guarded):
    good = bearer(subscribe=ALL)
    named, foreign = "https://app.example", "https://evil.example"
    assert guarded.ask("GET", "/v1/events?key=a", Authorization=good, Origin=named)[0] == 200
    assert guarded.ask("GET", "/v1/events?key=a", Authorization=good, Origin=foreign)[0] == 403


def test_a_public_key_checks_tokens_too(tmp_path):
    import jwt
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (tmp_path / "key.pem").write_bytes(public)
    claims = {"subscribe": ALL, "exp": time.time() + 60}
    with served(tmp_path / "data", "--jwt-key", str(tmp_path / "key.pem")) as server:
        good = jwt.encode(claims, private, algorithm="RS256")
        assert server.ask("GET", "/v1/events?key=a", Authorization=f"Bearer {good}")[0] == 200
        assert server.ask("GET", "/v1/events?key=a", Authorization=bearer(subscribe=ALL))[0] == 401


@pytest.mark.parametrize(
    "options",
    [
        {"host": "0.0.0.0"},
        {"secret": "short"},
        {"public_key": "no PEM"},
        {"secret": SECRET, "public_key": "both"},
    ],
)
def test_what_would_be_unsafe_is_refused_before_anything_starts(tmp_path, options):
    with pytest.raises(penstock.InvalidOption):
        ServeOptions(store=str(tmp_path), **options)
