"""Files of lines, each a JSON document (JSON Lines)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.errors import InvalidOption
from penstock.exchange.records import FieldChoice, Record, from_fields
from penstock.exchange.text_lines import Lines

_is_json = msgspec.json.Decoder(msgspec.Raw).decode
_decode = msgspec.json.Decoder().decode


class JsonLines:
    """Reads records from lines of JSON; lines without anything on them are passed over."""

    def __init__(self, name: str, choice: FieldChoice) -> None:
        self._name = name
        self._choice = choice

    def begin(self, lines: Lines) -> bool:
        """There is nothing before the first record."""
        return True

    def records(self, lines: Lines) -> Iterator[Record]:
        """All records from where `lines` stands; raises `InvalidOption` naming a line that is no JSON."""
        as_is = not self._choice.names and not self._choice.messages
        for at, line in lines:
            document = line.strip()
            if not document:
                continue
            where = f"{self._name} line {lines.number}"
            try:
                fields = _is_json(document) if as_is else _decode(document)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InvalidOption(f"{where} is not JSON: {error}") from None
            yield Record(at, from_fields(fields, self._choice, where, whole=document))
