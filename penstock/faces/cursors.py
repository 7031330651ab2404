"""Where a subscriber stands, as text that only we read: `<epoch>.<id>`, hexadecimal and decimal.

The epoch names the topic, and changes when it is dropped and made anew; the id is the next one to get.
Several origins, once there are such, stand side by side with `_` between them. All of it may stand in a URL.
"""

from __future__ import annotations

import re

from penstock.errors import InvalidOption, WrongType

_ORIGIN = re.compile(r"([0-9a-f]{1,16})\.([0-9]{1,19})", re.ASCII)
#: More origins than anybody has; what is longer was not made here.
_ORIGINS_MOST = 64


def epoch_text(topic_id: int) -> str:
    """How a topic is called in cursors."""
    return f"{topic_id:x}"


def cursor_text(epoch: str, next_id: int) -> str:
    return f"{epoch}.{next_id}"


def next_id(cursor: object, epoch: str) -> int | None:
    """The id that comes next in an epoch; None when the cursor is of others. Raises for what is no cursor."""
    if not isinstance(cursor, str):
        raise WrongType(f"a cursor is a str, not {type(cursor).__name__}")
    parts = cursor.split("_", _ORIGINS_MOST)
    found = [_ORIGIN.fullmatch(part) for part in parts]
    known = [match for match in found if match is not None]
    if len(known) < len(parts) or any(not 1 <= int(match[2]) < 2**63 for match in known):
        raise InvalidOption(
            f"{cursor[:60]!r} is not a cursor", hint="give back `next` of an earlier answer, or none at all"
        )
    return next((int(match[2]) for match in known if match[1] == epoch), None)
