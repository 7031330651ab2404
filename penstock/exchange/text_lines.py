"""Lines of a file, with the byte at which each begins, and files of lines that each hold JSON (JSON Lines).

A line that is still being written can be left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from penstock.errors import InvalidOption, MessageTooLarge, UsageError
from penstock.exchange.message_json import GivenMessage
from penstock.exchange.records import FieldChoice, FileRecord, Refuse, from_fields, refuse_all
from penstock.parse import MIB

#: A line that is longer was not meant to be one.
_LINE_BYTES_MOST = 256 * MIB
_BLOCK_BYTES = MIB

_is_json = msgspec.json.Decoder(msgspec.Raw).decode
_decode = msgspec.json.Decoder().decode


class Lines:
    """Iterates over (byte, line without its end), and counts lines; `at` is where the next one begins."""

    def __init__(self, file: BinaryIO, name: str, *, at: int = 0, whole_only: bool = False) -> None:
        self._file = file
        self._name = name
        #: A line without an end may be one that is still being written.
        self.whole_only = whole_only
        self.at = 0
        #: The number of the line that was read last, from 1.
        self.number = 0
        #: Whether the last line there is was read.
        self.is_over = False
        if at:
            self.skip_to(at)

    def skip_to(self, at: int) -> None:
        """Go on to a byte at which a line begins; lines before it are only counted."""
        while self.at < at and (block := self._file.read(min(_BLOCK_BYTES, at - self.at))):
            self.number += block.count(b"\n")
            self.at += len(block)

    def go_back(self, at: int, number: int) -> None:
        """Go back to a byte at which a line begins, behind the line of that number."""
        self._file.seek(at)
        self.at, self.number, self.is_over = at, number, False

    def next_line(self) -> tuple[int, bytes] | None:
        """The next line; None at the end, and before one without an end where only whole ones are wanted."""
        line = self._file.readline(_LINE_BYTES_MOST)
        if len(line) == _LINE_BYTES_MOST and not line.endswith(b"\n"):
            raise MessageTooLarge(f"{self._name} line {self.number + 1} is over {_LINE_BYTES_MOST} bytes")
        if not line or (self.whole_only and not line.endswith(b"\n")):
            if line:
                self._file.seek(self.at)
            self.is_over = True
            return None
        begin, self.at = self.at, self.at + len(line)
        self.number += 1
        return begin, line.removesuffix(b"\n")

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        while (found := self.next_line()) is not None:
            yield found


class JsonLines:
    """Reads records from lines of JSON; lines without anything on them are skipped."""

    def __init__(self, name: str, choice: FieldChoice) -> None:
        self._name = name
        self._choice = choice

    def begin(self, lines: Lines) -> bool:
        """Read nothing: there is nothing before the first record."""
        return True

    def records(self, lines: Lines, refuse: Refuse = refuse_all) -> Iterator[FileRecord]:
        """Yield all records from where `lines` stands; refuse, by its number, a line that is not one."""
        for at, line in lines:
            document = line.strip()
            if not document:
                continue
            where = f"{self._name} line {lines.number}"
            try:
                message = self._message(document, where)
            except UsageError as error:
                refuse(error)
            else:
                yield FileRecord(at, message, where)

    def _message(self, document: bytes, where: str) -> GivenMessage:
        as_is = not self._choice.names and not self._choice.messages
        try:
            fields = _is_json(document) if as_is else _decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidOption(f"{where} is not JSON: {error}") from None
        return from_fields(fields, self._choice, where, whole=document)
