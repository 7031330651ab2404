"""What makes a write happen once: the names of commits, and what to do when one comes again.

    a stream            spark/<query id>/<batch id>/<rows>
    … with txnAppId     app/<txnAppId>/<query id>/<batch id>/<rows>
    a batch write with txnAppId and txnVersion
                        app/<txnAppId>/-/<txnVersion>/<rows>

Spark repeats the last batch of a query when it does not know whether it was committed: that one is
skipped. Everything else that looks like a repetition is not one, and to skip it would lose rows: a
checkpoint that was put back, a second driver, a new checkpoint that begins to count anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from penstock.errors import ConflictError

#: In the place of a query, for writes that belong to none.
_NO_QUERY = "-"


class Commit(NamedTuple):
    """One commit among those of a writer."""

    #: The query's id, the same for all runs from one checkpoint; None for a batch write.
    query: str | None
    #: The batch id of a stream, or the txnVersion.
    number: int
    rows: int
    app: str | None = None

    @property
    def series(self) -> str:
        """What the names of all commits of this writer begin with."""
        return f"spark/{self.query}/" if self.app is None else f"app/{quote(self.app, safe='')}/"

    @property
    def name(self) -> str:
        own = "" if self.app is None else f"{self.query or _NO_QUERY}/"
        return f"{self.series}{own}{self.number}/{self.rows}"


def commits(names: Iterable[str], like: Commit) -> list[Commit]:
    """The commits of the same writer that have these names."""
    found = []
    for name in names:
        *query, number, rows = name.removeprefix(like.series).split("/")
        whose = (None if query[0] == _NO_QUERY else query[0]) if query else like.query
        found.append(Commit(whose, int(number), int(rows), like.app))
    return found


def is_repeated(commit: Commit, before: Sequence[Commit]) -> bool:
    """Whether it was committed before and is to be skipped; raises `ConflictError` when that is in doubt."""
    others = [each for each in before if each.query != commit.query]
    if others:
        raise ConflictError(
            f"txnAppId {commit.app!r} belongs to {_whom(others[0])}, and this is {_whom(commit)}: "
            "nothing was written",
            hint="go on from its own checkpoint; with a new txnAppId the rows may be written a second time",
        )
    same = [each for each in before if each.number == commit.number]
    if not same:
        _refuse_step_back(commit, before)
        return False
    if commit.query is not None:
        _refuse_step_back(commit, before)
    if same[0].rows != commit.rows:
        raise ConflictError(
            f"{_what(commit)} was committed with {same[0].rows} rows and comes again with {commit.rows}",
            hint="its checkpoint was put back, or it gives other rows each time: look before going on",
        )
    return True


def superseded(commit: Commit, before: Sequence[Commit]) -> list[Commit]:
    """Commits that need not be remembered once this one is made: only a query's last can come again."""
    return [each for each in before if commit.query is not None and each.number < commit.number]


def _refuse_step_back(commit: Commit, before: Sequence[Commit]) -> None:
    latest = max((each.number for each in before), default=-1)
    if commit.query is not None and commit.number < latest:
        raise ConflictError(
            f"{_what(commit)} comes after {latest} was committed: nothing was written",
            hint="another driver runs from the same checkpoint, or the checkpoint was put back",
        )


def _what(commit: Commit) -> str:
    if commit.query is None:
        return f"txnVersion {commit.number} of {commit.app!r}"
    return f"batch {commit.number} of query {commit.query}"


def _whom(commit: Commit) -> str:
    return "batch writes" if commit.query is None else f"the checkpoint of query {commit.query}"
