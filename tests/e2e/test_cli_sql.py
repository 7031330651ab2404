"""`penstock sql`, as a process."""

import csv
import io
import json
import os
import pty
import subprocess

import pytest

import penstock
from tests.e2e.command import COMMAND, Command
from tests.kit.patience import wait_until
from tests.require import require

require("duckdb")


@pytest.fixture
def cli(tmp_path):
    cli = Command(tmp_path)
    with penstock.open(cli.store) as store:
        topic = store.create_topic("orders", partitions=2)
        topic.write_many(
            [json.dumps({"id": number, "who": "a,b" if number % 2 else None}) for number in range(10)],
            keys=[f"k{number % 3}" for number in range(10)],
        )
    return cli


def test_a_query_prints_a_table(cli):
    lines = cli.ok("sql", "select key, count(*) n from orders group by 1 order by 1").lines
    assert [line.split() for line in lines] == [["key", "n"], ["k0", "4"], ["k1", "3"], ["k2", "3"]]


def test_the_example_of_the_last_hour(cli):
    found = cli.json("sql", "select count(*) n from orders where timestamp > now() - interval 1 hour")
    assert found == {"n": 10}
    assert cli.json("sql", "select count(*) n from orders where timestamp > now()") == {"n": 0}


def test_csv_quotes_and_json_has_a_row_a_line(cli):
    text = "select id, who, partition < 2 there from orders order by id limit 3"
    printed = cli.ok("sql", text, "--format", "csv").out
    assert list(csv.reader(io.StringIO(printed))) == [
        ["id", "who", "there"], ["0", "", "true"], ["1", "a,b", "true"], ["2", "", "true"],
    ]  # fmt: skip
    assert cli.ok("sql", text, "--json").json_lines() == [
        {"id": 0, "who": None, "there": True},
        {"id": 1, "who": "a,b", "there": True},
        {"id": 2, "who": None, "there": True},
    ]


def test_no_rows_are_said_to_people_only(cli):
    assert cli.ok("sql", "select id from orders where false").lines == ["no rows"]
    assert cli.ok("sql", "select id from orders where false", "--json").out == ""
    assert cli.ok("sql", "select id from orders where false", "--format", "csv").lines == ["id"]


def test_statements_about_topics_are_carried_out(cli):
    text = "create topic a (consumer c); alter topic a set (min_active_partitions = 2); drop topic orders"
    assert cli.ok("sql", text).lines == ["topic a created", "topic a altered", "topic orders dropped"]
    assert cli.ok("sql", "drop topic if exists b", "--json").json_lines() == [
        {"topic": "b", "outcome": "unchanged"}
    ]
    with penstock.open(cli.store, read_only=True) as store:
        assert [topic.name for topic in store.topics()] == ["a"]


def test_create_topic_makes_a_store_and_a_query_does_not(tmp_path):
    cli = Command(tmp_path)
    refused = cli.run("sql", "select 1")
    assert refused.code == 2
    assert not cli.store.exists()
    assert "created store" in cli.ok("sql", "create topic t").err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("selec", 'syntax error at or near "selec"'),
        ("select * from nothing", "topics here: orders"),
        ("create topic a with (metering_mode = 'x')", "nothing is billed here"),
    ],
)
def test_what_is_not_sql_is_a_usage_error(cli, text, said):
    ended = cli.run("sql", text)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_formats_that_exclude_each_other_are_refused(cli):
    assert cli.run("sql", "select 1", "--json", "--format", "csv").code == 2


def test_a_missing_duckdb_says_what_to_install(cli, tmp_path):
    (tmp_path / "duckdb.py").write_text("raise ImportError")
    cli.environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{cli.environment['PYTHONPATH']}"
    ended = cli.run("sql", "select 1")
    assert ended.code == 1
    assert 'hint: pip install "penstock[sql]"' in ended.err


def test_statements_come_from_stdin_and_go_on_behind_a_mistake(cli):
    text = ".tables\nselect count(*) n\nfrom orders;\nselec;\n.nope\n.help\ncreate topic a;\nselect 1 as one"
    ended = cli.run("sql", "--json", input=text)
    assert ended.code == 2
    assert ended.lines[:2] == ["orders", '{"n":10}']
    assert ended.lines[-2:] == ['{"topic":"a","outcome":"created"}', '{"one":1}']
    assert "syntax error" in ended.err
    assert "no command '.nope'" in ended.err


def test_a_dash_reads_the_text_from_stdin(cli):
    assert cli.ok("sql", "-", "--json", input="select 1 as one; select 2 as two").json_lines() == [
        {"one": 1}, {"two": 2},
    ]  # fmt: skip


def test_a_reader_that_goes_away_ends_it_quietly(cli):
    started = cli.start("sql", "select * from range(5000000)", "--json")
    assert started.stdout.readline() == b'{"range":0}\n'
    started.stdout.close()
    assert started.wait(60) == 0
    assert started.stderr.read() == b""


def test_a_terminal_has_a_prompt_and_a_history(cli, tmp_path):
    """A person types into a terminal; what was typed is kept for the next time."""
    terminal, end = pty.openpty()
    history = tmp_path / "history"
    process = subprocess.Popen(
        [*COMMAND, "sql"], stdin=end, stdout=end, stderr=end, cwd=cli.folder, close_fds=True,
        env=cli.environment | {"PENSTOCK_HISTORY": str(history), "TERM": "dumb"},
    )  # fmt: skip
    os.close(end)
    seen = b""

    def shows(text, times=1):
        nonlocal seen
        if seen.count(text) < times:
            try:
                seen += os.read(terminal, 65536)
            except OSError:  # the other end was closed
                assert seen.count(text) >= times, seen
        return seen.count(text) >= times

    try:
        wait_until(lambda: shows(b"penstock> "))
        os.write(terminal, b"select count(*) as messages from orders;\n")
        wait_until(lambda: shows(b"messages\r\n      10"))
        wait_until(lambda: shows(b"penstock> ", 2))  # Ctrl-D means the end where a line is asked for
        os.write(terminal, b"\x04")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert "select count(*) as messages from orders;" in history.read_text()
