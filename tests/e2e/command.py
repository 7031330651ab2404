"""The real command, as a subprocess."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kit import fork_server, processes
from tests.kit.commands import main
from tests.kit.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
WORDS = ["-W", "error", "-m", "penstock"]
COMMAND = [sys.executable, *WORDS]


class Command:
    """`penstock …` in a folder of its own; the store is ./penstock-data unless a test says otherwise."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "penstock-data"
        self.environment = {
            name: value for name, value in os.environ.items() if name not in ("PENSTOCK_STORE", "FORCE_COLOR")
        } | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
        self._plain = dict(self.environment)

    def run(self, *arguments: str, input: str | bytes = b"", **environment: str) -> "Ended":
        data = input.encode() if isinstance(input, str) else input
        env = self.environment | environment
        if env != self._plain or len(data) > fork_server.INPUT_BYTES_MAX:
            done = subprocess.run(
                [*COMMAND, *arguments], input=data, capture_output=True, cwd=self.folder, env=env,
                timeout=PATIENCE_S, check=False,
            )  # fmt: skip
        else:
            done = fork_server.run([*WORDS, *arguments], input=data, cwd=self.folder, env=env)
        return Ended(done.returncode, done.stdout, done.stderr.decode())

    def quick_json(self, *arguments: str) -> Any:
        ended = self.quick(*arguments, "--json")
        assert ended.code == 0, ended
        return json.loads(ended.out)

    def quick(self, *arguments: str) -> "Ended":
        """Run it inside this process, which is faster: for all that a process is not needed for."""
        out, err, here = io.TextIOWrapper(io.BytesIO()), io.StringIO(), os.getcwd()
        terminal, sys.stdin = sys.stdin, io.StringIO()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(arguments)
        finally:
            os.chdir(here)
            sys.stdin = terminal
        out.flush()
        return Ended(code, out.buffer.getvalue(), err.getvalue())  # type: ignore[attr-defined]

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        return processes.start(
            [*COMMAND, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder,
            env=self.environment,
        )  # fmt: skip

    def ok(self, *arguments: str, input: str | bytes = b"") -> "Ended":
        """Run it, and see that it went well."""
        ended = self.run(*arguments, input=input)
        assert ended.code == 0, ended
        return ended

    def json(self, *arguments: str, input: str | bytes = b"") -> Any:
        """What it prints with --json."""
        return json.loads(self.ok(*arguments, "--json", input=input).out)


_TRACEBACK = re.compile(r"^Traceback .*\n(?P<first>.*)", re.MULTILINE)


def has_traceback(err: str) -> bool:
    """Whether the command showed one; a worker of Spark's may print its own when its socket is closed."""
    return any("pyspark/daemon.py" not in found["first"] for found in _TRACEBACK.finditer(err))


class Ended:
    """How a command ended."""

    def __init__(self, code: int, out: bytes, err: str) -> None:
        self.code = code
        self.raw = out
        self.out = out.decode(errors="replace")
        self.err = err
        assert not has_traceback(err), err

    def __repr__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]
