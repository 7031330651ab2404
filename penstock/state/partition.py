"""One partition as the store knows it: the facts that its log asks for and cannot know by itself."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.log.staging import PlacedPiece
from penstock.options import TopicOptions
from penstock.state.consumers import Consumers
from penstock.state.topics import Topics
from penstock.state.transactions import Transactions


class StoredPartition:
    """What `state.db` says of one partition (`penstock.log.staging.PartitionState`)."""

    def __init__(
        self, topics: Topics, consumers: Consumers, transactions: Transactions, topic_id: int, partition: int
    ) -> None:
        self._topics = topics
        self._consumers = consumers
        self._transactions = transactions
        self._place = (topic_id, partition)

    def options(self) -> TopicOptions:
        """Return the topic's options as they are now, whichever process changed them."""
        return self._topics.by_id(self._place[0]).options

    def require_topic(self) -> None:
        """Raise `TopicReplaced` unless the topic is still there."""
        self._topics.by_id(self._place[0])

    def highest_position(self) -> int:
        """The highest offset that a consumer has committed."""
        return self._consumers.highest(*self._place)

    def unfinished(self) -> list[PlacedPiece]:
        """Pieces of committed transactions that are not yet whole and durable here, by offset."""
        return self._transactions.unfinished_pieces(*self._place)

    def move(self, pieces: Iterable[PlacedPiece]) -> None:
        """Store other offsets for pieces, durably."""
        self._transactions.move(*self._place, pieces)

    def finish(self, tx: int) -> None:
        """The transaction is whole and durable in this partition."""
        self._transactions.finish(tx, [self._place])
