"""Run tasks on Spark's Python workers, and keep those workers quick and quiet."""

from __future__ import annotations

import gc
import pickle
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.errors import PenstockError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


#: What Spark starts for our tasks, and to have us plan.
_DAEMON = "pyspark.daemon"
#: So many calls of a worker may still load modules.
_LOADING_CALLS = 3
_calls = count()

_Work = TypeVar("_Work")
_Result = TypeVar("_Result")


class Failed(NamedTuple):
    """An error of a piece, in a form that can travel: its class need not be made from its arguments."""

    kind: type[PenstockError]
    arguments: tuple[Any, ...]
    state: dict[str, Any]

    def error(self) -> PenstockError:
        """Return the error as it was raised on the executor."""
        made = self.kind.__new__(self.kind, *self.arguments)
        made.args = self.arguments
        made.__dict__.update(self.state)
        return made


def spread(
    spark: SparkSession, function: Callable[[_Work], _Result], work: Sequence[_Work]
) -> list[_Result | Failed]:
    """Do each piece of work on some executor; what it returned, or how it failed, in the order of `work`.

    `function` is one of a module, so that executors find it. Raises what Spark raises when a task dies.
    """
    if not work:
        return []

    def done(piece: tuple[int, _Work]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        number, given = piece
        result = pyarrow.array([pickle.dumps(_attempted(function, given))], pyarrow.binary())
        yield pyarrow.RecordBatch.from_pydict({"id": pyarrow.array([number]), "done": result})

    rows = rows_of(spark, done, list(enumerate(work)), "id long, done binary").collect()
    return [pickle.loads(row.done) for row in sorted(rows, key=lambda row: row.id)]


def rows_of(
    spark: SparkSession, function: Callable[[_Work], Iterable[pa.RecordBatch]], work: Sequence[_Work],
    kinds: str,
) -> DataFrame:  # fmt: skip
    """The rows that `function` makes of each piece of work, a task for each; `kinds` are their columns."""
    pieces = list(work)

    def tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_in()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from function(pieces[number])

    return spark.range(0, len(pieces), 1, max(len(pieces), 1)).mapInArrow(tasks, kinds)


def _attempted(function: Callable[[_Work], _Result], piece: _Work) -> _Result | Failed:
    try:
        return function(piece)
    except PenstockError as error:
        return Failed(type(error), error.args, dict(error.__dict__))


def without_broken_pipes(print_error: Callable[..., None]) -> Callable[..., None]:
    """`traceback.print_exc`, but silent about a pipe that the other side closed."""

    def quiet(*arguments: Any, **named: Any) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            print_error(*arguments, **named)

    return quiet


def told_at_the_end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A `sys.excepthook` that is silent about a pipe that the other side closed."""
    if not isinstance(error, BrokenPipeError):
        sys.__excepthook__(kind, error, trace)


@cache
def hush_broken_pipes() -> None:
    """In a process of PySpark: print no traceback for a pipe that Spark closed by itself.

    Spark does so with every worker that it needs no longer, and with the process that plans a stream when the
    stream is stopped; PySpark prints that as an error of its own, on the terminal of a run that went well.
    All other errors are printed as before.
    """
    if _program() == _DAEMON:
        traceback.print_exc = without_broken_pipes(traceback.print_exc)
    elif _program() == "pyspark.sql.streaming.python_streaming_source_runner":
        sys.excepthook = told_at_the_end


def settle_in() -> None:
    """Make what this worker has loaded cheap to keep; to be called first by whatever Spark has us do in one.

    PySpark collects garbage after everything it asks of a worker, and so goes each time through all that was
    ever imported: pandas, Arrow, itself. That took 40 ms, a fifth of a scan and more than a plan. What is
    loaded by now stays until the worker ends, so it need not be looked at again. The first calls load more,
    so a few of them do this; if all did, what dies in between could never be freed.
    """
    if _program() == _DAEMON:
        hush_broken_pipes()
        if next(_calls) < _LOADING_CALLS:
            gc.freeze()


def _program() -> str:
    """The module that this process runs."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "" if spec is None else str(spec.name)
