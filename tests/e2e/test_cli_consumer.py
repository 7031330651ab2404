"""`penstock consumer list | show | add | alter | seek | kick | drop`."""

import os

import pytest

import penstock
from tests.e2e.command import Command


@pytest.fixture
def cli(tmp_path):
    command = Command(tmp_path)
    with penstock.open(command.store) as store:
        topic = store.create_topic("orders", partitions=2)
        topic.write_many(["x"] * 10, partition=0)
        topic.write_many(["x"] * 4, partition=1)
        topic.add_consumer("billing", important=True, start={0: 5, 1: 4})
        store.create_topic("other").add_consumer("audit")
    return command


def positions(cli, consumer="billing"):
    with penstock.open(cli.store, read_only=True) as store:
        return {c.consumer: c.positions for c in store.topic("orders").consumers()}.get(consumer)


def test_list_shows_consumers_of_all_topics_or_of_one(cli):
    assert [line.split()[:3] for line in cli.ok("consumer", "list").lines] == [
        ["consumer", "topic", "lag"], ["billing", "orders", "5"], ["audit", "other", "0"],
    ]  # fmt: skip
    (only,) = cli.quick_json("consumer", "list", "orders")["consumers"]
    assert (only["consumer"], only["topic"], only["lag"], only["important"]) == ("billing", "orders", 5, True)
    assert only["updated"].endswith("Z")


def test_show_gives_the_position_in_each_partition(cli):
    shown = cli.quick_json("consumer", "show", "orders", "billing")
    assert [(p["partition"], p["position"], p["end"], p["lag"]) for p in shown["partitions"]] == [
        (0, 5, 10, 5), (1, 4, 4, 0),
    ]  # fmt: skip
    assert cli.quick("consumer", "show", "orders", "billing").lines[2].split() == ["0", "5", "0", "10", "5"]
    ended = cli.quick("consumer", "show", "orders", "nobody")
    assert ended.code == 2
    assert "`penstock consumer list`" in ended.err


def test_seek_shows_from_and_to_and_asks(cli):
    ended = cli.run("consumer", "seek", "orders", "billing", "earliest", input="n\n")
    assert ended.code == 1
    assert [line.split()[:3] for line in ended.lines[2:]] == [["0", "5", "0"], ["1", "4", "0"]]
    assert "reads 5 messages again" in ended.out
    assert positions(cli) == {0: 5, 1: 4}
    ended = cli.run("consumer", "seek", "orders", "billing", "earliest", input="yes\n")
    assert ended.code == 0
    assert positions(cli) == {0: 0, 1: 0}


def test_seek_as_a_dry_run_changes_nothing(cli):
    ended = cli.quick("consumer", "seek", "orders", "billing", "latest", "--dry-run", "--json")
    (plan,) = ended.json_lines()
    assert plan["dry_run"] is True
    assert [(m["partition"], m["before"], m["after"], m["skipped"]) for m in plan["partitions"]] == [
        (0, 5, 10, 5), (1, 4, 4, 0),
    ]  # fmt: skip
    assert ended.err == ""
    assert positions(cli) == {0: 5, 1: 4}


def test_seek_by_partition_leaves_the_others_where_they_are(cli):
    assert cli.quick("consumer", "seek", "orders", "billing", "1:1", "--yes").code == 0
    assert positions(cli) == {0: 5, 1: 1}


def test_seek_outside_the_log_is_refused(cli):
    ended = cli.quick("consumer", "seek", "orders", "billing", "0:11", "--yes")
    assert (ended.code, "beyond the end (10)" in ended.err) == (1, True)
    assert cli.quick("consumer", "seek", "orders", "billing", "7:0", "--yes").code == 2
    assert cli.quick("consumer", "seek", "orders", "billing", "sometime", "--yes").code == 2
    assert positions(cli) == {0: 5, 1: 4}


def test_seek_makes_a_consumer_only_when_told(cli):
    ended = cli.quick("consumer", "seek", "orders", "fresh", "latest", "--yes")
    assert (ended.code, "--create makes it" in ended.err) == (2, True)
    assert positions(cli, "fresh") is None
    assert cli.quick("consumer", "seek", "orders", "fresh", "latest", "--yes", "--create").code == 0
    assert positions(cli, "fresh") == {0: 10, 1: 4}


def test_drop_asks_and_forgets_the_positions(cli):
    assert cli.quick("consumer", "drop", "orders", "billing").code == 1
    assert positions(cli) is not None
    (dropped,) = cli.quick("consumer", "drop", "orders", "billing", "--yes", "--json").json_lines()
    assert dropped == {"topic": "orders", "consumer": "billing", "dropped": True, "lag": 5}
    assert positions(cli) is None
    assert cli.quick("consumer", "drop", "orders", "billing", "--yes").code == 2


def test_a_consumer_is_added_and_altered(cli):
    """B001-28."""
    added = cli.ok("consumer", "add", "orders", "fresh", "--important", "--from", "latest")
    assert added.lines[:2] == ["consumer fresh of orders added", "  important            yes"]
    assert positions(cli, "fresh") == {0: 10, 1: 4}
    altered = cli.quick(
        "consumer", "alter", "orders", "fresh", "--not-important", "--availability-period", "7d"
    )
    assert altered.lines == ["important: yes → no", "availability_period: none → 7d"]
    ended = cli.quick("consumer", "alter", "orders", "fresh", "--read-from", "2026-01-31T12:00:00Z", "--json")
    (change,) = ended.json_lines()
    assert change["after"]["read_from"] == "2026-01-31T12:00:00.000000Z"
    assert change["before"]["availability_period_s"] == 7 * 86400
    assert "→ none" in cli.quick("consumer", "alter", "orders", "fresh", "--availability-period", "none").out


def test_adding_and_altering_refuse_what_makes_no_sense(cli):
    assert cli.quick("consumer", "add", "orders", "billing").code == 2
    assert cli.quick("consumer", "alter", "orders", "billing").code == 2
    assert cli.quick("consumer", "alter", "orders", "nobody", "--important").code == 2
    assert cli.quick("consumer", "alter", "orders", "billing", "--read-from", "earliest").code == 2


def test_members_are_shown_and_kicked(cli):
    with penstock.open(cli.store) as store, store.topic("orders").reader(consumer="billing") as reader:
        message = reader.receive()
        shown = cli.quick_json("consumer", "show", "orders", "billing")
        (member,) = shown["members"]
        assert (member["pid"], member["partitions"], member["stopped"]) == (os.getpid(), [0, 1], False)
        assert [partition["pid"] for partition in shown["partitions"]] == [os.getpid()] * 2
        text = cli.quick("consumer", "show", "orders", "billing").out
        assert text.count(str(os.getpid())) == 3, "beside each partition, and as a member"
        assert cli.quick("consumer", "kick", "orders", "billing", "1").code == 2
        ended = cli.ok("consumer", "kick", "orders", "billing", str(os.getpid()))
        assert ended.out == f"billing of orders: kicked process {os.getpid()}\n"
        with pytest.raises(penstock.PartitionLost):
            reader.commit(message)
    assert cli.quick_json("consumer", "kick", "orders", "billing")["kicked"] == []
    assert cli.quick("consumer", "kick", "orders", "nobody").code == 2
