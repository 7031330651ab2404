"""The store and its topics: what users open and hold.

Each file imports only files before it.

Order: backup_target catalogue commit consumers expiry ownership stats verify < backup repair topic
< pipelines transaction < pipeline_position store < health open replay.
"""

from __future__ import annotations

from penstock.store.open import open_store
from penstock.store.pipelines import Pipeline, PipelineRun
from penstock.store.store import Store
from penstock.store.topic import Topic
from penstock.store.transaction import Transaction

__all__ = ["Pipeline", "PipelineRun", "Store", "Topic", "Transaction", "open_store"]
