"""`penstock pipeline replay`, topic to topic."""

import signal

import pytest

import penstock
from tests.e2e.command import Command
from tests.kit.commands import Exit
from tests.kit.patience import PATIENCE_S


@pytest.fixture
def cli(tmp_path):
    command = Command(tmp_path)
    with penstock.open(command.store) as store:
        store.create_topic("orders", partitions=2).write_many(
            [f"{n}" for n in range(100)], keys=[f"k{n}" for n in range(100)]
        )
        store.create_topic("again", partitions=2)
    return command


def values(cli: Command, topic: str) -> list[str]:
    with penstock.open(cli.store) as store:
        return [m.text for m in store.topic(topic).scan().messages()]


def test_a_dry_run_says_what_would_be_copied_and_copies_nothing(cli):
    plan = cli.quick_json("pipeline", "replay", "orders", "again", "--from", "0:10,1:20", "--dry-run")
    assert [each["start"] for each in plan["partitions"]] == [10, 20]
    assert plan["messages"] == 70
    shown = cli.quick("pipeline", "replay", "orders", "again", "--dry-run").lines
    assert shown[0].startswith("orders to again: 100 messages, about ")
    assert shown[1].split() == ["partition", "from", "to", "messages", "about"]
    assert values(cli, "again") == []
    assert cli.quick_json("pipeline", "list")["pipelines"] == []


def test_a_replay_and_its_summary(cli):
    summary = cli.json("pipeline", "replay", "orders", "again", "--rate", "10000/s")
    assert (summary["pipeline"], summary["kind"], summary["rows"]) == ("replay-orders", "replay", 100)
    assert summary["result"]["messages"] == 100
    assert values(cli, "again") == values(cli, "orders")
    assert cli.quick("pipeline", "replay", "orders", "again").out.startswith("replay-orders: done, 0 rows")


def test_sigterm_ends_it_behind_its_step_and_it_goes_on_later(cli):
    running = cli.start("pipeline", "replay", "orders", "again", "--rate", "1/s", "--json")
    with penstock.open(cli.store) as store:
        with store.topic("again").reader() as reader:
            reader.receive(timeout=PATIENCE_S)
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate()
    assert running.returncode == 0, err
    assert b'"stopped":true' in out
    copied = values(cli, "again")
    assert 0 < len(copied) < 100
    cli.ok("pipeline", "replay", "orders", "again")
    assert sorted(values(cli, "again")) == sorted(values(cli, "orders"))


def test_wrong_calls_are_refused(cli):
    for words, said in (
        (("orders", "orders"), "into itself"),
        (("orders",), "two are needed"),
        (("orders", "nowhere"), "no topic 'nowhere'"),
        (("orders", "again", "--rate", "soon"), "not a number above 0"),
        (("orders", "again", "--rate", "1", "--speed", "1"), "not both"),
        (("orders", "again", "--from", "someday"), "not a place"),
    ):
        ended = cli.quick("pipeline", "replay", *words)
        assert (ended.code, said in ended.err) == (Exit.USAGE, True), ended
