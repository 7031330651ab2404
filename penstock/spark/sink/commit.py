"""The driver's part of a write: it looks topics up before, and commits what tasks staged after.

Only here does the sink open a store, and closes it again at once.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from penstock.errors import AlreadyCommitted, ConflictError, NotAStore, PenstockError, TopicReplaced
from penstock.log.staging import StagedPiece
from penstock.spark.sink.task import TaskResult, WriteTarget, discard
from penstock.store import Store, Topic, Transaction, open_store
from penstock.topic.write_plan import TopicPlan, plan_of

#: How the names begin that pipelines and `to_topic` give their writers, from a checkpoint's first batch on.
OWN_APPS = ("pipeline/", "checkpoint/")
#: In the place of a query, for writes that belong to none.
_NO_QUERY = "-"


class WriterCommit(NamedTuple):
    """One commit among those of a writer."""

    #: The query's id, the same for all runs from one checkpoint; None for a batch write.
    query: str | None
    #: The batch id of a stream, or the txnVersion.
    number: int
    rows: int
    app: str | None = None
    #: Numbers follow each other, as a stream's batches do; those of batch writes may leave some out.
    is_counted: bool = False
    #: The id of the one topic that a batch write goes to: its versions are counted for that topic alone.
    #: None: for all topics, as in a stream, where rows name their topics, and in names of earlier releases.
    topic: int | None = None
    #: What the batch was planned to read, in short (`checkpoint.batch_mark`); empty where nobody knows.
    mark: str = ""

    @property
    def series(self) -> str:
        """What the names of all commits of this writer begin with."""
        return f"spark/{self.query}/" if self.app is None else f"app/{quote(self.app, safe='')}/"

    @property
    def name(self) -> str:
        """The name of the transaction: one name, one commit."""
        own = "" if self.app is None else f"{self.query or _NO_QUERY}/"
        where = "" if self.topic is None else f"{self.topic:x}/"
        mark = f"-{self.mark}" if self.mark else ""
        return f"{self.series}{own}{where}{self.number}/{self.rows}{mark}"

    @property
    def may_begin_anywhere(self) -> bool:
        """Whether its first commit may have any number: a name of the user's may be new to a checkpoint."""
        return self.app is not None and not self.app.startswith(OWN_APPS)

    def shares_versions(self, other: WriterCommit) -> bool:
        """Whether a version of the one is a version of the other, and not that of another topic."""
        return None in (self.topic, other.topic) or self.topic == other.topic


def commits(names: Iterable[str], like: WriterCommit) -> list[WriterCommit]:
    """The commits of the same writer that have these names."""
    found = []
    for name in names:
        *own, number, count = name.removeprefix(like.series).split("/")
        rows, _, mark = count.partition("-")
        whose = (None if own[0] == _NO_QUERY else own[0]) if own else like.query
        topic = int(own[1], 16) if len(own) > 1 else None
        found.append(WriterCommit(whose, int(number), int(rows), like.app, topic=topic, mark=mark))
    return found


def is_repeated(commit: WriterCommit, before: Sequence[WriterCommit]) -> bool:
    """Whether it was committed before and is to be skipped; raises `ConflictError` when that is in doubt."""
    others = [each for each in before if each.query != commit.query]
    if others:
        raise ConflictError(
            f"txnAppId {commit.app!r} belongs to {_whom(others[0])}, and this is {_whom(commit)}: "
            "nothing was written",
            hint="go on from its own checkpoint; with a new txnAppId the rows may be written a second time",
        )
    before = [each for each in before if each.shares_versions(commit)]
    same = [each for each in before if each.number == commit.number]
    if not same:
        _refuse_step_back(commit, before)
        refuse_lost_batches(commit, before)
        return False
    if commit.query is not None:
        _refuse_step_back(commit, before)
    if same[0].rows != commit.rows:
        raise ConflictError(
            f"{_what(commit)} was committed with {same[0].rows} rows and comes again with {commit.rows}",
            hint="its checkpoint was put back, or it gives other rows each time: look before going on",
        )
    if commit.mark and same[0].mark not in ("", commit.mark):
        raise ConflictError(
            f"{_what(commit)} was committed from other offsets: its checkpoint was put back to an earlier "
            "state, nothing was written",
            hint=_begin_anew(commit),
        )
    return True


def superseded(commit: WriterCommit, before: Sequence[WriterCommit]) -> list[WriterCommit]:
    """Commits that need not be remembered once this one is made: only a query's last can come again."""
    if commit.query is None:
        return []
    return [each for each in before if each.number < commit.number and each.shares_versions(commit)]


