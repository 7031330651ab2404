"""Pipelines as the store remembers them: what they are, and how their latest run went."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from penstock.errors import UnknownPipeline
from penstock.state.database import Database


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """The latest run of a pipeline; times are nanoseconds since 1970."""

    pid: int = 0
    host: str = ""
    started: int = 0
    #: When it last reported something.
    updated: int = 0
    #: None while it runs, and for ever if it was killed.
    ended: int | None = None
    #: Batches and rows of this run.
    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    #: The number of the latest batch, counted over all runs where the engine does so.
    last_batch: int | None = None
    #: Why it ended, if it failed.
    error: str | None = None


class PipelineRecord(NamedTuple):
    """One pipeline, as it was when this was read."""

    name: str
    kind: str
    consumer: str | None
    identity: dict[str, Any]
    options: dict[str, Any]
    run: RunFacts
    #: Someone asked the run to end.
    stop: bool
    created: int


_COLUMNS = "name, kind, consumer, identity, options, run, stop, created"


class Pipelines:
    """The store's pipelines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[PipelineRecord]:
        """Return all pipelines, by name."""
        if not self._database.has_table("pipelines"):
            return []  # a store of an older format, opened only to be read
        return [
            _record(row) for row in self._database.rows(f"SELECT {_COLUMNS} FROM pipelines ORDER BY name")
        ]

    def get(self, name: str) -> PipelineRecord | None:
        """Return the pipeline of that name, or None."""
        return next((each for each in self.all() if each.name == name), None)

    def find(self, name: str) -> PipelineRecord:
        """Return the pipeline of that name; raise `UnknownPipeline` if there is none."""
        found = self.get(name)
        if found is None:
            raise UnknownPipeline(name, tuple(each.name for each in self.all()))
        return found

    def begin(
        self, name: str, kind: str, *, consumer: str | None, identity: Mapping[str, Any],
        options: Mapping[str, Any], run: RunFacts,
    ) -> None:  # fmt: skip
        """Note that a run begins; the first one makes the pipeline. The caller has the pipeline's lock."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO pipelines VALUES (?, ?, ?, ?, ?, ?, 0, ?) ON CONFLICT (name) DO UPDATE SET "
                "kind = excluded.kind, consumer = excluded.consumer, identity = excluded.identity, "
                "options = excluded.options, run = excluded.run, stop = 0",
                (
                    name, kind, consumer, json.dumps(identity), json.dumps(options),
                    json.dumps(asdict(run)), run.started,
                ),
            )  # fmt: skip

    def report(self, name: str, run: RunFacts) -> bool:
        """Remember how the run goes; True when someone asked it to end, or dropped the pipeline."""
        self._database.quick("UPDATE pipelines SET run = ? WHERE name = ?", (json.dumps(asdict(run)), name))
        return self.is_asked_to_stop(name)

    def is_asked_to_stop(self, name: str) -> bool:
        """Whether the pipeline should stop: it was asked to, or was deleted."""
        row = self._database.row("SELECT stop FROM pipelines WHERE name = ?", (name,))
        return row is None or bool(row[0])

    def ask_to_stop(self, name: str) -> None:
        """Leave a note for the process that runs the pipeline: it should stop."""
        self._database.quick("UPDATE pipelines SET stop = 1 WHERE name = ?", (name,))

    def drop(self, name: str) -> None:
        """Delete the pipeline's record."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM pipelines WHERE name = ?", (name,))


def _record(row: tuple[Any, ...]) -> PipelineRecord:
    name, kind, consumer, identity, options, run, stop, created = row
    return PipelineRecord(
        name, kind, consumer, json.loads(identity), json.loads(options), RunFacts(**json.loads(run)),
        bool(stop), created,
    )  # fmt: skip
