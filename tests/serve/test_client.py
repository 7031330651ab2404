"""The Python client, and the command line, with a real server."""

import json
import subprocess
import sys

import pytest

import penstock
from penstock.client.events import Events, Refused
from tests.kit.patience import PATIENCE_S
from tests.serve.kit import ROOT


@pytest.fixture(params=["websocket", "longpoll"])
def transport(request):
    return request.param


def test_push_and_subscribe(server, key, transport):
    events = Events(server.url)
    with events.subscribe([[key, 1]], prefixes=[[key, "deep"]], transport=transport) as heard:
        assert heard.receive(0.2) is None
        pushed = events.push_many([([key, 1], {"n": 1}), ([key, 2], 0), ([key, "deep", 5], None)])
        events.push([key, 1], "last")
        got = [next(heard) for _ in range(3)]
    assert [(event.id - pushed.first, event.key, event.data) for event in got] == [
        (0, [key, 1], {"n": 1}),
        (2, [key, "deep", 5], None),
        (3, [key, 1], "last"),
    ]
    with pytest.raises(penstock.Closed):
        heard.receive()


def test_a_cursor_goes_on_elsewhere(server, key, transport):
    events = Events(server.url)
    for n in range(5):
        events.push(key, n)
    with events.subscribe(key, rewind=5, transport=transport) as heard:
        got = [heard.receive(10).data for _ in range(2)]
    with events.subscribe(key, heard.cursor, transport=transport) as again:
        got += [again.receive(10).data for _ in range(3)]
    assert got == [0, 1, 2, 3, 4]


def test_a_gap_is_raised_or_noted(server, key, transport):
    foreign = "abc.5"
    events = Events(server.url)
    events.push(key, "later")
    heard = events.subscribe(key, foreign, transport=transport)
    with pytest.raises(penstock.OutOfRange, match="epoch"):
        heard.receive(10)
    assert heard.receive(10).data == "later"
    heard.close()
    heard = events.subscribe(key, foreign, transport=transport, on_gap="skip")
    assert heard.receive(10).data == "later"
    assert heard.gaps[0].reason == "epoch"
    heard.close()


def test_what_is_refused_is_raised(server, transport):
    with pytest.raises(Refused) as refused:
        Events(server.url, topic="unknown").subscribe("k", transport=transport).receive(5)
    assert refused.value.status == 404
    with pytest.raises(penstock.UsageError):
        Events(server.url).push("k", object())
    for wrong in ("nonsense", "ftp://x", "http://"):
        with pytest.raises(penstock.InvalidOption):
            Events(wrong)
    with pytest.raises(penstock.InvalidOption):
        Events(server.url).subscribe()


def command(*arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "penstock", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_events_on_the_command_line(port, key):
    for where in (["--url", port.url], ["-s", str(port.folder)]):
        pushed = json.loads(command("events", "push", f'["{key}",1]', '{"n": 1}', *where, "--json"))
        wanted = [f'["{key}",1]', "--rewind", "1", "--limit", "1", *where]
        line = command("events", "listen", *wanted)
        assert command("events", "listen", *wanted, "--json") == line
        event = json.loads(line)
        assert (event["id"], event["key"], event["data"]) == (pushed["first"], [key, 1], {"n": 1})
