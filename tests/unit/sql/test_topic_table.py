"""A topic as DuckDB scans it, and what becomes of a scan that nobody ends."""

import pytest

import penstock
from tests.require import module

module("pyarrow")
module("duckdb")

# ruff: noqa: E402 - what follows cannot be imported without the extra.
from penstock.sql.session import SqlSession
from penstock.sql.topic_table import TopicTable


@pytest.fixture
def topic(store):
    topic = store.create_topic("orders", sync="os")
    for number in range(400):
        topic.write_many([b"%d" % number] * 10)
    return topic


def test_a_table_that_is_closed_is_read_no_further(topic):
    table = TopicTable(topic.open_topic, lambda plan: None)
    batches = table.scanner().to_reader()
    assert batches.read_next_batch().num_rows
    table.close()
    assert batches.read_all().num_rows < 4000
    assert table.scanner().to_table().num_rows == 0


def test_a_session_that_is_closed_ends_the_scans_of_its_statements(topic, store: penstock.Store):
    session = SqlSession(store)
    assert len(session.run("select value from orders").to_arrow()) == 4000
    (table,) = session._made
    session.close()
    assert table.scanner().to_table().num_rows == 0
