"""The offsets that Spark keeps for a stream: JSON that says of which store and which topics it speaks.

    {"store": "5f…", "topics": {"orders": {"id": "2f…", "next": {"0": 1200, "1": 17}}}}

Offsets of another store, or of a topic that was dropped and created again under its name, mean nothing:
going on from them would skip or repeat messages without a word. So they are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import DataError, TopicReplaced
from penstock.spark.admission import Part, Positions

_HINT = "give the query a new checkpointLocation to begin anew"


def encode(positions: Positions, store_id: str, topic_ids: Mapping[str, int]) -> dict[str, Any]:
    """Positions as Spark keeps them; equal positions give equal text, which is how Spark compares."""
    topics = {
        topic: {
            "id": f"{topic_ids[topic]:x}",
            "next": {str(number): at for (name, number), at in sorted(positions.items()) if name == topic},
        }
        for topic in sorted(topic_ids)
        if any(name == topic for name, _ in positions)
    }
    return {"store": store_id, "topics": topics}


def decode(kept: Any, store_id: str, topic_ids: Mapping[str, int]) -> dict[Part, int]:
    """Positions from what Spark kept; `topic_ids` are the topics that the query reads now.

    Raises `TopicReplaced` for offsets of another store or topic.
    """
    try:
        store, topics = kept["store"], kept["topics"]
        found = {
            (topic, int(number)): int(at)
            for topic, each in topics.items()
            for number, at in each["next"].items()
        }
        ids = {topic: int(each["id"], 16) for topic, each in topics.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(f"the checkpoint holds no offsets of Penstock: {kept!r:.200}", hint=_HINT) from None
    if store != store_id:
        raise TopicReplaced(f"the checkpoint is of store {store}, this one is {store_id}", hint=_HINT)
    for topic, topic_id in ids.items():
        if topic not in topic_ids:
            there = ", ".join(sorted(topic_ids)) or "none"
            raise TopicReplaced(
                f"the checkpoint is of topic {topic!r}, the query reads others: {there}", hint=_HINT
            )
        if topic_ids[topic] != topic_id:
            raise TopicReplaced(
                f"topic {topic!r} was dropped and created again since the checkpoint was made", hint=_HINT
            )
    return found
