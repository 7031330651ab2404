"""A stream's positions as Spark's checkpoint keeps them: next offsets, and whose they are.

    {"store": "…", "topics": {"orders": {"id": "5f…", "next": {"0": 100}, "last": {"0": "3c…"}}}}

`last` is the fingerprint of the last message before each position (`penstock.log.fingerprint`): by it a store
that was put back to an earlier state is told from the one that was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from penstock.errors import DataError, TopicReplaced
from penstock.log.fingerprint import UNKNOWN, Verdict, compare, fingerprint
from penstock.log.log import Log
from penstock.spark.source.admission import Part, Positions

_HINT = "give the query a new checkpointLocation to begin anew"


def encode(
    positions: Positions,
    store_id: str,
    topic_ids: Mapping[str, int],
    known: Mapping[Part, int] = MappingProxyType({}),
) -> dict[str, Any]:
    """Positions as Spark keeps them, with fingerprints; equal ones give equal text, which Spark compares."""
    topics = {
        topic: {
            "id": f"{topic_ids[topic]:x}",
            "next": {str(number): at for (name, number), at in sorted(positions.items()) if name == topic},
        }
        | _last(topic, known)
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


def kept_fingerprints(kept: Any) -> dict[Part, int]:
    """The fingerprints that were kept with positions; older checkpoints have none."""
    return {
        (topic, int(number)): int(known, 16)
        for topic, each in kept["topics"].items()
        for number, known in each.get("last", {}).items()
    }


def _last(topic: str, known: Mapping[Part, int]) -> dict[str, dict[str, str]]:
    found = {
        str(number): f"{each:x}"
        for (name, number), each in sorted(known.items())
        if name == topic and each != UNKNOWN
    }
    return {"last": found} if found else {}


#: Positions of a partition that are remembered: those of a batch under way and of the one before it.
_REMEMBERED = 4


class Fingerprints:
    """The fingerprints of positions that a running query has seen: each is compared and made once."""

    def __init__(self) -> None:
        self._known: dict[Part, dict[int, int]] = {}

    def of(self, positions: Positions, logs: Mapping[Part, Log]) -> dict[Part, int]:
        """The fingerprints to keep with these positions."""
        return {part: self._of(part, at, logs.get(part)) for part, at in positions.items()}

    def unlike(
        self, positions: Positions, kept: Mapping[Part, int], logs: Mapping[Part, Log]
    ) -> dict[Part, tuple[Log, Verdict]]:
        """The partitions in which a position is not of the log's history; those that are, are remembered."""
        found: dict[Part, tuple[Log, Verdict]] = {}
        for part, at in positions.items():
            log = logs.get(part)
            if log is None or at in self._known.get(part, {}):
                continue
            verdict = compare(log.segments, at, kept.get(part, UNKNOWN))
            if verdict != "same":
                found[part] = log, verdict
            elif kept.get(part, UNKNOWN) != UNKNOWN:
                self._remember(part, at, kept[part])
        return found

    def accept(self, part: Part, at: int, log: Log) -> None:
        """Go on from a position that is not of the log's history as if it were."""
        self._remember(part, at, fingerprint(log.segments, at))

    def _of(self, part: Part, at: int, log: Log | None) -> int:
        known = self._known.get(part, {}).get(at)
        if known is None:
            known = UNKNOWN if log is None else fingerprint(log.segments, at)
            self._remember(part, at, known)
        return known

    def _remember(self, part: Part, at: int, known: int) -> None:
        each = self._known.setdefault(part, {})
        each[at] = known
        while len(each) > _REMEMBERED:
            del each[next(iter(each))]
