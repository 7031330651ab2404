"""Ctrl-C at every line: run something again and again, each time interrupted one step later."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from types import CodeType, FrameType
from typing import Any

import penstock

_ROOT = os.path.dirname(os.path.abspath(penstock.__file__))


class Interrupter:
    """Raises `KeyboardInterrupt` at the `number`-th step that some files of the package take.

    A step is a line, or with `opcodes` each instruction: more than a real interrupt can hit.
    """

    def __init__(self, files: Collection[str], *, opcodes: bool = False) -> None:
        self._files = tuple(os.path.join(_ROOT, name) for name in files)
        self._opcodes = opcodes
        self._wanted: dict[CodeType, bool] = {}
        self._left = 0
        #: Where it was raised last.
        self.where = ""

    def run(self, number: int, call: Callable[[], object]) -> bool:
        """Call it; False when it was over before that step."""
        self._left = number
        sys.settrace(self._begin)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return self._left <= 0  # someone has met the interrupt and gone on

    def each(self, call: Callable[[], object], then: Callable[[], object]) -> int:
        """Interrupt `call` at each of its steps, and call `then` each time; return how many there are."""
        number = 1
        while self.run(number, call):
            then()
            number += 1
        return number

    def _begin(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        wanted = self._wanted.get(code)
        if wanted is None:
            wanted = self._wanted[code] = code.co_filename.startswith(self._files)
        if not wanted:
            return None
        frame.f_trace_opcodes = self._opcodes
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == ("opcode" if self._opcodes else "line"):
            self._left -= 1
            if self._left == 0:
                sys.settrace(None)
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
                print(self.where)  # shown when a test fails
                raise KeyboardInterrupt
        return self._step
