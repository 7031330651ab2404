"""What a filter leaves to be read of a topic: partitions, offsets, times of writing and keys.

DuckDB hands its filters over as Arrow expressions, which cannot be taken apart. So nothing is taken apart
here. Numbers, times and texts are picked out of the expression as it is printed, which need not be right;
they divide a column's values into points and the stretches between them. Then Arrow is asked of each point
and stretch whether any row there could pass: it leaves out the fragments of a dataset whose guarantee
contradicts the filter. What Arrow rules out is not read; all else is, and filtered exactly behind it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs

from penstock.parse import datetime_ns

#: More values than this are not worth the questions.
_VALUES_MOST = 256
_NUMBER = re.compile(r"-?\b\d{1,18}\b")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?Z")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_MICROSECOND = 1000


class Narrowed(NamedTuple):
    """What may pass a filter in one partition."""

    #: Offsets from the first up to the second; None is no bound.
    offsets: tuple[int | None, int | None]
    #: Nanoseconds, likewise.
    written: tuple[int | None, int | None]
    #: Of timestamps, which are in any order; nanoseconds too.
    stamped: tuple[int | None, int | None]
    #: Only messages of these keys; None is any.
    keys: tuple[str, ...] | None


def narrowed(filter: Any, schema: pa.Schema, partitions: Sequence[int]) -> dict[int, Narrowed]:
    """What may pass in each partition; a partition of which nothing can pass is left out."""
    if filter is None:
        return dict.fromkeys(partitions, Narrowed((None, None), (None, None), (None, None), None))
    question = _FilterQuestion(filter, schema)
    guarantees = [ds.field("partition") == pa.scalar(each, pa.int32()) for each in partitions]
    left = [number for number, may in zip(partitions, question.may_pass(guarantees), strict=True) if may]
    return {number: _in_partition(question, number) for number in left}


def columns_of(filter: Any, schema: pa.Schema) -> list[str]:
    """The columns that a filter looks at; perhaps some more."""
    words = set(re.findall(r"\w+", str(filter)))
    return [name for name in schema.names if name in words]


def _in_partition(question: _FilterQuestion, number: int) -> Narrowed:
    here = ds.field("partition") == pa.scalar(number, pa.int32())
    return Narrowed(
        question.span("offset", question.numbers(), 1, here),
        # A microsecond of the column stands for the thousand nanoseconds from it on.
        question.span("written_at", question.moments(), _MICROSECOND, here),
        question.span("timestamp", question.moments(), _MICROSECOND, here),
        question.keys(here),
    )


class _FilterQuestion:
    """A filter, and what Arrow answers when it is told what is known of rows."""

    def __init__(self, filter: Any, schema: pa.Schema) -> None:
        self._filter = filter
        self._schema = schema
        self._text = str(filter)

    def may_pass(self, guarantees: Sequence[Any]) -> list[bool]:
        """Whether a row of which this is known could pass, for each."""
        form, files = _no_files()
        made = [
            form.make_fragment(str(number), files, partition_expression=each)
            for number, each in enumerate(guarantees)
        ]
        asked = ds.FileSystemDataset(made, self._schema, form, files)
        left = {each.path for each in asked.get_fragments(self._filter)}
        return [str(number) in left for number in range(len(made))]

    def span(self, name: str, values: dict[int, Any], step: int, here: Any) -> tuple[int | None, int | None]:
        """The first number at which a row may pass, and the one behind the last; None is no bound.

        `values` are those of the column that stand in the filter, ascending, each by the number it begins at;
        it ends `step` behind that.
        """
        if not values:
            return None, None
        column, scalars = ds.field(name), list(values.values())
        questions = [here & (column < scalars[0])]
        for value, following in zip(scalars, [*scalars[1:], None], strict=True):
            behind = column > value
            questions.append(here & (column == value))
            questions.append(here & (behind if following is None else behind & (column < following)))
        answers = self.may_pass(questions)
        numbers = list(values)
        if not any(answers):
            return numbers[0], numbers[0]
        first, last = answers.index(True), len(answers) - 1 - answers[::-1].index(True)
        # Place 2n + 1 is value n, place 2n + 2 the stretch behind it, place 0 all before the first.
        least = None if first == 0 else numbers[(first - 1) // 2] + (0 if first % 2 else step)
        above = None if last == len(answers) - 1 else numbers[last // 2] + (step if last % 2 else 0)
        return least, above

    def keys(self, here: Any) -> tuple[str, ...] | None:
        """The only keys whose messages may pass; None when others may, or none are named."""
        values = self.texts()
        if not values or "key" not in self._text:
            return None
        column = ds.field("key")
        points = [here & (column == each) for each in values]
        between = [here & (column > a) & (column < b) for a, b in pairwise(values)]
        others = [
            here & (column < values[0]),
            here & (column > values[-1]),
            here & column.is_null(),
            *between,
        ]
        answers = self.may_pass([*points, *others])
        if any(answers[len(points) :]):
            return None
        return tuple(each for each, may in zip(values, answers, strict=False) if may)

    # Values that stand in the filter, or look so.

    def numbers(self) -> dict[int, Any]:
        """Whole numbers, ascending."""
        found = sorted({int(each) for each in _NUMBER.findall(self._text)})
        return {each: pa.scalar(each, pa.int64()) for each in found} if len(found) <= _VALUES_MOST else {}

    def moments(self) -> dict[int, Any]:
        """Times in nanoseconds, ascending."""
        found = sorted(set(_MOMENT.findall(self._text)))
        if len(found) > _VALUES_MOST:
            return {}
        kind = self._schema.field("written_at").type
        times = [datetime.fromisoformat(each).astimezone(UTC) for each in found]
        return {datetime_ns(each): pa.scalar(each, kind) for each in times}

    def texts(self) -> list[str]:
        """Texts in quotes, ascending."""
        found = {
            re.sub(r"\\(.)", lambda escaped: _ESCAPES.get(escaped[1], escaped[1]), each, flags=re.DOTALL)
            for each in _TEXT.findall(self._text)
        }
        # Arrow compares texts by their bytes.
        return sorted(found, key=str.encode) if len(found) <= _VALUES_MOST else []


@cache
def _no_files() -> tuple[Any, Any]:
    """What fragments of a dataset need that nobody reads."""
    return ds.IpcFileFormat(), fs.LocalFileSystem()
