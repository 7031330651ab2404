"""How many listen to a key, over all workers: each asks the others through a socket of its own.

A worker that does not answer in time is left out, and the answer says that it is not complete.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from penstock.keys import shown_key, spoken_key
from penstock.serve.hub import Feed

PATH = "/v1/events/presence"
_PATIENCE_S = 1.0


def counted(feed: Feed, keys: Sequence[bytes]) -> list[int]:
    """How many of this process hear each key."""
    return [len(feed.listeners(key)) for key in keys]


async def everywhere(feed: Feed, spoken: Sequence[str], own: str, folder: str | None) -> dict[str, Any]:
    """How many hear each key, over all workers whose sockets lie in `folder`."""
    keys = [spoken_key(text) for text in spoken]
    counts = counted(feed, keys)
    others = [os.path.join(folder, name) for name in os.listdir(folder) if name != own] if folder else []
    answers = await asyncio.gather(*(_ask(path, feed.topic, spoken) for path in others))
    for answer in answers:
        if answer is not None and len(answer) == len(counts):
            counts = [mine + theirs for mine, theirs in zip(counts, answer, strict=True)]
    return {
        "keys": [{"key": shown_key(key), "count": count} for key, count in zip(keys, counts, strict=True)],
        "complete": None not in answers,
    }


async def _ask(path: str, topic: str, spoken: Sequence[str]) -> list[int] | None:
    query = urlencode([("topic", topic), *(("key", text) for text in spoken)])
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(
                    f"GET {PATH}?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
                )
                answer = await reader.read()
            finally:
                writer.close()
        body = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])
        return [each["count"] for each in body["keys"]]
    except (OSError, TimeoutError, msgspec.DecodeError, KeyError, TypeError):
        return None
