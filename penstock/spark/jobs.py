"""Work spread over executors: one job, a task for each piece of it, the results in order.

For work that is told by little (a range of offsets, names of files) and whose result is little: no rows
pass through Spark. Pieces travel with the function, results as one small row each. A task that is tried
again, or runs twice, does its piece again; so a piece must not matter until the driver has its result.

Our own errors come back as what they are, and not as the text of a Python traceback within Java's.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.errors import PenstockError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_Work = TypeVar("_Work")
_Result = TypeVar("_Result")


class Failed(NamedTuple):
    """An error of a piece, in a form that can travel: its class need not be made from its arguments."""

    kind: type[PenstockError]
    arguments: tuple[Any, ...]
    state: dict[str, Any]

    def error(self) -> PenstockError:
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
    pieces = list(work)

    def tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        from penstock.spark.worker import settle_in

        settle_in()
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            done = [pickle.dumps(_attempted(function, pieces[number])) for number in numbers]
            yield pyarrow.RecordBatch.from_pydict(
                {"id": batch.column(0), "done": pyarrow.array(done, pyarrow.binary())}
            )

    rows = spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(tasks, "id long, done binary").collect()
    return [pickle.loads(row.done) for row in sorted(rows, key=lambda row: row.id)]


def _attempted(function: Callable[[_Work], _Result], piece: _Work) -> _Result | Failed:
    try:
        return function(piece)
    except PenstockError as error:
        return Failed(type(error), error.args, dict(error.__dict__))
