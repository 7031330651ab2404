"""The store and its topics: what users open and hold."""

from penstock.store.store import Store, open_store
from penstock.store.topic import Topic

__all__ = ["Store", "Topic", "open_store"]
