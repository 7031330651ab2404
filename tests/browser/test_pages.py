"""What a page may do besides: change keys while it is live, go on after a reload, bring tokens."""

import re
import time

import pytest

from tests.browser.kit import PAGES, Tab
from tests.browser.test_transports import WAYS
from tests.require import require
from tests.serve.kit import ROOT, SECRET, Mounted, served, token


@pytest.fixture(params=WAYS)
def way(request, network):
    network.blocked |= WAYS[request.param]
    return request.param


def test_keys_change_while_it_is_live(way, server, tab, key):
    before = server.now()
    server.push_many(([key, 1], "not asked for"), ([key, 2], "old"), ([key, "deep", 7], "deep, old"))
    server.push([key, 4], "not asked for, and nothing later")
    tab.listen([[key, 1], [key, 4]])
    server.push([key, 1], "one")
    tab.until_data(["one"])
    tab.run("live.subscribe([given.key, {prefix: given.deep}], {cursor: given.cursor})",
            {"key": [key, 2], "deep": [key, "deep"], "cursor": before})  # fmt: skip
    tab.until_data(["one", "old", "deep, old"])
    server.push_many(([key, 2], "two"), ([key, 1], "one again"), ([key, "deep", 8], "deep"))
    tab.until_data(["one", "old", "deep, old", "two", "one again", "deep"])
    tab.run("live.unsubscribe([given])", [key, 1])
    server.push_many(([key, 1], "gone"), ([key, 2], "stays"))
    tab.until_data(["one", "old", "deep, old", "two", "one again", "deep", "stays"])
    assert tab.run("[live.transport, gaps]") == [way, []]


def test_a_change_of_keys_survives_a_cut(way, server, network, tab, key):
    """The network goes while the message is under way: nothing of the new key is left out."""
    tab.listen([[key, 1]])
    before = tab.run("live.cursor")
    server.push_many(([key, 2], "old"), ([key, 1], "one"))
    tab.until_data(["one"])
    network.cut()
    tab.page.evaluate(
        "([key, cursor]) => { window.done = live.subscribe([key], {cursor}) }", [[key, 2], before]
    )
    server.push_many(([key, 2], "new"), ([key, 1], "one again"))
    network.mend()
    tab.run("window.done")
    tab.until("heard.length === 4")
    assert tab.data() == ["one", "old", "new", "one again"]


def test_a_change_of_keys_that_never_arrived_is_made_again(server, network, tab, key):
    """The other keys go on meanwhile; what is new of the added one is not passed over."""
    tab.listen([[key, 1]], {"transports": ["websocket"]})
    network.drop_requests()
    tab.page.evaluate("(key) => { window.done = live.subscribe([key]) }", [key, 2])
    server.push_many(([key, 2], "two"), ([key, 1], "one"))
    tab.until_data(["one"])
    network.cut()
    network.mend()
    tab.run("window.done")
    tab.until_data(["one", "two"])


def test_without_keys_it_waits_for_some(server, tab, key):
    tab.run("{ listen([]); live.on('state', () => 0) }")
    assert tab.run("live.state") == "idle"
    tab.run("live.subscribe(given)", key)
    server.push(key, 1)
    tab.until_data([1])
    tab.run("live.unsubscribe(given)", key)
    tab.until("live.state === 'idle'")


def test_thousands_of_keys(server, network, tab, key):
    """More than a URL holds; they come again after a cut."""
    keys = [[key, "a rather long name of a key", number] for number in range(3000)]
    tab.listen(keys)
    server.push(keys[2999], 1)
    tab.until_data([1])
    network.cut()
    server.push(keys[5], 2)
    tab.until("live.state !== 'live'")
    network.mend()
    tab.until_data([1, 2])


def test_a_page_that_is_loaded_again_goes_on(server, network, tab, key):
    tab.listen([key], {"remember": "test"})
    server.push(key, 1)
    tab.until_data([1])
    tab.page.goto("about:blank")
    server.push(key, 2)
    Tab(tab.page, network.url).listen([key], {"remember": "test"}).until_data([2])


def test_a_page_begins_where_its_own_push_was(server, tab, key):
    """The job may be done before the page listens: it hears all the same."""
    pushed = tab.run("new penstock.Events().push(given, 'asked')", key)
    server.push(key, "done")
    tab.listen([key], {"cursor": pushed["cursor"]})
    tab.until_data(["asked", "done"])


def test_a_page_reads_the_last_values_and_goes_on_behind_them(server, tab, key):
    server.push_many((key, 1), (key, 2), (key, 3))
    answer = tab.run("new penstock.Events().read([given], {rewind: 2})", key)
    server.push(key, 4)
    tab.listen([key], {"cursor": answer["next"]})
    tab.until_data([4])
    assert [event["data"] for event in answer["events"]] == [2, 3]