def _refuse_step_back(commit: WriterCommit, before: Sequence[WriterCommit]) -> None:
    latest = max((each.number for each in before), default=-1)
    if commit.query is not None and commit.number < latest:
        raise ConflictError(
            f"{_what(commit)} comes after {latest} was committed: nothing was written",
            hint="another driver runs from the same checkpoint, or the checkpoint was put back",
        )


def refuse_lost_batches(commit: WriterCommit, before: Sequence[WriterCommit]) -> None:
    """Raise when batches that Spark counts as done are not in the store: it was put back."""
    if not commit.is_counted or (not before and commit.may_begin_anywhere):
        return
    latest = max((each.number for each in before), default=-1)
    if commit.number > latest + 1:
        raise ConflictError(
            f"{_what(commit)} comes, but {latest + 1} to {commit.number - 1} are not there: "
            "the store was put back to an earlier state, nothing was written",
            hint=_begin_anew(commit, is_new=not before),
        )


def _begin_anew(commit: WriterCommit, *, is_new: bool = False) -> str:
    kind, _, rest = (commit.app or "").partition("/")
    if f"{kind}/" in OWN_APPS:
        name, _, _ = rest.rpartition("/")
        how = f"penstock pipeline drop {name}" if kind == "pipeline" else "a new checkpoint"
        return f"{how} makes it begin anew; its rows are then written again"
    how = "begin anew with a new checkpointLocation and txnAppId; its rows are then written again"
    return f"{how}; if they went elsewhere, a txnAppId lets this one begin here" if is_new else how


def _what(commit: WriterCommit) -> str:
    if commit.query is None:
        return f"txnVersion {commit.number} of {commit.app!r}"
    return f"batch {commit.number} of query {commit.query}"


def _whom(commit: WriterCommit) -> str:
    return "batch writes" if commit.query is None else f"the checkpoint of query {commit.query}"


logger = logging.getLogger("penstock.spark")


def target(store: str, topic: str | None) -> WriteTarget:
    """Look the topics up; raises `NotAStore` or `UnknownTopic` before any task runs."""
    with _opened(store) as opened:
        topics = opened.topics() if topic is None else [opened.topic(topic)]
        plans = {each.name: plan_of(each.open_topic) for each in topics}
    return WriteTarget(store, plans, topic, secrets.randbelow(2**16))


def commit(store: str, shares: Iterable[TaskResult], once: WriterCommit | None) -> bool:
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
            opened.transactions.forget(each.name for each in before)
    return True


def abort(store: str, shares: Iterable[TaskResult]) -> None:
    """Remove what was staged, unless it was committed after all; what stays behind goes after a day."""
    try:
        with _opened(store) as opened:
            _discard(opened, shares)
    except (PenstockError, OSError) as error:
        logger.warning("staged files stay for a day: %s", error)


def gathered(shares: Sequence[TaskResult], topic: str) -> dict[int, list[StagedPiece]]:
    """What all tasks staged for a topic, by partition: task after task, each in its own order."""
    found: dict[int, list[StagedPiece]] = {}
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


def _plans(shares: Sequence[TaskResult]) -> dict[str, TopicPlan]:
    return {name: plan for share in shares for name, plan in share.plans.items()}


def _adopt(tx: Transaction, topic: Topic, plan: TopicPlan, shares: Sequence[TaskResult]) -> None:
    if topic.id != plan.id:
        raise TopicReplaced(f"topic {topic.name!r} was dropped and created anew while it was written to")
    tx.adopt(topic, gathered(shares, topic.name), tree=plan.tree, rows=plan.rows)


def _guarded(tx: Transaction, store: Store, once: WriterCommit) -> list[WriterCommit]:
    """Have the rules asked at the commit; return which earlier commits need not be remembered after it."""
    transactions = store.transactions

    def ask() -> None:
        if is_repeated(once, commits(transactions.names(once.series), once)):
            raise AlreadyCommitted(f"{once.name} was committed before")

    tx.guard = ask
    return superseded(once, commits(transactions.names(once.series), once))


def _discard(store: Store, shares: Iterable[TaskResult]) -> None:
    """While no transaction can commit, so that a file is either needed or never will be."""
    transactions = store.transactions

    def remove() -> None:
        for share in shares:
            discard(share.topics, share.plans, keep=transactions.files)

    transactions.collect(remove)
