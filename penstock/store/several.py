"""Topics as a reader of several is given them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.errors import InvalidOption, WrongType
from penstock.state.topics import Topics
from penstock.store.topic import Topic


def several_topics(
    topics: str | Topic | Sequence[str | Topic], find: Callable[[str], Topic], records: Topics
) -> list[Topic]:
    """Topics by name or as they are; each once, and of the store that has these records."""
    if isinstance(topics, (str, Topic)):
        topics = [topics]
    if not isinstance(topics, Sequence):
        raise WrongType(f"topics is a name, a Topic or a list of them, not {type(topics).__name__}")
    found = [each if isinstance(each, Topic) else find(each) for each in topics]
    if not found:
        raise InvalidOption("topics is empty", hint="name one at least")
    names = [topic.name for topic in found]
    if len(set(names)) < len(names):
        raise InvalidOption(f"a topic is named twice: {', '.join(names)}")
    for topic in found:
        if topic._partitions.topics is not records:
            raise InvalidOption(f"topic {topic.name!r} is of another store", hint="name it instead")
    return found
