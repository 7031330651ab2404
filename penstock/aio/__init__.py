"""The async twin: the same names and parameters, with `await`, `async with` and `async for`.

    async with penstock.aio.open("data") as store:
        topic = await store.create_topic("orders", exists_ok=True)
        await topic.write(b"paid", key="customer-7")
        async with topic.reader(consumer="billing") as reader:
            async for message in reader:
                await reader.commit(message)

What may block runs in a few threads of the store's own; waiting takes no thread at all, however many
readers wait. A store and all that comes from it belong to the event loop it was opened in.
"""

from __future__ import annotations

from penstock.aio.events import Events
from penstock.aio.reader import DeadLetters, Reader
from penstock.aio.scan import Scan, SqlResult
from penstock.aio.sessions import Session, Sessions
from penstock.aio.store import Store, open
from penstock.aio.streams import Stream
from penstock.aio.topic import Topic
from penstock.aio.transaction import Transaction
from penstock.aio.twin import Opening
from penstock.aio.writer import Writer

__all__ = [
    "DeadLetters",
    "Events",
    "Opening",
    "Reader",
    "Scan",
    "Session",
    "Sessions",
    "SqlResult",
    "Store",
    "Stream",
    "Topic",
    "Transaction",
    "Writer",
    "open",
]
