"""Statements of SQL over a store, one after another: those about topics are ours, all others DuckDB's.

Every topic that a statement names is a view. DuckDB works in memory: tables that a session makes live as long
as the session does, and nothing but CREATE, ALTER and DROP TOPIC changes the store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from penstock import arrow
from penstock.errors import InvalidSql, MissingExtra, PenstockError, Unavailable
from penstock.sql import statements, tokens
from penstock.sql.definition import Defined, define
from penstock.sql.tokens import Statement
from penstock.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    import duckdb
    import pandas
    import polars
    import pyarrow

    from penstock.sql.topic_table import ScanPlan, TopicTable

T = TypeVar("T")

_SETTINGS = (
    "SET python_enable_replacements = false",  # or names would be looked up among our own variables
    "SET autoinstall_known_extensions = false",
    "SET TimeZone = 'UTC'",
)
_NAMES = re.compile(r'"((?:[^"]|"")+)"|([^\W\d]\w*)')
_LINE = re.compile(r"^LINE (\d+):", re.MULTILINE)


class SqlResult:
    """What a statement gives: rows, when it is a query; of another the `defined` topic, or nothing."""

    def __init__(self, session: SqlSession, relation: Any, defined: Defined | None) -> None:
        self._session = session
        self._relation = relation
        #: What a statement about a topic did.
        self.defined = defined

    @property
    def relation(self) -> duckdb.DuckDBPyRelation:
        """The rows as a relation of DuckDB's, for more of its methods; raises when there are none."""
        if self._relation is None:
            raise InvalidSql("the statement gives no rows", hint="SELECT gives some")
        relation: duckdb.DuckDBPyRelation = self._relation
        return relation

    @property
    def has_rows(self) -> bool:
        """Whether there are rows to ask for, if only none of them."""
        return self._relation is not None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.relation.columns)

    @property
    def scans(self) -> list[ScanPlan]:
        """What was read of topics so far, a plan for each scan."""
        return list(self._session.scans)

    def to_arrow(self) -> pyarrow.Table:
        """All rows as one Arrow table."""
        return self._session.told(lambda: self.relation.to_arrow_table())

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a pandas DataFrame (needs pandas)."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """All rows as a Polars DataFrame (needs polars)."""
        frame: polars.DataFrame = arrow.require("polars").DataFrame(self.to_arrow())
        return frame

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """The rows as Arrow record batches, as they are found, in constant memory where the query allows."""
        reader = self._session.told(lambda: self.relation.to_arrow_reader(10_000))
        while (batch := self._session.told(lambda: next(reader, None))) is not None:
            yield batch

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        if self.defined is not None:
            return f"<topic {self.defined.topic}: {self.defined.outcome}>"
        return "<no rows>" if self._relation is None else f"<rows of {', '.join(self.columns)}>"


class SqlSession:
    """Statements over one store, one after another, by one thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connection: Any = None
        self._tables: dict[str, TopicTable] = {}
        #: Those and what earlier statements had, as long as somebody may read of it.
        self._made: WeakSet[TopicTable] = WeakSet()
        #: What was read of topics.
        self.scans: list[ScanPlan] = []

    def run(self, text: str) -> SqlResult:
        """Run all statements of a text; what the last one gives. Raises `InvalidSql`."""
        results = list(self.each(text))
        if not results:
            raise InvalidSql("there is no statement", hint="such as: select count(*) from orders")
        return results[-1]

    def each(self, text: str) -> Iterator[SqlResult]:
        """Run the statements of a text one by one; what each gives."""
        if not isinstance(text, str):
            raise InvalidSql(f"SQL is a text, not {type(text).__name__}")
        for statement in tokens.divided(text):
            if statements.is_about_topics(statement):
                yield SqlResult(self, None, define(self._store, statements.parse(statement, text)))
            else:
                yield SqlResult(self, self._query(statement, text), None)

    def close(self) -> None:
        """Release what DuckDB holds, and end what is read ahead for it."""
        connection, self._connection = self._connection, None
        for table in self._made:
            table.close()
        if connection is not None:
            connection.close()

    def told(self, call: Callable[[], T]) -> T:
        """What a call of DuckDB's gives; its errors are said in our own words."""
        duckdb = _required()
        try:
            return call()
        except duckdb.Error as error:
            raise self._translated(error, duckdb) from None

    # Inside.

    def _query(self, statement: Statement, whole: str) -> Any:
        connection = self._connected()
        self._make_views(statement)
        blanks = "\n" * whole.count("\n", 0, statement.at)  # so that DuckDB counts lines as the user does
        return self.told(lambda: connection.sql(blanks + statement.text))

    def _connected(self) -> Any:
        if self._connection is None:
            connection = _required().connect()
            for each in _SETTINGS:
                connection.execute(each)
            self._connection = connection
        return self._connection

    def _make_views(self, statement: Statement) -> None:
        """Make a view of each topic that a statement may name, as the topic is now."""
        from penstock.sql.topic_table import TopicTable, table_schema
        from penstock.sql.value_columns import quoted_name, value_columns

        for name in self._named(statement):
            topic = self._store.topic(name).open_topic
            table = self._tables[name] = TopicTable(topic, self.scans.append)
            self._made.add(table)
            base = f"messages of {name}"
            self._connection.register(base, table)
            made = ["*"] + [
                f"{each.expression} AS {quoted_name(each.name)}"
                for each in value_columns(topic, table_schema().names)
            ]
            view = f"CREATE OR REPLACE TEMP VIEW {quoted_name(name)} AS SELECT {', '.join(made)}"
            self.told(partial(self._connection.execute, f"{view} FROM {quoted_name(base)}"))

    def _named(self, statement: Statement) -> list[str]:
        """Topics whose names occur in a statement; DuckDB tells no capitals from small letters."""
        words = {(quoted or bare).replace('""', '"') for quoted, bare in _NAMES.findall(statement.text)}
        small = {word.lower() for word in words}
        found: dict[str, str] = {}
        for name in sorted(self._topics(), key=lambda name: name in words):
            if name.lower() in small:
                other = found.get(name.lower())
                if other in words and name in words:
                    raise InvalidSql(
                        f"{other!r} and {name!r} are the same name in SQL", hint="ask for one of them"
                    )
                found[name.lower()] = name  # the one that is spelled so, if there is one
        return list(found.values())

    def _topics(self) -> list[str]:
        return [topic.name for topic in self._store.topics()]

    def _translated(self, error: Exception, duckdb: Any) -> PenstockError:
        failures = [table.failure for table in self._tables.values() if table.failure is not None]
        for table in self._tables.values():
            table.failure = None
        if failures and isinstance(failures[0], PenstockError):
            return failures[0]
        message = str(error).strip()
        if isinstance(error, duckdb.OperationalError):
            return Unavailable(message)
        line = _LINE.search(message)
        hint = ""
        if isinstance(error, duckdb.CatalogException) and "Table with name" in message:
            message = message.partition("\nDid you mean")[0]  # names of DuckDB's own tables
            known = self._topics()
            hint = f"topics here: {', '.join(known)}" if known else "this store has no topics yet"
            if any(not name.isidentifier() for name in known):
                hint += '; names with dots or dashes are quoted: "orders.dead"'
        return InvalidSql(message, line=None if line is None else int(line[1]), hint=hint)


def _required() -> Any:
    """DuckDB, or an error that says how to install it."""
    try:
        import duckdb
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingExtra("duckdb", "sql") from None
    return duckdb
