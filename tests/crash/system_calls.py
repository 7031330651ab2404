"""The system calls of a real run, by strace, as calls that `Disk` replays: SQLite's own are among them.

`record` runs a program below strace; `calls` reads what it wrote down. A call counts when it has returned.
What is written to files outside the store becomes marks: that is how a program says what it was promised.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence

from tests.crash.disk import ROOT, Call

_TRACED = (
    "openat,pwrite64,pwritev,pwritev2,write,fdatasync,fsync,ftruncate,fallocate,rename,unlink,unlinkat,"
    "mkdir,rmdir"
)
_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>)?(.*)", re.DOTALL)
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)(.*)", re.DOTALL)
_UNFINISHED = " <unfinished ...>"
_FILE = re.compile(r"\d+<([^>]*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
#: Longer than anything that is written at once.
_MOST_BYTES = 1 << 24


def why_not() -> str:
    """Why system calls cannot be looked at here; empty when they can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], capture_output=True, check=False)
    return tried.stderr.decode().strip() if tried.returncode else ""


def record(command: Sequence[str], log: str, *more: str, cwd: str | os.PathLike[str] = ".") -> int:
    """Run a program and all its threads below strace; its exit code."""
    traced = ["strace", "-f", "-y", "-xx", "-qq", "-s", str(_MOST_BYTES), "-e", f"trace={_TRACED}", *more]
    return subprocess.run([*traced, "-o", log, *command], cwd=cwd, check=False).returncode


def calls(log: str, root: str) -> Iterator[Call]:
    """What was done below `root`, in order, and a mark for each write to a file elsewhere."""
    return _Reader(os.path.realpath(root)).calls(log)


class _Reader:
    """Names files and folders by the numbers that they got when they were made."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._nodes = {root: ROOT}
        self._folders = {root}
        self._last = ROOT

    def calls(self, log: str) -> Iterator[Call]:
        begun: dict[str, str] = {}
        with open(log) as file:
            for line in file:
                match = _LINE.match(line.rstrip("\n"))
                assert match is not None, line
                thread, resumed, text = match.groups()
                if resumed:
                    text = begun.pop(thread) + text
                if text.endswith(_UNFINISHED):
                    begun[thread] = text.removesuffix(_UNFINISHED)
                    continue
                call = _CALL.match(text)
                if call is not None and int(call[3]) >= 0:
                    yield from self._understood(call[1], call[2], int(call[3]), call[4])

    def _understood(self, name: str, arguments: str, result: int, behind: str) -> Iterator[Call]:
        if name in _BY_PATH:
            paths = [_plain(each) for each in _TEXT.findall(arguments)]
            if all(map(self._is_inside, paths)):
                yield from _BY_PATH[name](self, *paths, *([arguments] if name == "openat" else []))
            return
        match = _FILE.match(arguments)
        assert match is not None, arguments
        path, rest = _plain(match[1]), arguments[match.end() :]
        if name == "write":
            assert not self._is_inside(path), f"{path}: where does it write?"
            yield "mark", path, _written(rest)[:result]
        elif path in self._nodes:
            yield from self._changed(name, path, rest, result)
        else:  # a file that is no longer there under any name, or of no concern
            assert not self._is_inside(path) or behind or not os.path.exists(path), path

    def _changed(self, name: str, path: str, rest: str, result: int) -> Iterator[Call]:
        node = self._nodes[path]
        numbers = [int(each) for each in re.findall(r", (\d+)", re.sub(r'"[^"]*"|\[.*\]', "", rest))]
        if name.startswith("pwrite"):
            at = numbers[-1] if name == "pwrite64" else numbers[1]
            yield "write", node, at, _written(rest)[:result]
        elif name in ("fsync", "fdatasync"):
            yield ("sync_folder" if path in self._folders else "sync"), node
        elif name == "ftruncate":
            yield "truncate", node, numbers[0]
        elif name == "fallocate":
            yield "allocate", node, numbers[1] + numbers[2]

    # Calls that name paths.

    def _open(self, *given: str) -> Iterator[Call]:
        path, arguments = given[-2:]
        if "O_CREAT" in arguments and path not in self._nodes:
            yield "create", *self._place(path), self._number(path)
        if "O_TRUNC" in arguments:
            yield "truncate", self._nodes[path], 0

    def _make_folder(self, path: str) -> Iterator[Call]:
        place = self._place(path)
        self._folders.add(path)
        yield "make_folder", *place, self._number(path)

    def _rename(self, path: str, new_path: str) -> Iterator[Call]:
        folder, name = self._place(path)
        new_folder, new_name = self._place(new_path)
        assert folder == new_folder, "no rename crosses folders"
        yield "rename", folder, name, new_name, self._nodes[path]
        self._nodes.pop(new_path, None)
        for inside in [each for each in self._nodes if each == path or each.startswith(path + "/")]:
            self._nodes[new_path + inside[len(path) :]] = self._nodes.pop(inside)
        for inside in [each for each in self._folders if each == path or each.startswith(path + "/")]:
            self._folders.remove(inside)
            self._folders.add(new_path + inside[len(path) :])

    def _remove(self, *given: str) -> Iterator[Call]:
        path = given[-1]
        yield "remove", *self._place(path)
        self._nodes.pop(path, None)
        self._folders.discard(path)

    # Inside.

    def _is_inside(self, path: str) -> bool:
        """Whether it is a file of the store that a crash may hit; SQLite makes its index of the log anew."""
        return path.startswith(self._root + "/") and not path.endswith("-shm")

    def _place(self, path: str) -> tuple[int, str]:
        folder, name = os.path.split(path)
        return self._nodes[folder], name

    def _number(self, path: str) -> int:
        self._last += 1
        self._nodes[path] = self._last
        return self._last


_BY_PATH: dict[str, Callable[..., Iterator[Call]]] = {
    "openat": _Reader._open, "mkdir": _Reader._make_folder, "rename": _Reader._rename,
    "unlink": _Reader._remove, "unlinkat": _Reader._remove, "rmdir": _Reader._remove,
}  # fmt: skip


def _plain(escaped: str) -> str:
    return _bytes(escaped).decode() if escaped.startswith("\\x") else escaped


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


def _written(arguments: str) -> bytes:
    return b"".join(_bytes(each) for each in _TEXT.findall(arguments))
