"""Web hooks to a flaky server: back-off, dead letters, worker processes that are killed and started again.

python examples/webhooks.py [FOLDER]
"""

import http.server
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from typing import ClassVar

import penstock

HOOKS, WORKERS, KILLS = 120, 3, 4
RETRY = penstock.Retry(first="50ms", factor=2, limit="400ms", attempts=6)


class Shop(http.server.BaseHTTPRequestHandler):
    """Somebody else's server: it takes some orders only when asked again, and one never."""

    got: ClassVar[Counter[int]] = Counter()
    asked: ClassVar[Counter[int]] = Counter()

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["order"]
        Shop.asked[order] += 1
        is_fine = order != 13 and Shop.asked[order] > order % 3
        if is_fine:
            Shop.got[order] += 1
        self.send_response(200 if is_fine else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def deliver(folder: str, url: str) -> None:
    """A worker: sends hooks until it is killed."""

    def send(message: penstock.Message) -> None:
        assert message.value is not None
        try:
            urllib.request.urlopen(url, data=message.value, timeout=60).close()
        except urllib.error.HTTPError as error:
            error.close()
            raise RuntimeError(f"the shop answered {error.code}") from None

    # A queue: hooks have no order, and three workers share the one partition.
    with (
        penstock.open(folder) as store,
        store.topic("hooks").reader(consumer="sender", kind="queue") as reader,
    ):
        reader.process(send, workers=4, retry=RETRY)


def main(folder: str) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    spawn = multiprocessing.get_context("spawn")  # a store does not survive fork()

    def started() -> multiprocessing.process.BaseProcess:
        process = spawn.Process(target=deliver, args=(folder, url), daemon=True)
        process.start()
        return process

    with penstock.open(folder) as store:
        hooks = store.create_topic("hooks", exists_ok=True)
        dead = store.dead_letters("hooks")
        dead.drop()  # of an earlier run
        hooks.write_many([json.dumps({"order": number}) for number in range(HOOKS)])
        workers = [started() for _ in range(WORKERS)]
        deadline = time.monotonic() + 240
        kills = 0
        while len(Shop.got) < HOOKS - 1 or not dead.count():
            if time.monotonic() > deadline:
                sys.exit(f"only {len(Shop.got)} hooks arrived")
            time.sleep(0.3)
            if kills < KILLS:
                victim = workers.pop(0)
                os.kill(victim.pid or 0, signal.SIGKILL)
                victim.join()
                workers.append(started())
                kills += 1
        for worker in workers:
            worker.kill()
            worker.join()
        (letter,) = dead.list(limit=1)
        print(f"a dead letter after {letter.attempts} attempts: {letter.message.text}, {letter.last_error}")
        twice, calls = sum(times > 1 for times in Shop.got.values()), Shop.asked.total()
        print(f"{len(Shop.got)} of {HOOKS} hooks arrived, {twice} of them twice, in {calls} calls")
        print(f"{kills} workers were killed meanwhile")
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
