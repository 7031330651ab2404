"""The processes of the demo, as their parent sees them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Child:
    """A process of its own, with all that it starts; what it prints as JSON is kept in `facts`."""

    def __init__(self, *command: str) -> None:
        self.facts: dict[str, Any] = {}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in close()
        self.process = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=self._errors, text=True, start_new_session=True,
        )  # fmt: skip
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @classmethod
    def shop(cls, store: str, number: int, orders: int, duration_s: float) -> Child:
        return cls(str(HERE / "shop.py"), store, str(number), str(orders), str(duration_s))

    @classmethod
    def penstock(cls, store: str, *arguments: str) -> Child:
        """The `penstock` command; with a Spark in it, Java is a child of it."""
        return cls("-m", "penstock", "-s", store, *arguments, "--json")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """kill -9, its Java included: no handler runs, nothing is flushed."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """Let it end by itself; all it told is in `facts` then."""
        code = self.process.wait(timeout)
        self._listener.join()
        return code

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().strip()

    def close(self) -> None:
        if self.running:
            self.kill()
        assert self.process.stdout is not None
        self._listener.join()
        self.process.stdout.close()
        self._errors.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.facts.update(json.loads(line))
