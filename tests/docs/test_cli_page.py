"""Every console block of docs/cli.md prints what the page says, but for times, sizes and the disk."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.kit import fork_server
from tests.kit.patience import PATIENCE_S

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)

# What differs from run to run, and what is put in its place.
VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d+"), "TIME"),
    (re.compile(r"^/\S+/penstock-data"), "STORE"),
    (re.compile(r"disk .* free \(\d+%\)"), "DISK"),
    (re.compile(r"in [\d.]+ s( \([\d.]+ .iB/s\))?"), "DURATION"),
    (re.compile(r"\b\d+ [sm]\b"), "AGE"),
    (re.compile(r"\b[\d.]+ (B|KiB)\b"), "SIZE"),  # how many frames lines become is a matter of luck
    (re.compile(r"\b\d+ frames\b"), "FRAMES"),
    (re.compile(r" +"), " "),
)


def examples() -> list[tuple[str, str]]:
    """(command, what it prints) in the order of the page."""
    found = []
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        for example in block.split("$ ")[1:]:
            command, _, printed = example.partition("\n")
            found.append((command, printed))
    return found


def masked(text: str) -> list[str]:
    lines = text.strip().splitlines()
    for pattern, word in VARYING:
        lines = [pattern.sub(word, line).rstrip() for line in lines]
    return lines


def test_the_page_shows_what_the_command_prints(tmp_path: Path):
    program = tmp_path / "bin" / "penstock"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -W error -m penstock "$@"\n')
    program.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_STORE"} | {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(PAGE.parents[1]),
    }
    for command, printed in examples():
        assert masked(_output(command, tmp_path, environment)) == masked(printed), command


def _output(command: str, folder: Path, environment: dict[str, str]) -> str:
    """What a line of the page prints; a shell is started for those that need one."""
    if command.startswith("penstock ") and "|" not in command:
        words = ["-W", "error", "-m", *shlex.split(command)]
        return fork_server.run(words, cwd=folder, env=environment, as_one=True).stdout.decode()
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, text=True, timeout=PATIENCE_S, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout


def test_every_verb_has_an_example():
    commands = " ".join(command for command, _ in examples())
    for verb in ("write", "read", "sql", "topic", "consumer", "dead", "status", "vacuum", "verify", "stream"):
        assert f"penstock {verb}" in commands
