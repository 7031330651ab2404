"""The driver's part of a write: it looks topics up before, and commits what tasks staged after.

Only here does the sink open a store, and closes it again at once.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Sequence

from penstock.errors import AlreadyCommitted, NotAStore, PenstockError, TopicReplaced
from penstock.log.shelf import Staged
from penstock.spark.once import Commit, commits, is_repeated, superseded
from penstock.spark.target import Target
from penstock.spark.task import Share, discard
from penstock.store import Store, Topic, Transaction, open_store
from penstock.topic.plan import TopicPlan, plan_of

logger = logging.getLogger("penstock.spark")


def target(store: str, topic: str | None) -> Target:
    """Look the topics up; raises `NotAStore` or `UnknownTopic` before any task runs."""
    with _opened(store) as opened:
        topics = opened.topics() if topic is None else [opened.topic(topic)]
        plans = {each.name: plan_of(each._partitions) for each in topics}
    return Target(store, plans, topic, secrets.randbelow(2**16))


def commit(store: str, shares: Iterable[Share], once: Commit | None) -> bool:
    """Make all of it true, or nothing; False when it was committed before and is skipped now."""
    in_order = sorted(shares, key=lambda share: share.task)
    with _opened(store) as opened:
        tx = opened.transaction(name=once and once.name)
        try:
            for name, plan in _plans(in_order).items():
                _adopt(tx, opened.topic(name), plan, in_order)
            before = _guarded(tx, opened, once) if once is not None else []
        except BaseException:
            tx.rollback()
            _discard(opened, in_order)
            raise
        try:
            tx.commit()
        except AlreadyCommitted:
            logger.info("%s was committed before and is skipped", tx.name)
            return False
        if before:
            opened._transactions.forget(each.name for each in before)
    return True


def abort(store: str, shares: Iterable[Share]) -> None:
    """Remove what was staged, unless it was committed after all; what stays behind goes after a day."""
    try:
        with _opened(store) as opened:
            _discard(opened, shares)
    except (PenstockError, OSError) as error:
        logger.warning("staged files stay for a day: %s", error)


def gathered(shares: Sequence[Share], topic: str) -> dict[int, list[Staged]]:
    """What all tasks staged for a topic, by partition: task after task, each in its own order."""
    found: dict[int, list[Staged]] = {}
    for share in shares:
        for number, pieces in share.topics.get(topic, {}).items():
            found.setdefault(number, []).extend(pieces)
    return found


def _opened(store: str) -> Store:
    try:
        return open_store(store, create=False)
    except NotAStore as error:
        error.hint = "save(…) and start(…) take the folder of a store; topics are made beforehand"
        raise


def _plans(shares: Sequence[Share]) -> dict[str, TopicPlan]:
    return {name: plan for share in shares for name, plan in share.plans.items()}


def _adopt(tx: Transaction, topic: Topic, plan: TopicPlan, shares: Sequence[Share]) -> None:
    if topic.id != plan.id:
        raise TopicReplaced(f"topic {topic.name!r} was dropped and created anew while it was written to")
    tx.adopt(topic, gathered(shares, topic.name), tree=plan.tree, partitions=plan.partitions)


def _guarded(tx: Transaction, store: Store, once: Commit) -> list[Commit]:
    """Have the rules asked at the commit; return which earlier commits need not be remembered after it."""
    transactions = store._transactions

    def ask() -> None:
        if is_repeated(once, commits(transactions.names(once.series), once)):
            raise AlreadyCommitted(f"{once.name} was committed before")

    tx.guard = ask
    return superseded(once, commits(transactions.names(once.series), once))


def _discard(store: Store, shares: Iterable[Share]) -> None:
    """While no transaction can commit, so that a file is either needed or never will be."""
    transactions = store._transactions

    def remove() -> None:
        for share in shares:
            discard(share.topics, share.plans, keep=transactions.files)

    transactions.collect(remove)
