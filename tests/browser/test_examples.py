"""The examples with pages, started by their command and used in a real browser."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

import penstock
from tests.browser.kit import PATIENCE_MS
from tests.require import require
from tests.serve.kit import ROOT, served


class Example:
    """One of them, and what it prints."""

    def __init__(self, name, folder):
        command = [sys.executable, "-W", "error", "examples/live", name, str(folder), "--port", "0"]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.url = self.printed(r"open (http://\S+)")

    def printed(self, pattern):
        for line in self.process.stdout:
            found = re.search(pattern, line)
            if found:
                return found[1]
        raise AssertionError(f"it ended with {self.process.wait()}")


@contextmanager
def example(name, folder):
    running = Example(name, folder)
    try:
        yield running
    finally:
        running.process.terminate()
        assert running.process.wait(60) == 0
        running.process.stdout.close()


def texts(page, selector):
    return page.locator(selector).all_inner_texts()


def until(page, condition, argument=None, patience=PATIENCE_MS):
    page.wait_for_function(f"(given) => {condition}", arg=argument, timeout=patience)


def test_chat(browser, page, tmp_path):
    """S002-38: two people, rooms, and one who comes later."""

    def say(tab, name, text):
        tab.fill("#name", name)
        tab.fill("#text", text)
        tab.click("text=Send")
        until(tab, "document.querySelector('#messages').innerText.includes(given)", text)

    other = browser.new_page()
    with example("chat", tmp_path / "data") as chat:
        for tab in (page, other):
            tab.goto(chat.url)
            until(tab, "document.querySelector('#state').textContent === 'live by websocket'")
        say(page, "Ann", "<b>hello</b>")
        until(other, "document.querySelector('#messages').innerText.includes('hello')")
        say(other, "Bob", "hello Ann")
        until(page, "document.querySelectorAll('#messages .text').length === 2")
        assert texts(page, "#messages .text") == ["<b>hello</b>", "hello Ann"]
        assert texts(page, "#messages .mine .text") == ["<b>hello</b>"]
        other.click("text=# kitchen")
        until(other, "document.querySelector('#messages .note')")
        say(other, "Bob", "only here")
        other.reload()
        until(other, "document.querySelectorAll('#messages .text').length === 1")
        assert texts(other, "#messages .text") == ["only here"]
        assert len(texts(page, "#messages .text")) == 2
    other.close()


def test_the_bar_of_a_long_job_goes_on_through_a_reload_and_a_killed_worker(browser, page, tmp_path):
    """S002-39."""
    percent = "Number.parseInt(document.querySelector('#percent').textContent)"
    with example("progress", tmp_path / "data") as progress:
        worker = int(progress.printed(r"worker.py has pid (\d+)"))
        page.goto(progress.url)
        page.select_option("#limit", "200000")
        page.click("#go")
        until(page, f"{percent} >= 5")
        page.reload()
        until(page, f"{percent} >= 10")
        os.kill(worker, signal.SIGKILL)
        reached = page.evaluate(percent)
        assert reached < 100
        until(page, "!document.querySelector('#result').hidden")
        assert page.inner_text("#number") == "17,984"
    with penstock.open(tmp_path / "data") as store:
        events = store.events().subscribe([], prefixes=[["job"]], rewind=1000).events
        assert [event.data["done"] for event in events] == list(range(1, 101))  # each step once


def wait_for_lines(page, patience=PATIENCE_MS):
    until(page, "document.querySelectorAll('#chart path').length === 3", patience=patience)


def test_the_chart_draws_what_its_topic_holds(browser, page, tmp_path):
    """The page alone; what Spark writes is in tests/spark, and both together below."""
    folder, now = tmp_path / "data", int(time.time())
    pages = str(ROOT / "examples" / "live" / "pages")
    with penstock.open(folder) as store, served(folder, "--topic", "sales", "--pages", pages) as server:
        sales = store.events("sales")
        rows = [
            (product, second) for second in range(now - 3, now + 1) for product in ("coffee", "tea", "cake")
        ]
        sales.push_many((product, {"second": second, "total": second - now + 9}) for product, second in rows)
        page.goto(f"{server.url}/chart/")
        wait_for_lines(page)
        sales.push("coffee", {"second": now, "total": 1})
        sales.push("coffee", {"second": now + 1, "total": 100})
        until(page, "document.querySelector('#coffee').textContent === '1'")  # the second that is over


@pytest.mark.slow
def test_orders_go_through_spark_to_a_chart(browser, page, tmp_path):
    require("spark")
    with example("chart", tmp_path / "data") as chart:
        page.goto(chart.url)
        wait_for_lines(page, 400_000)
        drawn = page.inner_html("#chart")
        until(page, "document.querySelector('#chart').innerHTML !== given", drawn)
