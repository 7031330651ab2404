"""Checked messages into the log, as durable as the topic promises, and the receipts for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import DataError, PenstockError
from penstock.message import Receipt, Receipts
from penstock.references import Referenced, unpack
from penstock.topic.framing import Outgoing
from penstock.topic.partitions import Landed, Partitions
from penstock.topic.sender import Sender


def append_one(partitions: Partitions, message: Outgoing, sender: Sender) -> Receipt:
    """Append a single message; return once it is stored as safely as the topic's `sync` says."""
    landed = next(partitions.append(message, sender))
    sync = partitions.options.sync
    if sync == "disk":
        partitions.sync((landed,))
    return landed.stored().receipt(0, sync)


def append_with_body(
    partitions: Partitions, message: Outgoing, sender: Sender, body: Any, name: str | None
) -> Receipt:
    """Store a body outside the log, then its message; a body whose message was not stored goes again."""
    stored = partitions.bodies.outside(body, name)
    try:
        return append_one(partitions, message._replace(values=(stored,)), sender)
    except PenstockError as error:
        if isinstance(stored, Referenced) and not isinstance(error, DataError):
            partitions.bodies.discard([unpack(stored).name])
        raise


def append_many(partitions: Partitions, batch: Outgoing) -> Receipts:
    """The same for many; the receipts are in the order of the batch."""
    sync = partitions.options.sync
    if not batch.values:
        return Receipts((), sync=sync)
    landed = list(partitions.append(batch))
    if sync == "disk":
        partitions.sync(landed)
    return Receipts([each.stored() for each in landed], sync=sync, order=_order(batch, landed))


def _order(batch: Outgoing, landed: Sequence[Landed]) -> list[tuple[int, int]] | None:
    """For each message of the batch: which run it is in, and its place there."""
    if len(landed) == 1:
        return None
    order = [(0, 0)] * len(batch.values)
    for run, each in enumerate(landed):
        for place, index in enumerate(each.places):
            order[index] = (run, place)
    return order
