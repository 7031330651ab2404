"""`@penstock.pipeline`: the user's function as a pipeline to try and to run; how its code reaches workers.

Python sends a function or class of a module by its name, and a worker imports the module. A worker does
not know the folder of the user's file; on a cluster it may not even have it. So these modules are sent
by value: the file of the pipeline, and what it imports from its own folder.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.errors import MissingExtra, WrongType
from penstock.parse import Duration, Size
from penstock.spark.user.definition import Definition, Output, chosen, define, parameters_of
from penstock.spark.user.query import located
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
        self.parameters = parameters_of(function, sources=definition.sources, tables=tuple(definition.tables))

    @property
    def name(self) -> str:
        """The pipeline's name."""
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
        from penstock.spark.user.run import run_pipeline

        values, tables = self._chosen(parameters or {})
        definition = replace(self.definition, name=name or self.name, tables=tables)
        ship(self._function)
        return run_pipeline(
            definition, self._function, values, store=store, once=once, spark=spark, master=master,
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
        from penstock.spark.user.trial import try_pipeline

        tables = {name: given.pop(name) for name in self.definition.tables if name in given}
        values, paths = self._chosen(given)
        ship(self._function)
        return try_pipeline(
            replace(self.definition, tables=paths), self._function, values, rows=rows, tables=tables,
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
        return chosen(self.parameters, rest), paths

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


#: Workers have these; a second copy of their classes would not equal the first.
_NEVER = ("__main__", "penstock", "pyspark_penstock", "pyspark")


def ship(function: Callable[..., Any]) -> None:
    """Have the module of a function, and its neighbours, sent to workers by value.

    Raises `MissingExtra` without PySpark.
    """
    try:
        from pyspark import cloudpickle
    except ImportError:
        raise MissingExtra("pyspark", "spark") from None
    for module in _modules(function.__module__):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _modules(name: str) -> list[ModuleType]:
    home = sys.modules.get(name)
    if home is None or name == "__main__":  # Python sends these by value anyway
        return []
    folder = os.path.dirname(os.path.abspath(home.__file__ or ""))
    if _is_installed(folder):
        return []
    neighbours = [module for module in list(sys.modules.values()) if _is_within(module, folder)]
    return [home, *(each for each in neighbours if each is not home)]


def _is_installed(folder: str) -> bool:
    return any(_starts(folder, place) for key, place in sysconfig.get_paths().items() if key.endswith("lib"))


def _is_within(module: ModuleType, folder: str) -> bool:
    path = getattr(module, "__file__", None)
    if not path or module.__name__.partition(".")[0] in _NEVER:
        return False
    place = os.path.abspath(path)
    return _starts(place, folder) and not _is_installed(place)


def _starts(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)
