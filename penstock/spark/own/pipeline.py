"""`@penstock.pipeline`: a function from DataFrames to a DataFrame as a named job over topics.

@penstock.pipeline(source="orders", sink="orders.enriched", tables={"customers": "customers.csv"})
def enrich(orders, customers, *, country: str = "NL"):
    return orders.join(customers, …).where(col("country") == country).select("key", "value")

penstock run enrich.py -s data --set country=BE
enrich.test({"orders": [{"customer": 7}]}, customers=[{"id": 7, "country": "NL"}])
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.errors import WrongType
from penstock.options import Duration, Size
from penstock.spark.own import signature
from penstock.spark.own.definition import Definition, Output, define
from penstock.spark.own.tables import located
from penstock.store import PipelineRun, Store
from penstock.store.pipelines import Watch, unwatched

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


class OwnPipeline:
    """A function as a pipeline. Called, it is the function; `run` runs it, `test` tries it on a few rows."""

    def __init__(self, function: Callable[..., Any], definition: Definition) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.definition = definition
        #: What `--set` may choose.
        self.parameters = signature.parameters(
            function, sources=definition.sources, tables=tuple(definition.tables)
        )

    @property
    def name(self) -> str:
        return self.definition.name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    def run(
        self, store: Store | str | os.PathLike[str], *, once: bool = False, name: str | None = None,
        parameters: Mapping[str, object] | None = None, spark: SparkSession | None = None,
        master: str | None = None, conf: Mapping[str, object] | None = None, watch: Watch = unwatched,
    ) -> PipelineRun:  # fmt: skip
        """Run until stopped, or with `once` until all that is there now is done; every row counts once.

        Started again under the same name it goes on where it stopped. `parameters` fill in the function's
        keyword arguments, and paths of its tables; text is understood as their types. Returns the run.

        Raises `PipelineRunning` when another process runs it, `PipelineChanged` when the function is not
        what its checkpoint was made by, `PipelineFailed` when the query fails.
        """
        from penstock.spark.own.running import run_pipeline
        from penstock.spark.own.shipping import ship

        chosen, tables = self._chosen(parameters or {})
        definition = replace(self.definition, name=name or self.name, tables=tables)
        ship(self._function)
        return run_pipeline(
            definition, self._function, chosen, store=store, once=once, spark=spark, master=master,
            conf=conf or {}, watch=watch,
        )  # fmt: skip

    def test(
        self, rows: Mapping[str, Any], /, *, spark: SparkSession | None = None, **given: Any
    ) -> list[Row]:
        """The rows that the function makes of `rows`, which are given by topic; no store is needed.

        A row is a value (bytes, text, None; a dict or list becomes JSON), or a dict of `value` and any of
        `key`, `headers` and `timestamp`. Tables go by their names, as lists of dicts, DataFrames or paths;
        so do parameters. It is a real stream over a store that is gone afterwards: state and watermarks
        behave as they do in a run.
        """
        from penstock.spark.own.shipping import ship
        from penstock.spark.own.trial import try_pipeline

        tables = {name: given.pop(name) for name in self.definition.tables if name in given}
        chosen, paths = self._chosen(given)
        ship(self._function)
        return try_pipeline(
            replace(self.definition, tables=paths), self._function, chosen, rows=rows, tables=tables,
            spark=spark,
        )  # fmt: skip

    def _chosen(self, given: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, str]]:
        """Parameters by their types, and where the tables are."""
        paths = {name: located(path, self._file) for name, path in self.definition.tables.items()}
        rest = dict(given)
        for name in paths:
            if name in rest:
                path = rest.pop(name)
                if not isinstance(path, str):
                    raise WrongType(f"table {name!r} is given by a path, not by {type(path).__name__}")
                paths[name] = path
        return signature.chosen(self.parameters, rest), paths

    @property
    def _file(self) -> str | None:
        return inspect.getsourcefile(self._function)

    def __repr__(self) -> str:
        return f"<pipeline {self.name}: {', '.join(self.definition.sources)} -> {self.definition.sink}>"


def pipeline(
    *, source: str | Sequence[str], sink: str | None = None, name: str | None = None,
    tables: Mapping[str, str] | None = None, trigger: Duration | None = None, output: Output = "append",
    key: str | None = None, starting: str | datetime = "earliest", consumer: str | None = None,
    important: bool | None = None, max_rows: int | None = None, max_bytes: Size | None = None,
) -> Callable[[Callable[..., Any]], OwnPipeline]:  # fmt: skip
    """Make a pipeline of a function that takes a streaming DataFrame for each source and returns one.

    Rows of the result become messages of `sink`, exactly once; without it each row names its topic in a
    column `topic`. Without a column `value` the row becomes JSON, with the column `key` as its key.
    `tables` are read beside the topics and given by name. A batch begins every `trigger` ("5s"), else at
    once. `output="update"` writes a row of an aggregate each time it changes. `starting` counts for the
    very first run. Progress shows under `consumer`, else under the pipeline's name; with `important`
    retention waits for it. `max_rows` and `max_bytes` limit what a batch takes from each source.
    """

    def decorate(function: Callable[..., Any]) -> OwnPipeline:
        if not inspect.isfunction(function):
            raise WrongType(
                f"@penstock.pipeline goes on a function, not on {type(function).__name__}",
                hint="def enrich(orders): …",
            )
        definition = define(
            name or function.__name__, source=source, sink=sink, tables=tables, trigger=trigger,
            consumer=consumer, important=important, starting=starting, output=output, key=key,
            max_rows=max_rows, max_bytes=max_bytes,
        )  # fmt: skip
        return OwnPipeline(function, definition)

    return decorate
