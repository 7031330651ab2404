"""Pages that live: one command each, and an address to open in a browser.

    python examples/live chat                a chat
    python examples/live progress            a long job and its bar; load the page again, it goes on
    python examples/live chart               orders → Spark → a keyed topic → a chart

    python examples/live chat data --port 7367       in a folder that stays; else in one that goes with it

Needs `pip install "penstock[cli,server]"`, the chart `"penstock[cli,server,spark]"`. Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import penstock

HERE = Path(__file__).parent
#: What works besides the server, by example: files of this folder.
PARTS = {"chat": [], "progress": ["worker.py"], "chart": ["orders.py", "sales.py"]}
#: The topics that the page talks to, the first by default.
TOPICS = {"chat": ["events"], "progress": ["events", "jobs"], "chart": ["sales"]}


def main() -> int:
    parser = argparse.ArgumentParser(prog="examples/live", description="Pages that live.")
    parser.add_argument("example", choices=PARTS)
    parser.add_argument("folder", nargs="?", help="where the store is; a temporary one unless given")
    parser.add_argument("--port", type=int, default=7367, help="0 takes a free one")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    with ExitStack() as stack:
        folder = chosen.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-live-"))
        make_topics(folder, chosen.example)
        processes = stack.enter_context(Processes(folder))
        try:
            address = processes.serve(chosen.port, TOPICS[chosen.example])
            print(f"open {address}/{chosen.example}/", flush=True)
            for part in PARTS[chosen.example]:
                processes.start(part)
            return processes.look_after()
        except KeyboardInterrupt:
            return 0


def make_topics(folder: str, example: str) -> None:
    """Those that are not made by themselves: events are, at first use."""
    with penstock.open(folder) as store:
        for name in TOPICS[example]:
            store.events(name)
        if example == "chart":
            store.create_topic("orders", retention="1h", exists_ok=True)


class Processes:
    """The server and what works beside it; a part that dies is started again."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._server: subprocess.Popen[str] | None = None
        self._parts: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        running = [each for each in (self._server, *self._parts.values()) if each is not None]
        for each in running:
            each.terminate()
        for each in running:
            each.wait(60)

    def serve(self, port: int, topics: list[str]) -> str:
        options = [option for topic in topics for option in ("--topic", topic)]
        pages = ["--pages", str(HERE / "pages"), "--port", str(port)]
        self._server = self._penstock("serve", *options, *pages, stdout=subprocess.PIPE)
        assert self._server.stdout is not None
        found = re.search(r"http://\S+", self._server.stdout.readline())
        if found is None:
            raise SystemExit(self._server.wait())  # it has said why
        return found[0]

    def start(self, part: str) -> None:
        path = str(HERE / part)
        if part == "sales.py":  # a pipeline: Spark runs it
            self._parts[part] = self._penstock("run", path)
        else:
            self._parts[part] = subprocess.Popen([sys.executable, path, self._folder], text=True)
        print(f"{part} has pid {self._parts[part].pid}", flush=True)

    def look_after(self) -> int:
        assert self._server is not None
        while self._server.poll() is None:
            time.sleep(0.5)
            for part, process in self._parts.items():
                if process.poll() is not None:
                    print(f"{part} ended with {process.returncode}: it goes on where it was", flush=True)
                    time.sleep(0.5)
                    self.start(part)
        return self._server.returncode

    def _penstock(self, *arguments: str, stdout: int | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "penstock", "-s", self._folder, *arguments]
        return subprocess.Popen(command, stdout=stdout, text=True)


if __name__ == "__main__":
    sys.exit(main())