def test_a_listener_that_fails_does_not_end_the_others(server, browser, network, key):
    context = browser.new_context()
    tab = Tab(context.new_page(), network.url)
    failures = []
    tab.page.on("pageerror", lambda error: failures.append(str(error)))
    tab.page.evaluate("(key) => { listen([key]); live.on('event', () => { throw new Error('mine') }) }", key)
    tab.until("live.state === 'live'")
    server.push_many((key, 1), (key, 2))
    tab.until_data([1, 2])
    context.close()
    assert failures == ["mine", "mine"]


def test_the_smallest_page_of_the_docs_works(browser, page, tmp_path):
    block = re.search(r"```html\n(.*?)```", (ROOT / "docs" / "browser.md").read_text(), re.DOTALL)[1]
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.html").write_text(block)
    with served(tmp_path / "data", "--workers", "1", "--pages", str(tmp_path / "pages")) as server:
        server.push("news", {"text": "before"})
        page.goto(server.url)
        page.get_by_text("before").wait_for()
        server.push("news", {"text": "hello"})
        page.get_by_text("hello").wait_for()


@pytest.mark.slow
def test_the_module_finds_the_app_it_is_mounted_in(browser, page, tmp_path, key):
    """`penstock.asgi` under a path: the module's own address says where the events are."""
    require("asgi")
    with served(tmp_path / "data", '{"at": "/live"}', kind=Mounted) as server:
        page.goto(f"{server.url}/own")
        for way in WAYS:
            heard = page.evaluate(
                """async ([key, way]) => {
                  const { Events } = await import('/live/penstock.js');
                  const live = new Events();
                  return new Promise((resolve) => {
                    const heard = live.subscribe([key], { transports: [way] })
                      .on('state', (state) => { if (state === 'live') live.push(key, way); })
                      .on('event', ({ data }) => { heard.close(); resolve(data); });
                  });
                }""",
                [key, way],
            )
            assert heard == way


ALL = {"prefixes": [""]}


@pytest.fixture(scope="module")
def guarded(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded") / "data"
    with served(folder, "--workers", "1", "--token-secret", SECRET, "--pages", str(PAGES)) as server:
        yield server


def push(server, key, data):
    bearer = f"Bearer {token(push=ALL)}"
    body = f'{{"key": "{key}", "data": "{data}"}}'
    assert server.ask("POST", "/v1/events", body, Authorization=bearer)[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize("transport", WAYS)
def test_tokens_are_shown_and_renewed(guarded, page, key, transport):
    """Each is good for three seconds; the page gets new ones."""
    page.expose_function("freshToken", lambda: token(subscribe=ALL, exp=time.time() + 3))
    tab = Tab(page, guarded.url)
    tab.page.evaluate(
        "([key, transport]) => { window.asked = 0; listen([key], {transports: [transport]},"
        " {token: () => { asked += 1; return freshToken() }}) }",
        [key, transport],
    )
    tab.until("live.state === 'live'")
    push(guarded, key, "first")
    tab.until(
        "heard.length === 1 && asked >= (given === 'longpoll' ? 1 : 2) && live.state === 'live'", transport
    )
    push(guarded, key, "second")
    tab.until_data(["first", "second"])
    assert token()[:20] not in guarded.said()


@pytest.mark.parametrize("transport", WAYS)
def test_a_refusal_is_told_and_ends_it(guarded, page, key, transport):
    tab = Tab(page, guarded.url)
    for bad, status in ((token(subscribe={"keys": ["other"]}), 403), ("nonsense", 401)):
        tab.page.evaluate(
            "([key, way, token]) => { errors.length = 0; listen([key], {transports: [way]}, {token}) }",
            [key, transport, bad],
        )
        tab.until("live.state === 'closed'")
        assert [error["status"] for error in tab.run("errors")] == [status]


@pytest.mark.parametrize("transport", WAYS)
def test_keys_that_are_not_allowed_change_nothing(guarded, page, key, transport):
    tab = Tab(page, guarded.url)
    tab.listen([key], {"transports": [transport]}, token=token(subscribe={"keys": [key]}))
    assert tab.run("live.subscribe(['other']).catch((error) => error.status)") == 403
    tab.until("live.state === 'live'")
    push(guarded, key, "still here")
    tab.until_data(["still here"])


def test_pages_of_a_foreign_origin_are_refused(server, network, page, tmp_path, key):
    """S002-37: another port is another origin."""
    tab = Tab(page, network.url)
    tab.page.evaluate("([key, url]) => { listen([key], {}, {url}) }", [key, server.url])
    tab.until("states.filter((state) => state === 'waiting').length >= 2")
    assert "live" not in tab.run("states")
    before = server.now()
    post = "{method: 'POST', body: JSON.stringify({key: 'x'})}"  # as a form could send it
    assert tab.run(f"fetch(given + '/v1/events', {post}).catch(() => 'refused')", server.url) == "refused"
    assert server.now() == before
    with served(tmp_path / "data", "--workers", "1", "--allow-origin", network.url) as other:
        tab = Tab(page, network.url).listen([key], url=other.url)
        other.push(key, "allowed")
        tab.until_data(["allowed"])
        assert tab.run(f"import('{other.url}/penstock.js').then((module) => Object.keys(module).length)") == 3
