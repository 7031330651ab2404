"""What Spark made of a pipeline's function: its sources, the columns it needs of them, and its state.

Spark's optimizer finds out which columns of a source a query needs and does not tell a Python source of it.
So the plan is made once with all columns, and what is left of them is read off the optimized plan:

    Project [upper(value#5)]
    +- StreamingRelationV2 penstock [topic=orders, …] [topic#0, partition#1, …, value#5, …]

What an operator remembers from batch to batch lies in the checkpoint. A query with other operators, other
keys or other columns in them cannot go on from there; one with another filter can. `QueryPlan.state` is what
must stay. This needs a classic session: Spark Connect does not show plans.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import UsageError
from penstock.spark.source.schema import TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: The type that Spark gives the windows of `window` and `session_window`.
_WINDOW = "struct<start:timestamp,end:timestamp>"


class QueryPlan(NamedTuple):
    """What is to be known of a streaming query before it is started."""

    #: What it reads, in the order in which the checkpoint counts them: topics, or names of other sources.
    sources: tuple[str, ...]
    #: Which columns of each topic it needs, in the order of the schema.
    columns: Mapping[str, tuple[str, ...]]
    #: Each operator that keeps something, with its keys and what it keeps.
    state: tuple[str, ...]


def refuse_connect(spark: SparkSession) -> None:
    """Raise `UsageError` for a session that shows no plans."""
    if not hasattr(spark, "_jsparkSession"):
        raise UsageError(
            "pipelines need a classic Spark session, and this one is Spark Connect",
            hint="penstock.spark.session() makes one; with Connect use readStream and writeStream themselves",
        )


def plan(frame: DataFrame, store: str) -> QueryPlan:
    """What Spark makes of a streaming DataFrame over topics of a store."""
    state = frame.sparkSession._jsparkSession.sessionState()
    optimized = state.optimizer().execute(frame._jdf.queryExecution().analyzed())
    nodes = list(_nodes(optimized))
    leaves = _distinct([node for node in nodes if node.children().isEmpty() and node.isStreaming()])
    used = _ids(optimized.output()).union(*(_ids(node.references()) for node in nodes))
    columns: dict[str, set[str]] = {}
    for leaf in leaves:
        needed = {each.name() for each in _each(leaf.output()) if each.exprId().id() in used}
        columns.setdefault(_source(leaf, store), set()).update(needed)
    return QueryPlan(
        sources=tuple(_source(leaf, store) for leaf in leaves),
        columns={name: tuple(c for c in TYPES if c in found) for name, found in columns.items()},
        state=tuple(_remembered(node) for node in nodes if node.isStateful()),
    )


def _nodes(node: Any) -> Iterator[Any]:
    """A plan from its root on, left before right."""
    yield node
    for child in _each(node.children()):
        yield from _nodes(child)


def _each(sequence: Any) -> Iterator[Any]:
    """The items of something of Scala's."""
    items = sequence.iterator()
    while items.hasNext():
        yield items.next()


def _ids(attributes: Any) -> set[int]:
    return {each.exprId().id() for each in _each(attributes)}


def _distinct(leaves: list[Any]) -> list[Any]:
    """Each relation once: a DataFrame that is used twice in a union is one source."""
    found: dict[frozenset[int], Any] = {}
    for leaf in leaves:
        found.setdefault(frozenset(_ids(leaf.output())), leaf)
    return list(found.values())


def _source(leaf: Any, store: str) -> str:
    """A topic of this store by its name; whatever else is streamed by what Spark calls it."""
    if leaf.nodeName() != "StreamingRelationV2":
        return str(leaf.nodeName())
    options = leaf.extraOptions()
    if leaf.sourceName() == "penstock" and options.get("path") == store and options.get("topic"):
        return str(options.get("topic"))
    return f"{leaf.sourceName()} {options.get('path') or ''}".strip()


def _remembered(node: Any) -> str:
    """An operator with what it keeps, in words that stay the same from run to run."""
    tell = _TELLERS.get(node.nodeName())
    return f"{node.nodeName()} {tell(node)}" if tell is not None else str(node.nodeName())


def _fields(attributes: Any) -> str:
    """Names and types; ids of attributes change with every run."""
    return ", ".join(f"{each.sql()} {each.dataType().simpleString()}" for each in _each(attributes))


def _aggregate(node: Any) -> str:
    windows = "".join(
        f" [{_defined(node, key)}]" for key in _each(node.groupingExpressions()) if _is_window(key)
    )
    return f"by {_fields(node.groupingExpressions())}{windows} of {_fields(node.aggregateExpressions())}"


def _is_window(key: Any) -> bool:
    is_column = key.nodeName() == "AttributeReference"
    return is_column and str(key.dataType().simpleString()) == _WINDOW


def _defined(node: Any, key: Any) -> str:
    """A short mark of how a window is computed: its name and type say nothing of its length."""
    number = key.exprId().id()
    makers = (each for each in _nodes(node) if number in _ids(each.output()) and not _passes_on(each, number))
    made = "".join(_expressions(next(makers), number))
    return f"{zlib.crc32(made.encode()):08x}"


def _passes_on(node: Any, number: int) -> bool:
    """Whether an attribute comes from further below."""
    return any(number in _ids(child.output()) for child in _each(node.children()))


def _expressions(node: Any, number: int) -> list[str]:
    """How a node makes an attribute; a projection may change around it."""
    if node.nodeName() == "Project":
        return [each.sql() for each in _each(node.projectList()) if each.exprId().id() == number]
    return [each.sql() for each in _each(node.expressions())]


def _deduplicate(node: Any) -> str:
    return f"by {_fields(node.keys())}"


def _join(node: Any) -> str:
    condition = node.condition()
    on = condition.get().sql() if condition.isDefined() else "nothing"
    left, right = (_fields(side.output()) for side in (node.left(), node.right()))
    return f"{node.joinType().sql()} on {on} of ({left}) and ({right})"


def _transform_with_state(node: Any) -> str:
    keys = _fields(node.leftAttributes())
    return f"by {keys}, {node.outputMode().toString()}, {node.timeMode().toString()}"


def _map_with_state(node: Any) -> str:
    return f"by {_fields(node.groupingAttributes())} of {node.stateType().simpleString()}"


_TELLERS: Mapping[str, Callable[[Any], str]] = {
    "Aggregate": _aggregate,
    "Deduplicate": _deduplicate,
    "DeduplicateWithinWatermark": _deduplicate,
    "FlatMapGroupsInPandasWithState": _map_with_state,
    "Join": _join,
    "TransformWithStateInPySpark": _transform_with_state,
}
