"""`penstock dead`: list, show, replay, drop (wish 16)."""

import pytest

import penstock
from tests.e2e.command import Command


@pytest.fixture
def command(tmp_path):
    """With three dead letters of two consumers."""
    command = Command(tmp_path)
    with penstock.open(command.store) as store:
        topic = store.create_topic("orders")
        topic.write_many(["a", "b"], keys=["k", None])
        for consumer, reasons in (("billing", ("bad card", "no money")), ("mail", ("no address",))):
            with topic.reader(consumer=consumer) as reader:
                for reason in reasons:
                    reader.reject(reader.receive(timeout=5), reason)
    return command


def numbers(command, *options):
    return [each["number"] for each in command.quick_json("dead", "list", "orders", *options)["letters"]]


def test_list_shows_the_same_as_table_and_as_json(command):
    ended = command.quick("dead", "list", "orders")
    assert ended.lines[0].split() == [
        "number",
        "age",
        "consumer",
        "place",
        "attempts",
        "reason",
        "last",
        "error",
    ]
    assert "bad card" in ended.lines[1]
    assert numbers(command) == [0, 1, 2]
    assert numbers(command, "--consumer", "mail") == [2]
    assert numbers(command, "--reason", "money") == [1]
    assert numbers(command, "--limit", "1") == [0]


def test_show_tells_what_went_wrong(command):
    record = command.quick_json("dead", "show", "orders", "0")
    assert (record["reason"], record["attempts"], record["consumer"]) == ("bad card", 1, "billing")
    assert (record["message"]["key"], record["message"]["value"], record["message"]["offset"]) == (
        "k",
        "a",
        0,
    )
    assert "reason: bad card" in command.quick("dead", "show", "orders", "0").out
    missing = command.quick("dead", "show", "orders", "9")
    assert (missing.code, "no dead letter 9" in missing.err) == (1, True)


def test_replay_asks_and_brings_them_back(command):
    refused = command.quick("dead", "replay", "orders", "--all")
    assert refused.code == 1
    assert "Replay 3 dead letters of orders?" in refused.err
    assert command.quick_json("dead", "replay", "orders", "--consumer", "billing", "--yes") == {
        "topic": "orders", "replayed": 2,
    }  # fmt: skip
    assert numbers(command) == [2]
    with penstock.open(command.store) as store, store.topic("orders").reader(consumer="billing") as reader:
        assert [reader.receive(timeout=5).text for _ in range(2)] == ["a", "b"]


def test_drop_forgets(command):
    assert command.quick_json("dead", "drop", "orders", "0", "2", "--yes") == {
        "topic": "orders",
        "dropped": 2,
    }
    assert numbers(command) == [1]
    assert (
        command.quick("dead", "drop", "orders", "--all", "--yes").out == "1 dead letter of orders dropped\n"
    )
    assert (
        command.quick("dead", "drop", "orders", "--all", "--yes").out == "0 dead letters of orders dropped\n"
    )


@pytest.mark.parametrize("verb", ["replay", "drop"])
def test_which_ones_must_be_said_in_one_way(command, verb):
    for choice in ([], ["0", "--all"], ["0", "--consumer", "mail"]):
        ended = command.quick("dead", verb, "orders", *choice, "--yes")
        assert (ended.code, "which dead letters" in ended.err) == (2, True)
    assert command.quick("dead", "list", "nothing").code == 2
    assert command.quick("dead", "replay", "orders", "--all", "--rate", "fast", "--yes").code == 2


def test_the_real_command_lists_them(command):
    assert "no address" in command.ok("dead", "list", "orders").out
