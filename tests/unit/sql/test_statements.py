"""Texts divided into statements, and statements about topics parsed."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.sql.statements import is_about_topics, parse
from penstock.sql.tokens import Statement, divided, is_finished


def parsed(text):
    (statement,) = divided(text)
    return parse(statement, text)


def actions(text):
    return [
        (each.verb, each.consumer, {setting.word: setting.value for setting in each.settings})
        for each in parsed(text).actions
    ]


def test_semicolons_divide_but_not_in_quotes_and_comments():
    text = "a 'x;''y'; b \"n;\"; -- c; d\n /* ; */ e `f;`; $$ ; $$;;"
    assert [each.text.strip() for each in divided(text)] == [
        "a 'x;''y'", 'b "n;"', "-- c; d\n /* ; */ e `f;`", "$$ ; $$",
    ]  # fmt: skip
    assert [text[each.at : each.at + len(each.text)] for each in divided(text)] == [
        each.text for each in divided(text)
    ]


@pytest.mark.parametrize(
    ("text", "finished"),
    [("select 1;", True), ("select 1; -- done", True), ("select ';'", False), ("", False), ("a; b", False)],
)
def test_a_text_is_finished_by_a_semicolon_at_its_end(text, finished):
    assert is_finished(text) is finished


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("create topic a", True),
        ("  -- first\n ALTER /* x */ Topic a", True),
        ("drop topic if exists a", True),
        ("create table topic(a int)", False),
        ("select 'create topic'", False),
        ("drop", False),
    ],
)
def test_statements_about_topics_are_told_from_others(text, ours):
    assert is_about_topics(Statement(text, 0)) is ours


def test_create_with_everything():
    found = parsed(
        "CREATE TOPIC IF NOT EXISTS `my/topic` (\n"
        "  CONSUMER plain,\n"
        "  CONSUMER \"it's\" WITH (important = TRUE, read_from = Timestamp('2026-01-02T03:04:05Z'))\n"
        ") WITH (min_active_partitions = 2, retention_period = Interval('P1W2DT3H4M5.5S'),\n"
        "  name = 'it''s \\'')"
    )
    assert (found.verb, found.topic, found.if_needed) == ("create", "my/topic", True)
    first, second, third = found.actions
    assert (first.verb, {each.word: each.value for each in first.settings}) == (
        "set",
        {
            "min_active_partitions": 2,
            "retention_period": timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5.5),
            "name": "it's '",
        },
    )
    assert (second.verb, second.consumer, second.settings) == ("add", "plain", ())
    assert third.consumer == "it's"
    assert [each.value for each in third.settings] == [True, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)]


def test_alter_takes_actions_with_and_without_commas():
    text = (
        "alter topic t set (a = 1, b = 'x'), reset (c, d) add consumer e with (f = false) add consumer e2,"
        " alter consumer g set (h = 2u) alter consumer i reset (j), drop consumer k"
    )
    assert actions(text) == [
        ("set", None, {"a": 1, "b": "x"}),
        ("reset", None, {"c": None, "d": None}),
        ("add", "e", {"f": False}),
        ("add", "e2", {}),
        ("alter", "g", {"h": 2}),
        ("forget", "i", {"j": None}),
        ("drop", "k", {}),
    ]


@pytest.mark.parametrize("name", ["orders", "orders.dead", "my-topic", "Ünder_1"])
def test_names_may_be_bare(name):
    assert parsed(f"drop topic {name}").topic == name
    assert parsed(f"drop topic if exists {name}").if_needed
