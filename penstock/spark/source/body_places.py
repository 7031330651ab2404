"""Where the bodies of a topic lie, as a task on an executor is told: no credentials, no open store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from penstock import references
from penstock.options import FILES, BodyLocation
from penstock.payloads.open import open_topic_bodies
from penstock.payloads.store import BodyStore

if TYPE_CHECKING:
    from penstock.topic.open_topic import OpenTopic


class BodyPlaces(NamedTuple):
    """Where the bodies of one topic lie: all that a task is told of them."""

    #: The folder of the store for bodies in files.
    root: str
    store_id: str
    topic_id: int
    places: tuple[BodyLocation, ...]

    def by_number(self) -> dict[int, BodyLocation]:
        """The places by the number that references have for them."""
        return {references.place_id(self.store_id, self.topic_id, each.address): each for each in self.places}

    def open(self, place: BodyLocation) -> BodyStore:
        """What the topic has at a place."""
        return open_topic_bodies(place, self.root, self.store_id, self.topic_id)

    def address(self, place: BodyLocation) -> str:
        """What all paths of the topic's bodies at a place begin with."""
        if place.address == FILES:
            return os.path.join(self.root, str(self.topic_id))
        return f"{place.address.rstrip('/')}/{self.store_id}/{self.topic_id}"


def places_of(topic: OpenTopic) -> BodyPlaces | None:
    """The places of a topic, present and earlier; None when it never had one."""
    chosen = topic.options.payloads
    if chosen is None:
        return None
    return BodyPlaces(topic.bodies.root, topic.topics.store_id, topic.record.id, chosen.places)
