"""penstock.js in a real browser, over each way: events are shown, cut, resumed; none missing, none twice."""

import re
import time
from itertools import count
from pathlib import Path

import pytest

import penstock
from tests.browser.kit import PAGES, Network, Tab
from tests.kit.patience import PATIENCE_S
from tests.serve.kit import Served

WAYS = {"websocket": set(), "sse": {"websocket"}, "longpoll": {"websocket", "sse"}}


@pytest.fixture(params=WAYS)
def way(request, network):
    """The way that is left when the better ones are blocked."""
    network.blocked |= WAYS[request.param]
    return request.param


def test_a_page_hears_and_pushes(way, server, tab, key):
    tab.listen([key, [key, 1]])
    assert tab.run("live.transport") == way
    server.push([key, 1], {"text": "ä€😀"})
    pushed = tab.run("new penstock.Events().push(given, 'by the page')", key)
    server.push([key, 2], "nobody listens to this")
    server.push(key, "last")
    tab.until_data([{"text": "ä€😀"}, "by the page", "last"])
    assert tab.page.locator("#events li").all_inner_texts() == ['{"text":"ä€😀"}', '"by the page"', '"last"']
    assert pushed["last"] == tab.run("heard[1].id")
    assert pushed["cursor"] == f"{pushed['epoch']}.{pushed['first']}"


def test_a_cut_network_loses_nothing_and_repeats_nothing(way, server, network, tab, key):
    tab.listen([key])
    numbers = count()
    for _ in range(3):
        server.push_many(*((key, next(numbers)) for _ in range(5)))
        network.cut()
        server.push_many(*((key, next(numbers)) for _ in range(5)))
        tab.until("live.state !== 'live'")
        network.mend()
        server.push(key, next(numbers))
    tab.until_data(list(range(33)))
    assert tab.run("gaps") == []


@pytest.mark.parametrize(
    "blocked",
    [
        pytest.param(blocked, id=way, marks=pytest.mark.slow if blocked else ())
        for way, blocked in WAYS.items()
    ],
)
def test_a_killed_server_loses_nothing_and_repeats_nothing(tmp_path, page, blocked):
    """kill -9; events come by the folder while no server is there."""
    folder = tmp_path / "data"
    options = ("--workers", "1", "--pages", str(PAGES))
    server = Served(folder, *options)
    network = Network(server.port)
    network.blocked |= blocked
    try:
        tab = Tab(page, network.url).listen(["k"])
        numbers = count()
        with penstock.open(folder) as store:
            events = store.events()
            server.push_many(*(("k", next(numbers)) for _ in range(10)))
            server.kill()
            events.push_many([("k", next(numbers)) for _ in range(10)])
            server.close()
            server = Served(folder, *options, port=server.port)
            events.push("k", next(numbers))
            tab.until_data(list(range(21)))
        assert tab.run("gaps") == []
    finally:
        network.close()
        server.close()


def test_a_plain_event_source_goes_on_by_itself(server, network, tab, key):
    """Without our library: `Last-Event-ID` is all it takes."""
    tab.run(
        """new Promise((resolve) => {
          const source = new EventSource('/v1/events?key=' + encodeURIComponent(given));
          source.onmessage = (message) => heard.push(JSON.parse(message.data));
          source.onopen = resolve;
        })""",
        key,
    )
    server.push(key, 0)
    tab.until("heard.length === 1")
    network.cut()
    server.push_many((key, 1), (key, 2))
    network.mend()
    server.push(key, 3)
    tab.until_data([0, 1, 2, 3])


def test_a_dead_connection_is_noticed(server, network, page, key):
    """Nobody says that it is dead: no ping comes."""
    page.clock.install()
    tab = Tab(page, network.url).listen([key])
    network.silence()
    server.push(key, "into the dark")
    page.clock.run_for(55_000)
    assert tab.run("[live.state, heard.length]") == ["live", 0]
    network.mend()  # for new connections
    page.clock.run_for(10_000)
    tab.until_data(["into the dark"])


def test_it_climbs_back_to_the_better_way(server, network, page, key):
    page.clock.install()
    network.blocked |= {"websocket", "sse"}
    tab = Tab(page, network.url).listen([key])
    for number, (way, blocked) in enumerate(
        [("longpoll", {"websocket"}), ("sse", set()), ("websocket", set())]
    ):
        tab.until("live.transport === given", way)
        server.push(key, number)
        tab.until("heard.length === given", number + 1)
        network.blocked = blocked
        page.clock.run_for(31_000)
    tab.until_data([0, 1, 2])
    assert "waiting" not in tab.run("states")


def test_a_gap_is_told(tmp_path, browser, page):
    """B002-04: what retention took while the page was away."""
    folder = tmp_path / "data"
    with penstock.open(folder) as store:
        store.create_topic("events", index="key", retention="1s")
    server = Served(folder, "--workers", "1", "--pages", str(PAGES))
    network = Network(server.port)
    try:
        tab = Tab(page, network.url).listen(["k"])
        server.push("k", 1)
        tab.until_data([1])
        network.cut()
        server.push_many(("k", 2), ("k", 3))
        with penstock.open(folder) as store:
            deadline = time.monotonic() + PATIENCE_S
            while store.topic("events").stats().messages:
                assert time.monotonic() < deadline
                store.topic("events").vacuum()
        network.mend()
        tab.until("gaps.length")
        assert tab.run("gaps") == [{"reason": "retention", "first": 2, "stop": 4}]
        server.push("k", 4)
        tab.until_data([1, 4])
    finally:
        network.close()
        server.close()


def test_types_name_what_the_module_has():
    root = Path(penstock.__file__).parent / "serve" / "browser"
    types = (root / "penstock.d.ts").read_text()
    module = "".join(path.read_text() for path in (root / "penstock.js", *root.glob("penstock/*.js")))
    declared = set(re.findall(r"^export class (\w+)", types, re.MULTILINE))
    index = (root / "penstock.js").read_text()
    exported = set(re.findall(r"^export class (\w+)", index, re.MULTILINE))
    exported |= set(re.findall(r"\w+", re.search(r"^export \{(.*)\};", index, re.MULTILINE)[1]))
    assert declared == exported
    for name in declared:
        body = re.search(rf"export class {name}\b.*?\n}}\n", types, re.DOTALL)[0]
        members = set(re.findall(r"^  (?:readonly )?(\w+)[(:<]", body, re.MULTILINE)) - {"constructor"}
        code = re.search(rf"export class {name}\b.*?\n}}\n", module, re.DOTALL)[0]
        code = re.sub(r"/\*\* @internal \*/\n.*\n", "", code)
        public = set(re.findall(r"^  (?:async |get )?([a-z]\w*)\(", code, re.MULTILINE)) - {"constructor"}
        public |= set(re.findall(r"^    this\.(\w+) = ", code, re.MULTILINE)) - {"name"}
        assert members == public, name
