"""One browser and one server for the tests of a file that do not end them.

The browser's driver has an event loop running in this thread for as long as it is there.
"""

import pytest

from tests.browser.kit import PAGES, Network, Tab
from tests.parts import program
from tests.require import require
from tests.serve.kit import served


@pytest.fixture(scope="module")
def browser():
    require("server", "chromium", "playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser") / "data"
    with served(folder, "--workers", "1", "--pages", str(PAGES)) as server:
        yield server


@pytest.fixture
def network(server):
    made = Network(server.port)
    yield made
    made.close()


@pytest.fixture
def page(browser):
    context = browser.new_context()
    page = context.new_page()
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    yield page
    context.close()
    assert not failures


@pytest.fixture
def tab(page, network):
    return Tab(page, network.url)


@pytest.fixture
def key(request):
    """A key that no other test uses."""
    return request.node.name
