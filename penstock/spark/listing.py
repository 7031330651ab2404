"""The view `payloads`: one row for each body that a topic has somewhere, with a message or without.

A place is divided into shares (a topic's bodies lie in a folder for each day), and each is listed by a task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.options import utc
from penstock.payload_options import Place
from penstock.payloads.names import path_of
from penstock.spark.bodies import BodyPlaces, places_of
from penstock.spark.options import ReadOptions
from penstock.spark.survey import chosen_topics, opened

#: How several bodies in one object are named.
_PACK = re.compile(r"\d{4}-\d\d-\d\d/[0-9a-f]{32}/pack")


class Listing(NamedTuple):
    """What one task lists."""

    topic: str
    places: BodyPlaces
    place: Place
    share: str


def listings(options: ReadOptions) -> list[Listing]:
    """All that is to be listed of the chosen topics, as it is now."""
    with opened(options) as store:
        found = {name: places_of(topic) for name, topic in chosen_topics(store, options).items()}
    return [
        Listing(name, places, place, share)
        for name, places in found.items()
        if places is not None
        for place in places.places
        for share in places.open(place).shares()
    ]


def listed(work: Listing) -> Iterator[tuple[Any, ...]]:
    """The rows of one share."""
    address = work.places.address(work.place)
    for found in work.places.open(work.place).list_share(work.share):
        yield (
            work.topic, work.place.address, found.name, f"{address}/{path_of(found.name)}", found.size,
            utc(found.modified_ns), is_pack(found.name),
        )  # fmt: skip


def is_pack(name: str) -> bool:
    """Whether a body of that name is several, of messages that were written together."""
    return _PACK.fullmatch(name) is not None
