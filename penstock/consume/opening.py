"""Which reader serves a consumer: one that shares partitions, or one that shares messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.consume.options import ReaderOptions
from penstock.consume.queue import QueueReader
from penstock.consume.reader import Reader
from penstock.topic.partitions import Partitions


def open_reader(topics: Sequence[Partitions], options: ReaderOptions) -> Reader[Any]:
    """A reader of topics, of the kind that its options name."""
    return QueueReader(topics, options) if options.is_queue else Reader(topics, options)
